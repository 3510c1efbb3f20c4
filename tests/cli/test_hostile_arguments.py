"""Absurd numbers, odd file names and special files on the command line: one line each, and no hang."""

import os
import sys

import pytest
from PIL import Image

from sgpa.cli.options import show_json
from support.terminal import sgpa


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for i in range(6):
            Image.new("RGB", (8, 8), (40 * i, 10, 200)).save(folder / name / f"{i}.png")
    return folder


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--epochs", 99999999999999999999, "epochs=99999999999999999999 (allowed: 1 to 1000000)"),
        ("--batch-size", 10**30, "batch_size="),
        ("--size", 1000000, "size=1000000 (allowed: 1 to 4096)"),
        ("--size", 10**20, "size=100000000000000000000"),
        ("--seed", 2**70, "seed=1180591620717411303424 (allowed: a whole number, 0 to 4294967295)"),
        ("--seed", -1, "seed=-1 (allowed: a whole number, 0 to 4294967295)"),
        ("--lr", "nan", "lr=nan"),
        ("--lr", "inf", "lr=inf"),
    ],
)
def test_absurd_numbers_are_one_line(photos, tmp_path, option, value, complaint):
    assert complaint in sgpa("train", "images", photos, "--out", tmp_path / "run", option, value).complaint
    assert not (tmp_path / "run").exists()


def test_a_recipe_has_the_same_limit_of_epochs(tmp_path):
    outcome = sgpa("train", "digits", "--out", tmp_path / "run", "--set", f"optim.epochs={10**20}")
    assert f"epochs={10**20} (allowed: 1 to 1000000)" in outcome.complaint
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("seed", [-1, 2**70])
def test_a_recipe_has_the_same_seeds(tmp_path, seed):
    outcome = sgpa("train", "digits", "--out", tmp_path / "run", "--seed", seed)
    assert f"seed={seed} (allowed: a whole number, 0 to 4294967295)" in outcome.complaint
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--seeds", 2**70], f"seeds={2**70} (allowed: 1 to 1000)"),
        (["--workers", 10**9], "workers=1000000000 (allowed: 1 to 1000)"),
        (["--set", "ensemble=1000000000"], "ensemble=1000000000 (allowed: 1 to 1000)"),
    ],
)
def test_absurd_numbers_of_runs_are_one_line(tmp_path, words, complaint):
    outcome = sgpa("benchmark", "digits", "--methods", "mle", "--out", tmp_path / "run", *words)
    assert complaint in outcome.complaint
    assert not (tmp_path / "run").exists()


def test_an_absurd_number_of_samples_is_one_line(photos):
    outcome = sgpa("predict", "digits", photos / "cat" / "0.png", "--samples", 10**14)
    assert f"samples={10**14} (allowed: 1 to 1000000, or 0 to draw nothing)" in outcome.complaint


def test_memory_that_runs_out_is_one_line(photos, monkeypatch):
    def fail(*_, **__):
        raise MemoryError("Unable to allocate 43.7 TiB for an array")

    monkeypatch.setattr("sgpa.inference.answers.Trained.answers", fail)
    outcome = sgpa("predict", "digits", photos / "cat" / "0.png")
    assert outcome.complaint.startswith("error: not enough memory for 43.7 TiB; use fewer samples")


@pytest.mark.parametrize("command", [["train", "digits"], ["benchmark", "digits"], ["demo"]])
def test_a_run_cannot_be_written_to_a_file(tmp_path, command):
    file = tmp_path / "file"
    file.write_text("mine")
    assert f"{file} is a file; name a folder" in sgpa(*command, "--out", file).complaint
    assert file.read_text() == "mine"


@pytest.mark.skipif(sys.platform != "linux", reason="file names are bytes on Linux only")
def test_names_that_are_not_utf8_are_one_line(photos, tmp_path):
    odd = os.fsdecode(b"\xff\xfe")
    os.rename(photos / "cat" / "0.png", photos / "cat" / f"{odd}.png")
    assert "not valid UTF-8" in sgpa("train", "images", photos, "--out", tmp_path / "run").complaint
    for command in (["train", "digits"], ["benchmark", "digits"], ["demo"]):
        assert "not valid UTF-8" in sgpa(*command, "--out", tmp_path / odd).complaint
    for command in (["report"], ["evaluate"], ["predict"], ["train", "text"]):
        assert "xff" in sgpa(*command, tmp_path / f"{odd}.csv").complaint
    assert "not valid UTF-8" in sgpa("predict", "digits", photos / "cat" / f"{odd}.png").complaint


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_does_not_hang(photos, tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    assert str(pipe) in sgpa("train", "text", pipe, "--out", tmp_path / "run").complaint
    os.mkfifo(photos / "cat" / "pipe.png")
    (photos / "dog" / "bad.png").write_text("no image")
    assert "bad.png" in sgpa("train", "images", photos, "--out", tmp_path / "run").complaint


def test_json_on_standard_output_has_no_nan(capsys):
    show_json([{"probability": float("nan"), "entropy": float("inf"), "label": "a"}])
    assert "NaN" not in (text := capsys.readouterr().out)
    assert "Infinity" not in text
    assert '"probability": null' in text
