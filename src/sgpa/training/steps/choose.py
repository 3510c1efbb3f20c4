"""Which kind of step a run takes."""

from sgpa.attention.backend import check_triton
from sgpa.methods import Method
from sgpa.training import process_group
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.base import RunState, TrainingStep
from sgpa.training.steps.body import EagerBody
from sgpa.training.steps.captured import CapturedStep, can_capture
from sgpa.training.steps.compiled import CompiledBody, can_compile
from sgpa.training.steps.distributed import SharedPass
from sgpa.training.steps.plain import LocalPass, PlainStep


def choose_step(
    state: RunState, method: Method, optim: OptimConfig, steps: int, *, recorded: bool = True
) -> TrainingStep:
    """The fastest way to make `steps` steps: distributed, compiled, captured or plain.

    Steps that are not `recorded` choose the precision of every layer by its inputs.
    """
    check_triton(state.model, state.model.device)
    if process_group.world() > 1:
        return PlainStep(state, SharedPass(state, method), optim)
    if recorded and can_capture(state):
        body = CompiledBody if can_compile(state, steps) else EagerBody
        return CapturedStep(state, method, optim, body(state, method, optim))
    return PlainStep(state, LocalPass(state, method), optim)
