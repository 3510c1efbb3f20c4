"""Measure `sgpa.fit` with its defaults on few rows, beside simple baselines (needs scikit-learn).

    python tools/own_data.py digits 300 --seed 0
    python tools/own_data.py images 300 --seed 0

Prints one line of JSON: accuracy, NLL and ECE on test rows that `fit` never saw, and the CPU seconds.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import sklearn.datasets
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sgpa
from sgpa.data.images.cifar import cifar
from sgpa.evaluation import metrics

CLASSES = (0, 3, 8)  # of CIFAR-10: airplane, cat, ship
TEST_ROWS = 671  # images
LEARNED = 1200  # digits; the other 597 are the test rows


def digits(rows: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Rows to learn from and 597 test rows of the 8 x 8 digits."""
    data = sklearn.datasets.load_digits()
    x, y = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1), torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(100 + seed))
    return x[order[:rows]], y[order[:rows]], x[order[LEARNED:]], y[order[LEARNED:]]


def images(rows: int, seed: int, data_dir: Path | None = None) -> tuple[torch.Tensor, ...]:
    """Rows of three classes of CIFAR-10 to learn from, and test images."""
    splits = cifar("cifar10", data_dir=data_dir)
    parts: list[torch.Tensor] = []
    for data, count in ((splits.train, rows), (splits.test, TEST_ROWS)):
        chosen = torch.isin(data.targets, torch.tensor(CLASSES)).nonzero().squeeze(1)
        order = torch.randperm(len(chosen), generator=torch.Generator().manual_seed(seed))[:count]
        labels = torch.searchsorted(torch.tensor(CLASSES), data.targets[chosen[order]])
        parts += [data.inputs[chosen[order]], labels]
    return tuple(parts)


def scores(p: torch.Tensor, y: torch.Tensor) -> list[float]:
    """Accuracy, NLL and ECE."""
    return [round(float(metric(p.double(), y)), 4) for metric in (metrics.accuracy, metrics.nll, metrics.ece)]


def timed(name: str, work: Callable[[], torch.Tensor], y: torch.Tensor) -> dict[str, list[float]]:
    """The scores of one method, then its CPU seconds."""
    started = time.process_time()
    return {name: [*scores(work(), y), round(time.process_time() - started, 1)]}


def main() -> None:
    """Run one measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=("digits", "images"))
    parser.add_argument("rows", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], help="arguments of fit, such as steps=2000")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, y, test_x, test_y = {"digits": digits, "images": images}[options.data](options.rows, options.seed)
    flat, test_flat = (np.asarray(part.flatten(1), dtype=np.float64) for part in (x, test_x))
    line: dict[str, object] = {"data": options.data, "rows": options.rows, "seed": options.seed}
    for name, model in {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "random forest": RandomForestClassifier(500, random_state=0),
    }.items():
        line |= timed(name, lambda m=model: torch.tensor(m.fit(flat, y).predict_proba(test_flat)), test_y)  # type: ignore[misc]
    given = {key: json.loads(value) for key, value in (pair.split("=") for pair in options.set)}
    fitted = {}

    def train() -> torch.Tensor:
        fitted["model"] = sgpa.fit(x, y, seed=options.seed, **given)
        return fitted["model"].predict(test_x).probabilities

    line |= timed("sgpa.fit", train, test_y)
    model = fitted["model"]
    print(json.dumps(line | {"chosen": model.chosen, "held-out": dict(model.comparison.nll)}))


if __name__ == "__main__":
    main()
