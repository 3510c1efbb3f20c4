"""Training and evaluation modes of a model, set for a block of code and given back after it."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from sgpa.core.noise import Dropout


@contextmanager
def evaluating(model: nn.Module, *, dropout: bool = False) -> Iterator[None]:
    """Inside the block the model is in evaluation mode, but for its dropout where that is asked for.

    Afterwards every module is in the mode it was in, also when the block fails.
    """
    modes = [(m, m.training) for m in model.modules()]
    model.eval()
    for m, _ in modes:
        if isinstance(m, Dropout):
            m.training = dropout
    try:
        yield
    finally:
        for m, mode in modes:
            m.training = mode
