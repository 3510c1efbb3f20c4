"""The captured training step gives the numbers of the plain one.

On the CPU the work is repeated instead of recorded. The tests at the end need a GPU.
"""

from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import NumericalError
from sgpa.core.types import Loss
from sgpa.gp import linalg
from sgpa.methods import Mfvi, Mle, Sngp
from sgpa.models import RandomFeatureConfig
from sgpa.training.steps.captured import TOLERATED
from support.compiled_runs import captured
from support.training_runs import METHODS as ATTENTIONS
from support.training_runs import (
    OPTIM,
    SGPA,
    Stop,
    assert_same_predictions,
    assert_same_step,
    blob_batch,
    blobs,
    make_steps,
    plain_step,
    run_state,
    step_info,
    stop_at,
    trainer,
)

METHODS = {
    **{name: method for name, method in ATTENTIONS.items() if name != "joint"},
    "mfvi": Mfvi(),
    "sngp": Sngp(head=RandomFeatureConfig(features=16)),
}


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("warm_up", [0, 3])
def test_a_step_has_the_loss_and_the_gradient_of_the_plain_step(name, warm_up):
    """With warm_up=0 the first step is recorded, with 3 it is not."""
    method = ATTENTIONS[name]
    expected, state = run_state(method), run_state(method)
    others = make_steps(plain_step(expected, method), [blob_batch(8, 1)])
    results = make_steps(captured(state, method, OPTIM, warm_up=warm_up), [blob_batch(8, 1)])
    assert_same_step(state, expected, results, others)
    assert torch.equal(state.random["cpu"], expected.random["cpu"])


def test_clipping_bounds_the_recorded_gradient():
    optim = replace(OPTIM, clip=0.05)
    expected, state, free = (run_state(SGPA) for _ in range(3))
    others = make_steps(plain_step(expected, SGPA, optim), [blob_batch(8, 1)])
    results = make_steps(captured(state, SGPA, optim, warm_up=0), [blob_batch(8, 1)])
    assert_same_step(state, expected, results, others)
    make_steps(captured(free, SGPA, OPTIM, warm_up=0), [blob_batch(8, 1)])
    norms = [
        torch.stack([10 * s["exp_avg"].norm() for s in each.optimiser.state.values()]).norm()
        for each in (state, free)
    ]
    assert norms[0] == pytest.approx(0.05, rel=1e-3)
    assert norms[1] > 0.5


def test_recorded_steps_continue_after_plain_ones():
    batches = [blob_batch(8, i) for i in range(8)]
    expected, state = run_state(SGPA), run_state(SGPA)
    make_steps(plain_step(expected, SGPA), batches)
    step = captured(state, SGPA, OPTIM)
    make_steps(step, batches)
    assert len(step.recordings) == 1
    assert torch.equal(state.random["cpu"], expected.random["cpu"])
    assert_same_predictions(state.model, expected.model, blobs(9, 5).inputs)


def test_an_unrecorded_step_that_fails_is_repeated_with_more_jitter(monkeypatch):
    monkeypatch.setattr(linalg, "JITTERS", (0.0, *linalg.JITTERS))  # no jitter at first

    def singular():
        state = run_state(SGPA)
        with torch.no_grad():
            for layer in state.model.gp_layers:  # two inducing points in one place: K_gg is singular
                layer.attention.Z_g[:, 1] = layer.attention.Z_g[:, 0]
        return state

    expected, state = singular(), singular()
    others = make_steps(plain_step(expected, SGPA), [blob_batch(8, 1)])
    results = make_steps(captured(state, SGPA, OPTIM, most=0), [blob_batch(8, 1)])
    assert_same_step(state, expected, results, others)


def test_an_unrecorded_step_that_stays_not_finite_is_an_error():
    state, batch = run_state(Mle()), blob_batch(8, 1)
    batch.inputs[0] = float("nan")
    with (
        captured(state, Mle(), OPTIM, most=0) as step,
        pytest.raises(NumericalError, match="NaN or infinite"),
    ):
        step.step(batch, step_info(0))


