"""The main job: kernel-MLE against SGPA on embedded digits, from nothing to a report."""

import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa import __version__
from sgpa.data import Dataset, Splits, digits
from sgpa.evaluation import Results, Subject, evaluate_classifier
from sgpa.files import write_json
from sgpa.methods import Method
from sgpa.models import Transformer
from sgpa.optim import OptimConfig
from sgpa.recipes import Recipe
from sgpa.training import Trainer, read_log
from sgpa.types import Classification

Announce = Callable[[str, int, int, str], None]  # run, epochs done, epochs in all, what to show
OUTSIDE = "photo-patches"


def run(recipe: Recipe, directory: Path, announce: Announce, command: str = "sgpa demo") -> dict[str, Any]:
    """Train and evaluate both methods for every seed; returns and writes the results.

    Runs that are finished in `directory` are taken from there, one that was stopped goes on.
    """
    splits = digits.load()
    outside = digits.photo_patches()
    results, seconds = Results(), {"mle": 0.0, "sgpa": 0.0}
    for seed in range(recipe.seeds):
        started = time.monotonic()
        fit = partial(_fit, recipe, splits, seed, directory, announce)
        mle = fit("mle", recipe.mle, recipe.optim, None)
        seconds["mle"] += time.monotonic() - started
        started = time.monotonic()
        warm = fit("warm-start", recipe.mle, recipe.warm, None).state_dict()
        sgpa = fit("sgpa", recipe.sgpa, recipe.sgpa_optim, warm)
        seconds["sgpa"] += time.monotonic() - started
        for method, model in (("mle", mle), ("sgpa", sgpa)):
            subject = Subject("digits", "kernel", method, seed)
            found = evaluate_classifier(
                model, subject, splits.test, shifts=_shifts(splits.test), outside={OUTSIDE: outside}
            )
            found.draw(subject, "training", "", _history(directory / f"{method}-{seed}" / "log.jsonl"))
            if seed == 0:
                found.draw(subject, "examples", "", _examples(model, splits.test, outside))
            results.records += found.records
            results.curves += found.curves
    saved = {
        "schema": 1,
        "title": "Handwritten digits: does the model know when it does not know?",
        "summary": (
            f"A small vision Transformer learns 8 x 8 digits from {len(splits.train)} examples, once by "
            f"maximum likelihood and once as a sparse Gaussian process (SGPA), {recipe.seeds} seeds each. "
            f"Both are tested on {len(splits.test)} clean digits, on noisy and rotated ones, and on patches "
            "of photographs."
        ),
        "records": results.records,
        "curves": results.curves,
        "run": {"command": command, "recipe": asdict(recipe), "seconds": seconds, **provenance()},
    }
    write_json(directory / "results.json", saved)
    return saved


def _fit(
    recipe: Recipe,
    splits: Splits,
    seed: int,
    directory: Path,
    announce: Announce,
    name: str,
    method: Method,
    optim: OptimConfig,
    warm: dict[str, Tensor] | None,
) -> Transformer:
    label = f"{name}, seed {seed}"

    def tell(line: dict[str, Any]) -> None:
        kl = f"  KL_g {line['kl_g']:.0f}  KL_a {line['kl_a']:.1f}" if line["kl_g"] else ""
        announce(label, line["epoch"], optim.epochs, f"nll {line['nll']:.3f}{kl}")

    announce(label, 0, optim.epochs, "")
    trainer = Trainer(
        method=method,
        config=recipe.model,
        optim=optim,
        train=splits.train,
        validation=splits.validation,
        seed=seed,
        directory=directory / f"{name}-{seed}",
        warm=warm,
        report=tell,
    )
    model = trainer.fit()
    announce(label, optim.epochs, optim.epochs, "done")
    return model


def _shifts(test: Dataset) -> dict[str, Callable[[], Dataset]]:
    return {
        f"{name}:{strength}": partial(shift, test, strength)
        for name, shift in digits.SHIFTS.items()
        for strength in digits.STRENGTHS
    }


def _history(log: Path) -> dict[str, Any]:
    """A log as columns; what is measured every few epochs only is null in between."""
    lines = list(read_log(log))
    layers = [line.get("layers") for line in lines]
    depth = max((len(found) for found in layers if found), default=0)
    names = ("kl_g", "kl_a", "variance", "snr", "off_diagonal")
    return {
        "epoch": [line["epoch"] for line in lines],
        "nll": [line["nll"] for line in lines],
        "kl_g": [line["kl_g"] for line in lines],
        "kl_a": [line["kl_a"] for line in lines],
        "validation": [line.get("validation", {}).get("nll") for line in lines],
        "layers": {
            name: [[layer[name] for layer in found] if found else [None] * depth for found in layers]
            for name in names
        },
    }


def _examples(model: Transformer, test: Dataset, outside: Tensor) -> list[dict[str, Any]]:
    """The same digit clean, noisy and turned, and something that is no digit at all."""
    one = test[:1]
    shown = {
        f"a clean {int(one.targets[0])}": one.inputs,
        "with noise": digits.noisy(one, 4).inputs,
        "turned": digits.rotated(one, 5).inputs,
        "no digit (photo)": outside[:1],
    }
    images = torch.cat([image for image in shown.values() if isinstance(image, Tensor)])  # [4, 1, 8, 8]
    found = model.predict(images)
    assert isinstance(found, Classification)
    return [
        {
            "caption": caption,
            "image": digits.denormalise(images[i, 0]).tolist(),
            "probabilities": found.probabilities[i].tolist(),
            "entropy": float(found.entropy[i]),
            "mutual_information": float(found.mutual_information[i]),
        }
        for i, caption in enumerate(shown)
    ]


def provenance() -> dict[str, Any]:
    """Where and with what a run was made."""
    git = ["git", "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(
            git, capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine() + " CPU"
    return {
        "versions": {"sgpa": __version__, "python": platform.python_version(), "torch": torch.__version__},
        "hardware": f"{device}, {torch.get_num_threads()} threads",
        "commit": commit,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
