"""Runs that train together on stacked parameters give what each gives alone."""

from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import ConfigError, NumericalError
from sgpa.data import Dataset
from sgpa.gp import linalg
from sgpa.methods import Mle, Sgpa
from sgpa.models import TokenConfig
from sgpa.training.logs import read_log
from sgpa.training.steps.plain import Stacked
from sgpa.training.trainer import train_together
from support.training_runs import CONFIG, METHODS, OPTIM, Stop, assert_close, stop_at, trainers


@pytest.mark.parametrize("name", METHODS)
def test_together_gives_what_each_gives_alone(name):
    together = train_together(trainers(METHODS[name]))
    for trainer, model in zip(trainers(METHODS[name]), together, strict=True):
        assert_close(model, trainer.fit())
    assert not torch.allclose(together[0].head.weight, together[1].head.weight, atol=1e-2)


def test_a_bound_on_the_gradient_holds_for_each_member_by_itself():
    optim = replace(OPTIM, clip=0.05)
    together = train_together(trainers(optim=optim))
    for trainer, model in zip(trainers(optim=optim), together, strict=True):
        assert_close(model, trainer.fit())


def test_weight_decay_is_that_of_each_member_alone():
    optim = replace(OPTIM, weight_decay=10.0)
    together, without = (train_together(trainers(optim=each)) for each in (optim, OPTIM))
    for trainer, model, other in zip(trainers(optim=optim), together, without, strict=True):
        assert_close(model, trainer.fit())
        assert model.head.weight.norm() < 0.9 * other.head.weight.norm()


def test_parts_of_a_step_are_in_every_log(tmp_path):
    train_together(trainers(directory=tmp_path / "together"))
    [trainer.fit() for trainer in trainers(directory=tmp_path / "alone")]
    for seed in ("0", "1", "5"):
        a, b = (list(read_log(tmp_path / how / seed / "log.jsonl")) for how in ("together", "alone"))
        for x, y in zip(a, b, strict=True):
            assert x["together"] == 3
            for key in ("nll", "kl_g", "kl_a", "loss", "weight_g", "weight_a", "lr"):
                assert x[key] == pytest.approx(y[key], rel=1e-4)


@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_a_cohort_that_was_stopped_goes_on_together_or_alone(tmp_path, monkeypatch, epoch):
    monkeypatch.setattr("sgpa.training.trainer.CHECKPOINT_SECONDS", 0.0)
    whole = train_together(trainers())
    cut = trainers(directory=tmp_path)
    cut[1].report = stop_at(epoch)  # the first has saved its epoch by then, the third has not
    with pytest.raises(Stop):
        train_together(cut)
    resumed = [*train_together(trainers(directory=tmp_path)[:2]), trainers(directory=tmp_path)[2].fit()]
    for model, expected in zip(resumed, whole, strict=True):
        assert_close(model, expected)


def test_finished_members_are_taken_as_they_are(tmp_path):
    first = trainers(directory=tmp_path)[1].fit()
    models = train_together(trainers(directory=tmp_path))
    assert_close(models[1], first, atol=0.0)
    again = train_together(trainers(directory=tmp_path))
    for a, b in zip(models, again, strict=True):
        assert_close(a, b, atol=0.0)


def test_a_matrix_that_needs_more_jitter_is_factorised_for_that_member_alone(monkeypatch):
    alone = []
    original = Stacked._alone

    def watch(self, e, *rest):
        alone.append(e)
        return original(self, e, *rest)

    monkeypatch.setattr(Stacked, "_alone", watch)
    monkeypatch.setattr(linalg, "JITTERS", (0.0, *linalg.JITTERS))  # no jitter to begin with

    def initialise(_, model, batch):
        model.place_inducing_points(batch.inputs)
        if torch.initial_seed() == 1:  # two inducing points in one place: K_gg is singular
            with torch.no_grad():
                for layer in model.gp_layers:
                    layer.attention.Z_g[:, 1] = layer.attention.Z_g[:, 0]

    monkeypatch.setattr(Sgpa, "initialise", initialise)
    options = {"optim": replace(OPTIM, epochs=2, lr=1e-4, final_lr=0.0)}
    models = train_together(trainers(**options))
    assert set(alone) == {1}
    for trainer, model in zip(trainers(**options), models, strict=True):
        assert_close(model, trainer.fit(), atol=1e-4)


def test_a_member_that_fails_is_named():
    optim = replace(OPTIM, lr=500.0, final_lr=500.0, epochs=30)
    with pytest.raises(NumericalError, match=r"seed \d, step|layer"):
        train_together(trainers(Mle(), optim=optim))


def test_texts_of_different_lengths_take_turns():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 9, (30,), generator=generator)
    ids = torch.randint(1, 20, (30, 8), generator=generator)
    ids[torch.arange(8) >= lengths.unsqueeze(1)] = 0
    data = Dataset(ids, torch.arange(30) % 3, lengths=lengths)
    config = replace(CONFIG, embedding=TokenConfig(vocabulary=20, max_tokens=8, embedding_width=8))
    options = {"config": config, "train": data, "validation": data}
    together = train_together(trainers(**options))
    for trainer, model in zip(trainers(**options), together, strict=True):
        assert_close(model, trainer.fit())


def test_runs_that_differ_in_more_than_the_seed_are_refused():
    with pytest.raises(ConfigError, match="share their optim"):
        train_together([*trainers(), *trainers(optim=replace(OPTIM, lr=1e-3))])
