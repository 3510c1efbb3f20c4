"""The training loop: learning, resuming, selecting, logging, refusing."""

import copy
import json
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch

from sgpa.core.errors import CheckpointError, ConfigError, InputError, NumericalError, SgpaError
from sgpa.core.files import read_tensors
from sgpa.data import Dataset
from sgpa.gp.objective import KlWeights
from sgpa.methods import Mle
from sgpa.models import KernelConfig, SgpaConfig
from sgpa.training.logs import read_log
from sgpa.training.optim import OptimConfig
from sgpa.training.selection import score
from support.training_runs import CONFIG, SGPA, Stop, blobs, epoch_lines, stop_at
from support.training_runs import OPTIM as SHORT
from support.training_runs import trainer as short_trainer

OPTIM = replace(SHORT, epochs=6)


def trainer(*arguments, **options):
    return short_trainer(*arguments, **({"optim": OPTIM} | options))


def without_costs(line):
    return {k: v for k, v in line.items() if k not in ("seconds", "peak_memory_bytes")}


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first.values(), second.values(), strict=True))


@pytest.mark.parametrize("method", [Mle(), SGPA, replace(SGPA, samples=2), replace(SGPA, init_on_data=False)])
def test_training_learns(method):
    model = trainer(method=method, optim=replace(OPTIM, epochs=30)).fit()
    data = blobs(60, 2)
    assert (model.predict(data.inputs).label == data.targets).float().mean() > 0.85


def test_the_seed_determines_the_weights():
    first, second = trainer().fit().state_dict(), trainer().fit().state_dict()
    assert same(first, second)
    assert not same(first, trainer(seed=4).fit().state_dict())


@pytest.mark.parametrize("epoch", [1, 2, 3, 5])
def test_a_stopped_run_resumes_with_the_same_result(tmp_path, epoch):
    undisturbed = trainer(tmp_path / "whole").fit().state_dict()
    with pytest.raises(Stop):
        trainer(tmp_path / "cut", on_progress=stop_at(epoch)).fit()
    torch.manual_seed(999)  # a new process has another random state
    assert same(undisturbed, trainer(tmp_path / "cut").fit().state_dict())
    whole, cut = (list(read_log(tmp_path / name / "log.jsonl")) for name in ("whole", "cut"))
    for a, b in zip(whole, cut, strict=True):
        assert without_costs(a) == without_costs(b)


def test_a_stopped_run_with_weight_decay_resumes(tmp_path):
    optim = replace(OPTIM, weight_decay=10.0, select="last")
    undisturbed = trainer(optim=optim).fit().state_dict()
    with pytest.raises(Stop):
        trainer(tmp_path, optim=optim, on_progress=stop_at(4)).fit()
    assert same(undisturbed, trainer(tmp_path, optim=optim).fit().state_dict())
    assert not same(undisturbed, trainer(optim=replace(optim, weight_decay=0.0)).fit().state_dict())


def test_an_incomplete_log_line_is_dropped(tmp_path):
    with pytest.raises(Stop):
        trainer(tmp_path, on_progress=stop_at(4)).fit()
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"epoch": 5, "nl')
    trainer(tmp_path).fit()
    assert [line["epoch"] for line in read_log(tmp_path / "log.jsonl")] == [1, 2, 3, 4, 5, 6]


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = trainer(tmp_path).fit().state_dict()
    epochs = []
    assert same(first, trainer(tmp_path, on_progress=epochs.append).fit().state_dict())
    assert epochs == []


def test_a_directory_of_another_run_is_refused(tmp_path):
    trainer(tmp_path).fit()
    with pytest.raises(CheckpointError, match="other settings"):
        trainer(tmp_path, seed=4).fit()
    with pytest.raises(CheckpointError, match="other settings"):
        trainer(tmp_path, method=replace(SGPA, kl=KlWeights(g=1.0))).fit()


def test_the_log_shows_what_each_layer_does(tmp_path):
    trainer(tmp_path).fit()
    lines = list(read_log(tmp_path / "log.jsonl"))
    assert all(line["kl_g"] > 0 and line["kl_a"] > 0 for line in lines)
    looked = [line for line in lines if "layers" in line]
    assert [line["epoch"] for line in looked] == [2, 4, 6]
    layer = looked[-1]["layers"][0]
    assert set(layer) == {"kl_g", "kl_a", "variance", "snr", "off_diagonal"}
    assert layer["snr"] > 0
    assert 0 <= layer["off_diagonal"] <= 1
    assert json.dumps(lines)


