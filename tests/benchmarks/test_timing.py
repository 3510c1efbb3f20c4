"""The benchmarks run, and the naive SGPA equals the fast one."""

import logging
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from benchmarks.naive_sgpa import NAME, NaiveSgpa, naive_jobs
from benchmarks.speed import page
from benchmarks.speed.record import Record, Row, read
from benchmarks.speed.targets import Speed

from benchmarks import cpu, gpu, gpu_tasks, operators
from sgpa.core.inputs import Batch
from sgpa.experiments import timing
from sgpa.experiments.recipes import find
from sgpa.gp.fused import TRITON
from sgpa.gp.objective import Progress
from sgpa.methods import Sgpa
from sgpa.models import KernelConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.training import logs, trainer
from tools import training_page

CONFIG = ModelConfig(
    embedding=PatchConfig(image_size=8, channels=1, patch_size=2),
    depth=3,
    heads=2,
    width=16,
    outputs=4,
    dropout=0.0,
    pooling="sequence",
)
METHOD = Sgpa(attention=SgpaConfig(num_global=5, init="paper", kernel=KernelConfig(locality=(1.0, 2.0))))


def fast_and_naive(dtype):
    torch.manual_seed(0)
    batch = Batch(torch.randn(6, 1, 8, 8, dtype=dtype), torch.arange(6) % 4)
    model = METHOD.build(CONFIG).to(dtype)
    METHOD.initialise(model, batch)
    return model, NaiveSgpa(model), batch


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
def test_naive_loss_and_gradients_equal_the_fast_ones(dtype, tolerance):
    fast, plain, batch = fast_and_naive(dtype)
    progress = Progress(0.7, 50)
    torch.manual_seed(1)
    ours = METHOD.loss(fast, batch, progress).total
    torch.manual_seed(1)
    theirs = plain.loss(batch, METHOD, progress)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(theirs, ours, rtol=tolerance, atol=tolerance)
    gradients = dict(fast.named_parameters())
    scale = max(float(p.grad.abs().max()) for p in fast.parameters())
    assert {name for name, _ in plain.named_parameters()} == set(gradients)
    for name, p in plain.named_parameters():
        torch.testing.assert_close(
            p.grad / scale, gradients[name].grad / scale, rtol=tolerance, atol=tolerance, msg=name
        )


@pytest.mark.slow
def test_naive_predictions_equal_the_fast_ones_up_to_sampling_noise():
    fast, plain, batch = fast_and_naive(torch.float32)
    ours = fast.predict(batch.inputs, samples=1000, batch_size=6).probabilities
    torch.manual_seed(2)
    assert torch.allclose(plain.predict(batch.inputs, samples=1000), ours, atol=0.05)


def test_naive_training_learns():
    torch.manual_seed(0)
    x = torch.randn(24, 1, 8, 8)
    y = (x.mean((1, 2, 3)) > 0).long()
    method = replace(METHOD, attention=SgpaConfig(num_global=5))
    with naive_jobs(method, method.build(CONFIG), Batch(x, y), x) as jobs:
        for _ in range(80):
            jobs.step()
        assert (jobs.predict().argmax(-1) == y).float().mean() > 0.8


