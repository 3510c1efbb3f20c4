"""Command lines with hostile options, in this process; a command that would train stops at its first step."""

import json
import os
import shutil
from unittest.mock import patch

import numpy as np
from PIL import Image
from tests.fuzz.files import FIXTURES
from tests.fuzz.guard import Accepted
from tests.support.backbones import tiny_bert
from tests.support.fake_results import synthetic
from tests.support.terminal import sgpa

from sgpa.core.errors import InputError

NUMBERS = (
    "0",
    "1",
    "2",
    "-1",
    "1.5",
    "nan",
    "inf",
    "1e9",
    "99999999999999999999",
    "",
    "ten",
    "0x10",
    "１",
    str(2**70),
)
TEXTS = (
    "",
    "a",
    "-",
    "--",
    "../..",
    "a\nb",
    "é",
    "\udcff",
    "<b>",
    "x" * 5000,
    "a,b",
    ",",
    "none",
    "*",
    "{}",
    "%s",
)
SETTINGS = (
    *(
        "optim.epochs=1",
        "optim.epochs=x",
        "optim.lr=nan",
        "optim",
        "=",
        "a=b",
        "model.depth=0",
        "model.width=7",
    ),
    *(
        "task.train=1",
        "kernel.locality=1,a",
        "sgpa.kl.g=-1",
        "name=x",
        "optim.epochs=1e3",
        "methods=x",
        "quiet=1",
    ),
)
OPTIONS = {
    "--epochs": NUMBERS, "--seed": NUMBERS, "--seeds": NUMBERS, "--size": NUMBERS, "--batch-size": NUMBERS,
    "--lr": NUMBERS, "--workers": NUMBERS, "--samples": NUMBERS, "--repeats": NUMBERS, "--steps": NUMBERS,
    "--set": SETTINGS, "--method": (*TEXTS, "sgpa", "mle"), "--methods": (*TEXTS, "all", "mle,sgpa"),
    "--attention": (*TEXTS, "sdp"), "--attentions": TEXTS, "--device": (*TEXTS, "cpu", "cuda:99", "meta"),
    "--column": TEXTS, "--text": TEXTS, "--names": TEXTS, "--json": (None,), "--retry": (None,),
    "--unknown": TEXTS, "--text-column": TEXTS, "--label-column": TEXTS, "--model": (*TEXTS, "digits"),
    "--version": (None,), "--backbone": (*TEXTS, "{folder}/bert", "{folder}/photos"), "--label": TEXTS,
    "--vocabulary": NUMBERS, "--max-error": NUMBERS, "--compare": (None,), "--smiles": TEXTS,
}  # fmt: skip
COMMANDS = (
    *(("train", "digits"), ("train", "images"), ("train", "text"), ("train", "molecules"), ("train",)),
    *(
        ("benchmark", "digits"),
        ("benchmark", "x"),
        ("demo",),
        ("evaluate",),
        ("predict",),
        ("export",),
        ("report",),
    ),
    *(
        ("recipes",),
        ("recipes", "digits"),
        ("methods",),
        ("data", "list"),
        ("data", "x"),
        ("time",),
        ("nothing",),
    ),
)
USAGE = ("Usage:", "─ Error ─")  # the words of the parser of arguments


class Cases:
    """Makes a case from a generator of random numbers."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("cat", "dog"):
            (folder / "photos" / name).mkdir(parents=True)
            for i in range(8):
                Image.fromarray(np.full((8, 8, 3), 20 * i, np.uint8)).save(
                    folder / "photos" / name / f"{i}.png"
                )
        (folder / "texts.csv").write_text("text,label\n" + "a good film,yes\nan odd film,no\n" * 8)
        (folder / "molecules.csv").write_text("smiles,value\n" + "CCO,1.5\nCCN,0.5\nc1ccccc1,2\n" * 6)
        (folder / "empty").mkdir()
        (folder / "bert").mkdir()
        tiny_bert(folder / "bert")
        (folder / "binary").write_bytes(bytes(range(256)))
        shutil.copytree(FIXTURES / "recipe-run", folder / "run")
        (folder / "results.json").write_text(json.dumps(synthetic(("mle",), (0,))))
        os.mkfifo(folder / "pipe")
        names = (
            "photos",
            "texts.csv",
            "molecules.csv",
            "empty",
            "binary",
            "run",
            "results.json",
            "missing",
            "pipe",
        )
        self.places = [
            *(str(folder / name) for name in names),
            str(folder / "run/cells/kernel-sgpa-0"),
            *TEXTS[:6],
        ]

    def make(self, rng, _=0):
        """The name of a case and its call."""
        words = list(rng.choice(COMMANDS))
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            words.append(rng.choice(self.places))
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            option = rng.choice(list(OPTIONS))
            value = rng.choice(OPTIONS[option])
            words += [option] if value is None else [option, value.replace("{folder}", str(self.folder))]
        if rng.random() < 0.5 or words[0] in ("train", "benchmark", "demo"):
            words += ["--out", rng.choice([str(self.folder / "out"), *self.places])]
        if rng.random() < 0.1:
            rng.shuffle(words)
        if words[0] == "time":
            words += ["--help"]  # it measures for minutes

        def run():
            try:
                with (
                    patch("sgpa.training.trainer.Trainer._train", stop),
                    patch("sgpa.experiments.runner.executors.processes.Processes._open", stop),
                    patch("sgpa.data.fetch.fetch", stop),
                ):
                    outcome = sgpa(*words)
            finally:
                shutil.rmtree(self.folder / "out", ignore_errors=True)
            if "Traceback" in outcome.err or "Traceback" in outcome.out:
                raise Accepted(f"a traceback: {outcome.err[-300:]}")
            failed = outcome.code == 1 and "failed: " in outcome.err  # methods of a benchmark
            if outcome.code not in (0, 2) and not failed:
                raise Accepted(f"exit status {outcome.code}: {outcome.err[-300:]}")
            errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
            if outcome.code == 2 and len(errors) != 1 and not any(word in outcome.err for word in USAGE):
                raise Accepted(f"no error line: {outcome.err[-300:]!r}")

        return " ".join(word[:60] for word in words).encode("utf-8", "backslashreplace").decode(), run


def stop(*_, **__):
    """Ends a command where it would begin to train or to download."""
    raise InputError("stopped before the work begins")