def test_selection_keeps_the_best_validation_epoch(tmp_path):
    optim = replace(OPTIM, epochs=12, select_every=1)
    kept = trainer(tmp_path / "best", optim=optim).fit()
    lines = list(read_log(tmp_path / "best" / "log.jsonl"))
    best = min(lines, key=lambda line: line["validation"]["nll"])["epoch"]
    # the seed determines everything, so the checkpoint of a stopped run has the weights after that epoch
    with pytest.raises(Stop):
        trainer(tmp_path / "cut", optim=optim, on_progress=stop_at(best)).fit()
    tensors, _ = read_tensors(tmp_path / "cut" / "checkpoint.safetensors")
    assert torch.equal(tensors["model.head.weight"], kept.state_dict()["head.weight"])
    last = trainer(tmp_path / "last", optim=replace(optim, select="last")).fit()
    assert best == 12 or not same(kept.state_dict(), last.state_dict())


def test_a_finished_run_needs_only_its_model(tmp_path):
    done = trainer(tmp_path).fit()
    for file in ("checkpoint.safetensors", "best.safetensors", "log.jsonl"):
        (tmp_path / file).unlink()
    lines = []
    again = trainer(tmp_path, on_progress=lines.append).fit()
    assert not lines
    assert same(done.state_dict(), again.state_dict())
    (tmp_path / "finished.json").unlink()  # which training this model is of is not known: train again
    trainer(tmp_path, on_progress=epoch_lines(lines)).fit()
    assert len(lines) == OPTIM.epochs


def test_init_from_starts_at_the_weights_of_the_point_model():
    point = trainer(method=Mle()).fit().state_dict()
    optim = replace(OPTIM, epochs=1, lr=1e-12, final_lr=0.0)
    model = trainer(init_from=point, optim=optim).fit().state_dict()
    assert torch.allclose(model["head.weight"], point["head.weight"], atol=1e-6)


def test_adam_keeps_its_moments_over_all_epochs(tmp_path):
    trainer(tmp_path).fit()
    tensors, _ = read_tensors(tmp_path / "checkpoint.safetensors")
    steps = {int(v) for name, v in tensors.items() if name.startswith("adam.step.")}
    assert steps == {6 * 4}  # six epochs of four batches


def test_the_start_is_kept_where_training_makes_a_trained_model_worse(tmp_path):
    """Also by a run that was stopped, and only there: a better epoch is preferred."""
    point = trainer(method=Mle(), optim=replace(OPTIM, epochs=30)).fit().state_dict()
    wild = replace(OPTIM, lr=3.0, warmup=0, epochs=3)
    kept = trainer(method=Mle(), init_from=point, optim=wild).fit().state_dict()
    assert same(point, kept)
    with pytest.raises(Stop):
        trainer(tmp_path, method=Mle(), init_from=point, optim=wild, on_progress=stop_at(2)).fit()
    assert same(point, trainer(tmp_path, method=Mle(), init_from=point, optim=wild).fit().state_dict())
    early = trainer(method=Mle(), optim=replace(OPTIM, epochs=1)).fit().state_dict()
    assert not same(early, trainer(method=Mle(), init_from=early, optim=OPTIM).fit().state_dict())


def test_the_learning_rate_rises_then_falls_linearly():
    optim = OptimConfig(epochs=10, lr=1.0, final_lr=0.1, warmup=2)
    rates = [optim.lr_at(step, 5) for step in range(50)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10] == 1.0
    assert rates[-1] == pytest.approx(0.1)
    falls = [a - b for a, b in pairwise(rates[10:])]
    assert falls == pytest.approx([falls[0]] * 39)


@pytest.mark.parametrize("kernel", ["ard-rbf", "exponential"])
def test_at_an_absurd_learning_rate_training_stops_and_says_where(kernel):
    attention = SgpaConfig(num_global=3, kernel=KernelConfig(name=kernel, preset="paper"))
    optim = OptimConfig(epochs=40, batch_size=8, lr=900.0, final_lr=900.0, select="last", select_every=40)
    config = replace(CONFIG, depth=1)
    where = r"seed 3, step \d+: \S+ is not finite|layer 1, head \d: K_gg has entries that are not finite"
    with pytest.raises(NumericalError, match=where):
        trainer(method=replace(SGPA, attention=attention), config=config, optim=optim).fit()


