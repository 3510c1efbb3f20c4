"""The methods, each in one file behind one contract (`base.Method`)."""

from sgpa.methods.affine_scaling import MatrixScaling, VectorScaling
from sgpa.methods.base import NOTHING, Calibration, Method, Tensors, predictor_of
from sgpa.methods.ensemble import Ensemble
from sgpa.methods.gp_head import GpHead
from sgpa.methods.laplace import KfacLaplace
from sgpa.methods.mc_dropout import DropoutPredictor, McDropout
from sgpa.methods.mfvi import Mfvi
from sgpa.methods.mle import Mle
from sgpa.methods.posthoc_gp import PosthocGp
from sgpa.methods.sgpa import Sgpa
from sgpa.methods.sngp import Sngp
from sgpa.methods.temperature import TemperatureScaling
from sgpa.models import SampledPredictor

CATALOGUE: dict[str, Method] = {
    "mle": Mle(),
    "ts": TemperatureScaling(),
    "vs": VectorScaling(),
    "ms": MatrixScaling(),
    "mfvi": Mfvi(),
    "mcd": McDropout(),
    "kflla": KfacLaplace(),
    "posthoc": PosthocGp(),
    "sngp": Sngp(),
    "sgpa": Sgpa(),
    "sgpah": GpHead(),
    "de": Ensemble(base=Mle()),
    "sgpae": Ensemble(base=Sgpa(), id="sgpae"),
}

__all__ = [
    "CATALOGUE",
    "NOTHING",
    "Calibration",
    "DropoutPredictor",
    "Ensemble",
    "GpHead",
    "KfacLaplace",
    "MatrixScaling",
    "McDropout",
    "Method",
    "Mfvi",
    "Mle",
    "PosthocGp",
    "SampledPredictor",
    "Sgpa",
    "Sngp",
    "TemperatureScaling",
    "Tensors",
    "VectorScaling",
    "predictor_of",
]
