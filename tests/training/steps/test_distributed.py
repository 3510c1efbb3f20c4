"""Two processes under torchrun, each with half of every batch, give the result of one process."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from sgpa.core.files import read_tensors
from sgpa.core.noise import Shard, bernoulli, normal, sharded, source
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner import RunFolder, train_stage
from sgpa.models import Transformer
from sgpa.training.logs import read_log
from sgpa.training.steps.distributed import share
from support.paths import ROOT
from support.torchrun_runs import BROKEN, CASES, COMMAND, FIRST_STEP, STOPPED, TINY, first_step, grid

pytestmark = [
    pytest.mark.xdist_group("torchrun"),  # all in one process of the tests: they share what was trained
    pytest.mark.skipif(
        not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
        reason="this torch has no gloo, which processes talk through on a CPU",
    ),
]
SCRIPT = str(ROOT / "tests" / "support" / "torchrun_runs.py")


PRINTED = "printed.txt"  # what both processes print


def torchrun(*command, seconds=120):
    """Start two processes of the script and wait for them."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", SCRIPT]
    launch += command
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        launch, capture_output=True, text=True, timeout=seconds, env=environment, check=False
    )


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of all trainings, one of which was cut short before and is resumed."""
    folder = tmp_path_factory.mktemp("parallel")
    broken = torchrun("break down", str(folder / BROKEN))
    assert broken.returncode != 0
    assert "this process is gone" in broken.stderr
    assert (folder / BROKEN / "checkpoint.safetensors").exists()
    assert not (folder / BROKEN / "model").exists()
    finished = torchrun("all", str(folder))
    assert finished.returncode == 0, finished.stderr
    (folder / PRINTED).write_text(finished.stdout)
    return folder


def moments(folder):
    """Adam's first moments in a checkpoint."""
    tensors, _ = read_tensors(folder / "checkpoint.safetensors")
    return {name: value for name, value in tensors.items() if name.startswith("adam.exp_avg.")}


@pytest.mark.parametrize("rows", FIRST_STEP)
@pytest.mark.parametrize("name", CASES)
def test_the_first_step_has_the_gradient_of_one_process(done, tmp_path, name, rows):
    first_step(name, rows, tmp_path).fit()
    alone, shared = moments(tmp_path), moments(done / f"{name}, {rows} rows")
    scale = max(float(value.abs().max()) for value in alone.values())
    for key, value in alone.items():
        other = shared.get(key, torch.zeros_like(value))
        torch.testing.assert_close(
            other, value, rtol=1e-4, atol=1e-5 * scale, msg=lambda t, k=key: f"{k}: {t}"
        )


@pytest.mark.parametrize("name", CASES)
def test_two_processes_predict_what_one_predicts(done, tmp_path, name):
    alone = replace(CASES[name](), directory=tmp_path).fit()
    shared, _ = read_tensors(done / name / "model" / "model.safetensors")
    other = torch.load(done / name / "other.pt")
    assert all(torch.equal(shared[key], other[key]) for key in other)  # both processes have the same model
    inputs, predictions = CASES[name]().validation.inputs, []
    for weights in (alone.state_dict(), shared):
        alone.load_state_dict(weights)
        prediction = alone.predict(inputs)
        values = prediction.mean if alone.config.likelihood == "laplace" else prediction.probabilities
        predictions.append(values)
    expected, actual = predictions
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=2e-3)
    for a, b in zip(read_log(done / name / "log.jsonl"), read_log(tmp_path / "log.jsonl"), strict=True):
        assert a.keys() == b.keys()
        for key in ("epoch", "lr", "weight_g", "weight_a"):
            assert a[key] == pytest.approx(b[key], rel=1e-6), key
        for key in ("nll", "kl_g", "kl_a", "loss"):
            assert a[key] == pytest.approx(b[key], rel=1e-3, abs=1e-4), key


