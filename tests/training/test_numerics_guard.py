"""What stops a training, and what makes it take plain steps: numbers that float32 cannot hold."""

import pytest

from sgpa.attention import OrthogonalSgpa
from sgpa.core.counters import FLOAT64_PASSES
from sgpa.core.errors import NumericalError
from sgpa.core.files import read_tensors
from sgpa.training.logs import read_log
from sgpa.training.optim import OptimConfig
from support.compiled_runs import captured
from support.training_runs import SGPA, plain_step, trainer


def test_an_error_in_a_layer_names_step_and_last_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("sgpa.training.trainer.CHECKPOINT_SECONDS", 0.0)
    optim = OptimConfig(epochs=3, batch_size=100, select_every=1)
    moments, passes = OrthogonalSgpa.moments, []

    def poisoned(layer, x, *others, **options):
        passes.append(layer.training)
        return moments(layer, x * float("nan") if sum(passes) > 8 else x, *others, **options)

    monkeypatch.setattr(OrthogonalSgpa, "moments", poisoned)
    message = r"seed 3, step \d+: layer \d.*the last good checkpoint is .*checkpoint.safetensors"
    with pytest.raises(NumericalError, match=message):
        trainer(tmp_path, method=SGPA, optim=optim).fit()


def test_a_run_that_needs_float64_takes_plain_steps_from_then_on(tmp_path, monkeypatch):
    """Recorded steps cannot choose their precision; the validation pass does it for them."""
    chosen = []

    def choose(state, method, optim, steps, *, recorded=True):
        chosen.append(recorded)
        body = captured if recorded else plain_step
        return body(state, method, optim)

    monkeypatch.setattr("sgpa.training.trainer.choose_step", choose)
    monkeypatch.setattr("sgpa.attention.precise.LARGEST_ERROR", 0.0)
    monkeypatch.setattr("sgpa.attention.precise.LARGEST_STEP_ERROR", 0.0)
    optim = OptimConfig(epochs=3, batch_size=100, select_every=1)
    run = trainer(tmp_path, method=SGPA, optim=optim)
    run.fit()
    assert chosen == [True, False]
    assert [
        bool(line.get("numerics", {}).get(FLOAT64_PASSES)) for line in read_log(tmp_path / "log.jsonl")
    ] == [
        False,  # recorded steps count nothing
        True,
        True,
    ]
    assert read_tensors(tmp_path / "checkpoint.safetensors")[1]["float32_too_coarse"]
