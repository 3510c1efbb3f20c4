"""What the methods that work after training ask of the method, the model and the numbers they start from."""

from torch import Tensor

from sgpa.core.errors import Check, InputError
from sgpa.gp.likelihoods import CategoricalLikelihood
from sgpa.methods.base import Method, Tensors
from sgpa.models import Transformer


def plain_base(base: Method) -> Check:
    """The base's model must predict by itself: what the base does on top of it would be left out."""
    return "base", base.id, base.plain, "a method whose trained model predicts by itself, such as mle or sgpa"


def check_classifier(model: Transformer, method: str) -> None:
    """Raise unless the model predicts classes."""
    if not isinstance(model.likelihood, CategoricalLikelihood):
        raise InputError(
            f"{method}: the model has a {model.config.likelihood} likelihood and predicts numbers; "
            f"{method} is for classes"
        )


def check_finite(values: Tensor, method: str, what: str, rows: str) -> None:
    """Raise for the first row that is not finite; rows are the last but one dimension of `values`."""
    bad = (~values.isfinite()).any(-1).reshape(-1, values.shape[-2]).any(0).nonzero()
    if len(bad):
        raise InputError(
            f"{method}: the {what} of {rows} row {int(bad[0])} are not finite; "
            "look for NaN in the inputs and in the trained weights"
        )


def check_calibrated(calibrated: Tensors, names: tuple[str, ...], method: str) -> None:
    """Raise unless `calibrate` has made what `predictor` needs."""
    if missing := [name for name in names if name not in calibrated]:
        raise InputError(
            f"{method}: no {' and no '.join(missing)}; call calibrate first and pass its result to predictor"
        )
