"""Methods, each a small object behind one contract."""

from sgpa.methods.base import Method, Predictor
from sgpa.methods.mle import Mle
from sgpa.methods.sgpa import Sgpa

__all__ = ["Method", "Mle", "Predictor", "Sgpa"]
