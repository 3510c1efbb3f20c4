"""Which kind of step a run takes."""

import logging
from functools import cache

from sgpa.attention.kernel import KernelProjections
from sgpa.gp.fused import TRITON
from sgpa.methods import Method
from sgpa.models import Transformer
from sgpa.training import process_group
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.base import RunState, TrainingStep
from sgpa.training.steps.body import EagerBody
from sgpa.training.steps.captured import CapturedStep, can_capture
from sgpa.training.steps.compiled import CompiledBody, can_compile
from sgpa.training.steps.distributed import SharedPass
from sgpa.training.steps.plain import LocalPass, PlainStep

log = logging.getLogger(__name__)


def choose_step(state: RunState, method: Method, optim: OptimConfig, steps: int) -> TrainingStep:
    """The fastest way to make `steps` steps: distributed, compiled, captured or plain."""
    check_triton(state.model)
    if process_group.world() > 1:
        return PlainStep(state, SharedPass(state, method), optim)
    if can_capture(state):
        body = CompiledBody if can_compile(state, steps) else EagerBody
        return CapturedStep(state, method, optim, body(state, method, optim))
    return PlainStep(state, LocalPass(state, method), optim)


def check_triton(model: Transformer) -> None:
    """Warn where a GPU could be faster with Triton; the numbers are the same."""
    kernels = any(isinstance(layer.attention, KernelProjections) for layer in model.gp_layers)
    if not TRITON and kernels and model.device.type == "cuda":
        warn_of_triton()


@cache
def warn_of_triton() -> None:
    """Once per process."""
    log.warning("Triton is not installed: kernel attention takes slower ways; install the extra `fused`")