def test_timed_steps_are_chosen_as_the_trainer_chooses_them(monkeypatch):
    calls = []

    class Spy:
        def __init__(self, state, method, optim, steps):
            calls.append((state.model, method, optim, steps))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            calls.append("exit")

        def step(self, batch, _):
            calls.append(len(batch))

        def close(self):
            calls.append("close")

    assert timing.choose_step is trainer.choose_step
    monkeypatch.setattr(timing, "choose_step", Spy)
    optim = find("digits").optim
    model, batch = METHOD.build(CONFIG), Batch(torch.randn(6, 1, 8, 8), torch.arange(6) % 4)
    with timing.training_step(METHOD, model, optim, batch) as step:
        step()
    assert calls == [(model, METHOD, optim, optim.epochs * timing.ROWS // 6), 6, "exit", "close"]


def test_cpu_benchmark_writes_its_numbers(tmp_path, capsys):
    threads = torch.get_num_threads()
    try:
        cpu.main(["--model", "digits", "--repeats", "1", "--out", str(tmp_path), "--threads", str(threads)])
    finally:
        torch.set_num_threads(threads)
    rows = read(tmp_path / "speed.json")
    assert [row.name for row in rows] == [*timing.CONTENDERS, NAME]
    assert all(row.part == "cpu" and row.step > 0 and row.predict > 0 for row in rows)
    assert f"│ {NAME} " in capsys.readouterr().out


@pytest.mark.slow
def test_gpu_benchmark_runs_on_a_cpu(tmp_path, capsys):
    folder = ["--device", "cpu", "--quick", "--processes", "0", "--out", str(tmp_path)]
    gpu.main([*folder, "--parts", "tokens", "--tokens", "16,64"])
    gpu.main([*folder, "--parts", "inducing,model", "--inducing", "4,8"])
    rows = read(tmp_path / "speed.json")
    assert not [row.error for row in rows if row.error]
    counts = {part: sum(row.part == part for row in rows) for part in ("model", "tokens", "inducing")}
    assert counts == {"model": 5, "tokens": 7, "inducing": 6}  # the naive SGPA is left out at 64 tokens
    assert {row.num_global for row in rows if row.part == "inducing"} == {4, 8}
    assert all((row.predict is None) == (row.part != "model") for row in rows)
    assert len({row.step for row in rows if row.name in (timing.BASE, timing.DROPOUT)}) == 3  # timed once
    assert rows[0].run["commit"]
    assert f"{timing.SGPA}, step, T=64: ready" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        gpu.main(["--parts", "modle"])


@pytest.mark.slow
def test_failed_job_reports_its_error(tmp_path, monkeypatch):
    def no_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(gpu_tasks, "recipe_prediction", no_memory)
    folder = ["--device", "cpu", "--quick", "--processes", "0", "--out", str(tmp_path)]
    gpu.main([*folder, "--parts", "model"])
    rows = {row.name: row for row in read(tmp_path / "speed.json")}
    assert rows[timing.SGPA].error == "out of memory"
    assert rows[timing.SGPA].predict is None
    assert rows[timing.SGPA].step > 0
    assert rows[NAME].error is None
    assert "| out of memory |" in page.page(Speed(tuple(rows.values())))


def test_step_that_falls_back_to_a_slower_path_is_not_timed(tmp_path, monkeypatch):
    @contextmanager
    def slower(*_):
        yield lambda: logging.getLogger("sgpa.training.steps.compiled").warning("the step is not compiled")

    monkeypatch.setattr(gpu_tasks, "recipe_step", slower)
    folder = ["--device", "cpu", "--quick", "--processes", "0", "--out", str(tmp_path)]
    gpu.main([*folder, "--parts", "inducing", "--inducing", "4"])
    rows = {row.name: row for row in read(tmp_path / "speed.json")}
    assert rows[timing.SGPA].error == "RuntimeError: the step is not compiled"
    assert rows[timing.SGPA].step is None
    assert rows[NAME].step > 0


def test_later_measurement_replaces_an_earlier_one(tmp_path):
    row = Row(part="model", name="SGPA", tokens=64, num_global=32, batch=2, step=2.0)
    Record(tmp_path).add(row)
    Record(tmp_path).add(replace(row, step=1.0))
    Record(tmp_path).add(replace(row, num_global=8))
    assert [row.step for row in read(tmp_path / "speed.json")] == [2.0, 1.0]


@pytest.mark.slow
@pytest.mark.skipif(not TRITON, reason="Triton is not installed")
def test_operator_benchmark_prints_errors_of_equal_length(capsys):
    operators.main(["--device", "cuda" if torch.cuda.is_available() else "cpu", "--quick"])
    lines = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| 2 2")]
    assert [line[1] for line in lines] == ["attend", "mean", "variance", "inducing"]
    for _, _, plain, fused, *_ in lines:
        assert len(plain.split()) == len(fused.split())
        assert max(float(error) for error in (plain + " " + fused).split()) < 1e-2


def test_training_page(tmp_path, capsys):
    for stage, best in (("warm", 2), ("sgpa", 1)):
        for epoch in range(1, 4):
            looked = {"accuracy": 0.5, "nll": 1.0 + abs(epoch - best)}
            line = {"epoch": epoch, "lr": 1e-3, "seconds": 9.0 if epoch == 1 else 2.0, "nll": 1.0 / epoch}
            line |= {"kl_g": 2.0, "kl_a": 3.0, "validation": looked if epoch < 3 else None}
            logs.append(tmp_path / f"kernel-{stage}-0" / "log.jsonl", line)
    training_page.main(
        [str(tmp_path), "--out", str(tmp_path / "out"), "--commit", "abc", "--hardware", "a GPU"]
    )
    page = (tmp_path / "out" / "full-training.md").read_text()
    assert "6 epochs" in page
    assert "a GPU, commit abc" in page
    assert "| MLE | 3 | 13 | 2.00 | 9 | 1.000 (epoch 2)" in page
    assert "| SGPA | 3 | 13 | 2.00 | 9 | 1.000 (epoch 1), 2.000" in page
    lines = (tmp_path / "out" / "full-training.csv").read_text().splitlines()
    assert len(lines) == 7
    assert lines[3].startswith("warm,3,0.001,2,0.333333,2,3,,")
    assert "<svg" in (tmp_path / "out" / "full-training.svg").read_text()
    assert "written" in capsys.readouterr().out
