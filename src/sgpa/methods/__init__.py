"""Methods, each a small object behind one contract."""

from sgpa.methods.base import NOTHING, Calibration, Method, PostHoc, Predictor, Tensors
from sgpa.methods.mle import Mle
from sgpa.methods.sgpa import Sgpa

__all__ = ["NOTHING", "Calibration", "Method", "Mle", "PostHoc", "Predictor", "Sgpa", "Tensors"]
