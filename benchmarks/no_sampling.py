"""Quality and time of prediction without sampling (`samples=0`), against 1, 10 and 100 samples.

Usage: python -m benchmarks.no_sampling [--run runs/demo] [--seeds 3] [--strength 5] [--rows 600]
       [--repeats 3]
Uses the SGPA models of the demo in the folder of a run, trains missing ones, and prints a Markdown table:
mean ± standard error over seeds. Times are medians of interleaved predictions.
"""

import argparse
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from sgpa.core.inputs import Inputs
from sgpa.core.types import Classification
from sgpa.data import Dataset
from sgpa.data.images import digits
from sgpa.evaluation.evaluate import classification_metrics, detection
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner import RunFolder, train
from sgpa.experiments.timing import medians
from sgpa.models import Transformer
from sgpa.models.linearised import output_moments

Contender = Callable[[Transformer, Inputs], Classification]
TIMED = 200  # rows of a timed prediction


def samples(count: int) -> Contender:
    """Predict with `count` samples."""

    def predict(model: Transformer, inputs: Inputs) -> Classification:
        prediction = model.predict(inputs, samples=count)
        assert isinstance(prediction, Classification)
        return prediction

    return predict


def last_layer(model: Transformer, inputs: Inputs) -> Classification:
    """Predict with the variance of the last layer only; earlier layers contribute their means."""
    with torch.no_grad():
        states = model.global_state()
        parts = [
            output_moments(model, inputs[i : i + 256], states, layers=1) for i in range(0, len(inputs), 256)
        ]
        moments = [torch.cat(column) for column in zip(*parts, strict=True)]
        prediction = model.likelihood.predict_normal(*moments)
    assert isinstance(prediction, Classification)
    return prediction


def probit(model: Transformer, inputs: Inputs) -> Classification:
    """softmax(f_k / √(1 + π Σ_kk / 8)) without the common shift of all outputs, which softmax ignores."""
    f, Sigma = model.moments(inputs)
    P = torch.eye(f.shape[-1]) - 1 / f.shape[-1]
    variance = (P @ Sigma @ P).diagonal(dim1=-2, dim2=-1)
    p = ((f @ P) / (1 + math.pi / 8 * variance).sqrt()).softmax(-1)
    return Classification(p, torch.special.entr(p).sum(-1))


CONTENDERS: dict[str, Contender] = {
    "0": samples(0),
    "0, probit formula instead of points": probit,
    "0, variance of the last layer only": last_layer,
    "1": samples(1),
    "10": samples(10),
    "100": samples(100),
}
COLUMNS = {
    "accuracy (%)": ("clean", "accuracy", 100, 2),
    "NLL": ("clean", "nll", 1, 3),
    "ECE": ("clean", "ece", 1, 3),
    "noise: accuracy (%)": ("noise", "accuracy", 100, 2),
    "noise: NLL": ("noise", "nll", 1, 3),
    "noise: ECE": ("noise", "ece", 1, 3),
    "rotation: accuracy (%)": ("rotation", "accuracy", 100, 2),
    "rotation: NLL": ("rotation", "nll", 1, 3),
    "rotation: ECE": ("rotation", "ece", 1, 3),
    "photo patches: AUROC": ("ood", "auroc", 1, 3),
}


def models(directory: Path, seeds: int) -> list[Transformer]:
    """The demo's SGPA models, trained if they do not exist."""
    claimed = (directory / "recipe.json").exists()
    place = RunFolder.at(directory) if claimed else RunFolder.of("digits", directory)
    place.claim()
    row = plan(place.recipe, "sgpa")
    return [train(place, row, seed)[seed].eval() for seed in range(seeds)]


def measure(
    predict: Contender, model: Transformer, sets: dict[str, Dataset], ood: Tensor
) -> dict[str, float]:
    """All metrics of one model, by `set metric`."""
    predictions = {name: predict(model, data.inputs) for name, data in sets.items()}
    values = {}
    for name, data in sets.items():
        p = predictions[name].probabilities.double().numpy()
        entropy = predictions[name].entropy.numpy()
        metrics = classification_metrics(p, data.targets.numpy(), entropy)
        values |= {f"{name} {metric}": value for metric, value in metrics.items()}
    return values | {"ood auroc": detection(predictions["clean"], predict(model, ood))["auroc"]}


def cell(values: list[float], scale: int, digits: int) -> str:
    """Mean ± standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{scale * statistics.mean(values):.{digits}f} ± {scale * error:.{digits}f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--strength", type=int, default=5)
    parser.add_argument("--rows", type=int, help="use only the first rows of every test set")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    trained, test = models(args.run, args.seeds), digits.load().test[: args.rows]
    sets = {
        "clean": test,
        "noise": digits.noisy(test, args.strength),
        "rotation": digits.rotated(test, args.strength),
    }
    ood, rows = digits.photo_patches()[: args.rows], test.inputs[:TIMED]
    jobs = {name: lambda predict=predict: predict(trained[0], rows) for name, predict in CONTENDERS.items()}
    seconds = medians(jobs, args.repeats)
    print(
        f"digits model, {len(trained)} seeds, {len(test)} rows, shifts of strength {args.strength}, "
        f"{torch.get_num_threads()} CPU threads, torch {torch.__version__}\n"
    )
    print(f"| samples | {' | '.join(COLUMNS)} | ms per row | relative to ten samples |")
    print("|---|" + "--:|" * (len(COLUMNS) + 2))
    for name, predict in CONTENDERS.items():
        values = [measure(predict, model, sets, ood) for model in trained]
        cells = [cell([v[f"{of} {m}"] for v in values], scale, n) for of, m, scale, n in COLUMNS.values()]
        ratio = seconds[name] / seconds["10"]
        print(
            f"| {name} | {' | '.join(cells)} | {1e3 * seconds[name] / TIMED:.3f} | {ratio:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
