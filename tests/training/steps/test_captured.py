"""The recorded training step gives the numbers of the plain one. Needs a GPU."""

from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import NumericalError
from sgpa.core.types import Loss
from sgpa.methods import Mfvi, Mle, Sngp
from sgpa.models import RandomFeatureConfig
from sgpa.training.trainer import train_together
from support.training_runs import METHODS as TOGETHER
from support.training_runs import OPTIM, Stop, assert_close, stop_at, trainers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

METHODS = {
    **{name: method for name, method in TOGETHER.items() if name != "joint"},
    "mfvi": Mfvi(),
    "sngp": Sngp(head=RandomFeatureConfig(features=16)),
}


def plain(monkeypatch):
    monkeypatch.setattr("sgpa.training.trainer.can_capture", lambda _: False)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("seeds", [(3,), (0, 1, 5)])
def test_recorded_training_equals_plain_training(monkeypatch, name, seeds):
    recorded = train_together(trainers(METHODS[name], seeds, device="cuda"))
    plain(monkeypatch)
    for a, b in zip(recorded, train_together(trainers(METHODS[name], seeds, device="cuda")), strict=True):
        assert_close(a, b, atol=1e-4 if name == "sgpa" else 2e-5)  # Adam makes much of rounding there


@pytest.mark.parametrize("changes", [{"clip": 0.05}, {"weight_decay": 10.0}])
def test_a_bound_on_the_gradient_and_weight_decay_are_recorded_too(monkeypatch, changes):
    options = {"optim": replace(OPTIM, **changes), "device": "cuda"}
    recorded = train_together(trainers(**options))
    plain(monkeypatch)
    for a, b in zip(recorded, train_together(trainers(**options)), strict=True):
        assert_close(a, b)


def test_a_recorded_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("sgpa.training.trainer.CHECKPOINT_SECONDS", 0.0)
    whole = train_together(trainers(device="cuda"))
    cut = trainers(directory=tmp_path, device="cuda")
    cut[1].report = stop_at(2)
    with pytest.raises(Stop):
        train_together(cut)
    for a, b in zip(train_together(trainers(directory=tmp_path, device="cuda")), whole, strict=True):
        assert_close(a, b)


def test_what_cannot_be_recorded_takes_the_plain_way(caplog, monkeypatch):
    class Branching(Mle):
        def loss(self, model, batch, progress) -> Loss:
            loss = super().loss(model, batch, progress)
            return loss if float(progress.fraction) < 0.5 else replace(loss, nll=2 * loss.nll)

    models = train_together(trainers(Branching(), device="cuda"))
    assert "cannot be recorded" in caplog.text
    plain(monkeypatch)
    for a, b in zip(models, train_together(trainers(Branching(), device="cuda")), strict=True):
        assert_close(a, b)


def test_steps_that_are_not_finite_stop_the_run():
    optim = replace(OPTIM, lr=900.0, final_lr=900.0, epochs=60)
    with pytest.raises(NumericalError, match="not finite"):
        train_together(trainers(Mle(), optim=optim, device="cuda"))