def test_a_recorded_step_that_is_not_finite_changes_nothing(caplog):
    state, broken = run_state(SGPA), blob_batch(8, 1)
    broken.inputs[0, 0, 0, 0] = float("nan")
    with captured(state, SGPA, OPTIM, warm_up=0) as step:
        step.step(blob_batch(8, 0), step_info(0))
        before = {name: value.clone() for name, value in state.model.state_dict().items()}
        step.step(broken, step_info(1))
        assert float(step.registers.skipped) == 1
        assert all(torch.equal(before[name], v) for name, v in state.model.state_dict().items())
        step.step(blob_batch(8, 2), step_info(2))
        assert not torch.equal(before["head.weight"], state.model.head.weight)
    assert "1 steps were skipped" in caplog.text
    assert float(step.registers.skipped) == 0


def test_too_many_steps_that_are_not_finite_stop_the_run():
    batch = blob_batch(8, 0)

    def train():
        with captured(run_state(Mle()), Mle(), OPTIM, warm_up=0) as step:
            step.step(batch, step_info(0))
            batch.inputs.fill_(float("nan"))
            for _ in range(TOLERATED + 1):
                step.step(batch, step_info(0))

    with pytest.raises(NumericalError, match=f"{TOLERATED + 1} steps of an epoch"):
        train()


# -- on a GPU


@pytest.fixture
def plain(monkeypatch):
    """A function after which steps are not captured."""
    return lambda: monkeypatch.setattr("sgpa.training.steps.choose.can_capture", lambda _: False)


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_a_cuda_graph_has_the_loss_and_the_gradient_of_the_plain_step(name):
    method, batch = METHODS[name], blob_batch(8, 1).to("cuda")
    expected, state = (run_state(method, device="cuda") for _ in range(2))
    others = make_steps(plain_step(expected, method), [batch])
    step = captured(state, method, OPTIM, warm_up=3)
    with step:  # three steps that change nothing: libraries choose their algorithms there
        weights = {name: value.clone() for name, value in state.model.state_dict().items()}
        for i in range(3):
            step.step(blob_batch(8, 2 + i).to("cuda"), step_info(0))
        state.model.load_state_dict(weights)
        for moments in state.optimiser.state.values():
            for value in moments.values():
                value.zero_()
        step.generator.set_state(state.random["cuda"])
        results = [step.step(batch, step_info(0))]
    assert len(step.recordings) == 1
    step.close()
    assert_same_step(state, expected, results, others, rtol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_captured_training_predicts_what_plain_training_predicts(plain, name):
    model = trainer(method=METHODS[name], device="cuda").fit()
    plain()
    other = trainer(method=METHODS[name], device="cuda").fit()
    assert_same_predictions(model, other, blobs(30, 5).inputs.cuda())


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{"clip": 0.05}, {"weight_decay": 10.0}])
def test_clipping_and_weight_decay_are_captured(plain, changes):
    optim = replace(OPTIM, **changes)
    model = trainer(optim=optim, device="cuda").fit()
    plain()
    other = trainer(optim=optim, device="cuda").fit()
    assert_same_predictions(model, other, blobs(30, 5).inputs.cuda())


@pytest.mark.gpu
def test_a_stopped_captured_run_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr("sgpa.training.trainer.CHECKPOINT_SECONDS", 0.0)
    whole = trainer(device="cuda").fit()
    with pytest.raises(Stop):
        trainer(tmp_path, device="cuda", on_progress=stop_at(2)).fit()
    resumed = trainer(tmp_path, device="cuda").fit()
    assert_same_predictions(resumed, whole, blobs(30, 5).inputs.cuda())


class Branching(Mle):
    """A loss that reads a value on the processor."""

    def loss(self, model, batch, progress) -> Loss:
        loss = super().loss(model, batch, progress)
        return loss if float(progress.fraction) < 0.5 else replace(loss, nll=2 * loss.nll)


@pytest.mark.gpu
def test_a_loss_that_cannot_be_captured_takes_the_plain_step(caplog, plain):
    model = trainer(method=Branching(), device="cuda").fit()
    assert "cannot be recorded" in caplog.text
    plain()
    other = trainer(method=Branching(), device="cuda").fit()
    assert_same_predictions(model, other, blobs(30, 5).inputs.cuda())


@pytest.mark.gpu
def test_captured_steps_that_are_not_finite_stop_the_run():
    optim = replace(OPTIM, lr=900.0, final_lr=900.0, epochs=60)
    with pytest.raises(NumericalError, match="not finite"):
        trainer(method=Mle(), optim=optim, device="cuda").fit()