@dataclass(frozen=True)
class Exploding(Mle):
    """A method whose gradient becomes infinite while its loss stays finite."""

    def loss(self, model, batch, progress):
        loss = super().loss(model, batch, progress)
        return replace(loss, nll=loss.nll + (model.head.bias[0] * 0).sqrt())


@dataclass(frozen=True)
class Poisoned(Mle):
    """A method whose loss is NaN at the second step."""

    def loss(self, model, batch, progress):
        loss = super().loss(model, batch, progress)
        return replace(loss, nll=loss.nll * float("nan")) if progress.fraction > 0 else loss


def test_a_loss_that_is_not_finite_is_named_and_changes_nothing(tmp_path):
    with pytest.raises(
        NumericalError,
        match=r"seed 3, step 2: nll is not finite; lower the learning rate.*"
        r"\(epoch 1; no checkpoint was written yet\)",
    ):
        trainer(tmp_path, method=Poisoned()).fit()
    assert not (tmp_path / "model").exists()


def test_a_gradient_that_is_not_finite_is_named():
    with pytest.raises(NumericalError, match=r"step 1: the gradient of head.bias is not finite; lower the"):
        trainer(method=Exploding()).fit()


def gradient_norm(tmp_path, clip):
    """Norm of the gradient of the first step: 10 times that of Adam's first moments."""
    optim = replace(OPTIM, epochs=1, batch_size=30, clip=clip)
    trainer(tmp_path / str(clip), optim=optim).fit()
    tensors, _ = read_tensors(tmp_path / str(clip) / "checkpoint.safetensors")
    moments = [v for name, v in tensors.items() if name.startswith("adam.exp_avg.")]
    return 10 * float(torch.nn.utils.get_total_norm(moments))


def test_clipping_bounds_the_gradient(tmp_path):
    free = gradient_norm(tmp_path, None)
    assert free > 0.2
    assert gradient_norm(tmp_path, 0.1) == pytest.approx(0.1, rel=1e-3)
    assert gradient_norm(tmp_path, 10 * free) == pytest.approx(free, rel=1e-5)


def test_labels_out_of_range_are_refused_before_training():
    bad = Dataset(torch.randn(6, 1, 4, 4), torch.tensor([0, 1, 2, 3, 0, 1]))
    with pytest.raises(InputError, match=r"row 3: label 3 is outside 0\.\.2"):
        trainer(train=bad).fit()


def test_settings_out_of_range_are_reported_together():
    with pytest.raises(ConfigError, match=r"epochs=0.*lr=-1.*select='best'"):
        OptimConfig(epochs=0, lr=-1, final_lr=-2, select="best")
    for bad in (-0.1, float("inf"), float("nan")):
        with pytest.raises(
            ConfigError, match=rf"weight_decay={bad} \(allowed: (0 to 1e\+09|a finite number)\)"
        ):
            OptimConfig(weight_decay=bad)
    with pytest.raises(ConfigError, match=r"select='mae' \(allowed: accuracy, nll, last\)"):
        trainer(optim=replace(OPTIM, select="mae")).fit()


def test_a_missing_device_is_named():
    with pytest.raises(ConfigError, match=r"device='cuda:99' \(allowed: cpu|device 'cuda:99': no GPU found"):
        trainer(device="cuda:99").fit()


def test_data_sets_check_their_rows():
    with pytest.raises(InputError, match="3 inputs but 2 targets"):
        Dataset(torch.zeros(3, 1), torch.zeros(2))
    with pytest.raises(InputError, match="empty"):
        Dataset(torch.zeros(0, 1), torch.zeros(0))


def test_a_model_with_answers_that_are_not_finite_is_not_handed_out(tmp_path, monkeypatch):
    def not_finite(prediction, targets):
        damaged = copy.copy(prediction)  # a new one would be refused
        object.__setattr__(damaged, "probabilities", prediction.probabilities * torch.nan)
        return score(damaged, targets)

    monkeypatch.setattr("sgpa.training.trainer.score", not_finite)
    with pytest.raises(SgpaError, match="NaN or infinity"):
        trainer(directory=tmp_path).fit()
    assert not (tmp_path / "model").exists()
