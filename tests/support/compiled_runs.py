"""Captured and compiled steps without a GPU: what would be recorded is run again at every step."""

from sgpa.training.steps.body import EagerBody
from sgpa.training.steps.captured import CapturedStep
from sgpa.training.steps.compiled import CompiledBody


class RunAgain:
    """A recorder that repeats the work instead of replaying a CUDA graph."""

    def check(self, rehearsal):
        rehearsal()

    def record(self, work, generator):
        del generator
        return work


def captured(state, method, optim, *, most=None, warm_up=None):
    """A captured step; `most=0` records nothing."""
    body = EagerBody(state, method, optim)
    return _step(state, method, optim, body, most, warm_up)


def compiled(state, method, optim, *, most=None):
    """A compiled step."""
    return _step(state, method, optim, CompiledBody(state, method, optim), most, None)


def _step(state, method, optim, body, most, warm_up):
    if most is not None:
        body.most = most
    if warm_up is not None:
        body.warm_up = warm_up
    recorder = None if state.model.device.type == "cuda" else RunAgain()
    return CapturedStep(state, method, optim, body, recorder)
