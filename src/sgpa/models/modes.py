"""Blocks of code in which a model is in another mode; afterwards every module is in the mode it was in."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from weakref import WeakKeyDictionary

from torch import nn

from sgpa.core.noise import Dropout


@contextmanager
def evaluating(model: nn.Module, *, dropout: bool = False) -> Iterator[None]:
    """Inside the block the model is in evaluation mode; with `dropout` its dropout stays on.

    Threads that enter such a block of one model take turns, since a mode belongs to the module.
    """
    with _lock(model):
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


_locks: WeakKeyDictionary[nn.Module, RLock] = WeakKeyDictionary()
_making = RLock()


def _lock(model: nn.Module) -> RLock:
    """The lock of a model; it is kept outside so that models can be copied and saved."""
    with _making:
        return _locks.setdefault(model, RLock())


class NoDropout:
    """Switch dropout off inside the block; the module's other modes stay as they are."""

    def __init__(self, module: nn.Module) -> None:
        self.active = [m for m in module.modules() if isinstance(m, Dropout) and m.training]

    def __enter__(self) -> None:
        for m in self.active:
            m.training = False

    def __exit__(self, *_: object) -> None:
        for m in self.active:
            m.training = True