def test_an_error_of_one_process_is_raised_in_all(done):
    for rank in (0, 1):
        assert "this share cannot be factorised" in (done / f"error-{rank}.txt").read_text()


def test_a_benchmark_is_trained_by_all_and_tested_by_the_first(done, tmp_path):
    (results, failures), other = (json.loads((done / f"grid-{rank}.json").read_text()) for rank in (0, 1))
    assert [results, failures] == other
    alone = grid(tmp_path)
    assert failures == {failure.job: failure.reason for failure in alone.failures}
    assert "this share cannot be factorised" in failures["broken-mle-0"]
    assert len(results["records"]) == len(alone.results["records"]) > 0
    for a, b in zip(results["records"], alone.results["records"], strict=True):
        assert a["value"] == pytest.approx(b["value"], rel=1e-3, abs=1e-4), a


def test_the_command_line_trains_with_all_processes(done, tmp_path):
    assert (done / PRINTED).read_text().count("Next: ") == 1
    place = RunFolder.of("digits", tmp_path / "alone", TINY)
    model = train_stage(place, plan(place.recipe, "mle"), 0, 0)
    shared = Transformer.from_pretrained(done / COMMAND / "trainings" / "kernel-mle-0" / "model")
    inputs = place.task(0).splits.test.inputs[:20]
    pair = [each.predict(inputs).probabilities for each in (shared, model)]
    torch.testing.assert_close(*pair, rtol=0, atol=1e-3)


def test_a_process_that_dies_ends_the_other_and_the_run_can_be_resumed(done):
    whole, cut = (read_tensors(done / name / "model" / "model.safetensors")[0] for name in (STOPPED, BROKEN))
    assert all(torch.equal(whole[key], cut[key]) for key in whole)


def test_shares_cover_every_row_once_and_none_is_empty():
    for rows in (1, 2, 5, 8):
        for world in (1, 2, 3, 7):
            shares = [share(rows, rank, world) for rank in range(world)]
            assert sum(count for _, count in shares) == rows
            counted = [i for shard, count in shares if count for i in range(shard.start, shard.stop)]
            assert counted == list(range(rows))
            assert all(shard.stop > shard.start for shard, _ in shares)


def own_rows(x, at, start, stop):
    """Rows of copies of a batch of six."""
    return x.unflatten(at, (-1, 6)).narrow(at + 1, start, stop - start).flatten(at, at + 1)


@pytest.mark.parametrize(("shape", "rows"), [((6, 2), 0), ((4, 6, 2), 1), ((12, 3), 0), ((3, 2), None)])
def test_a_shard_returns_the_numbers_of_its_rows(shape, rows):
    like = torch.zeros(())
    torch.manual_seed(0)
    whole = [normal(shape, like, rows=rows), bernoulli(0.4, shape, like, rows=rows), torch.rand(1)]
    for start, stop in ((0, 2), (2, 3), (3, 6)):
        size = list(shape)
        if rows is not None:
            size[rows] = size[rows] // 6 * (stop - start)
        torch.manual_seed(0)
        with source(Shard(start, stop, 6)):
            assert sharded()
            drawn = [normal(size, like, rows=rows), bernoulli(0.4, size, like, rows=rows), torch.rand(1)]
        for a, b in zip(drawn[:2], whole[:2], strict=True):
            assert torch.equal(a, b if rows is None else own_rows(b, rows, start, stop))
        assert torch.equal(drawn[2], whole[2])  # all generators advance by the same amount
    assert not sharded()


def test_a_share_keeps_the_padding_of_the_whole_batch():
    model = Transformer(CASES["sdp-mle on texts"]().config)
    ids = torch.tensor([[1, 2, 3, 4, 0, 0], [5, 6, 0, 0, 0, 0]])
    assert model.trimmed(ids).shape == (2, 4)
    assert model.embedding(ids[1:])[0].shape[1] == 2
    with source(Shard(1, 2, 2)):
        assert model.embedding(model.trimmed(ids[1:, :4]))[0].shape[1] == 4
