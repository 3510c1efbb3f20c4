"""Invented results of a benchmark of nine methods, two attentions and four tasks, for tests of the report.

The numbers are random and say nothing about any method.
"""

import zlib
from typing import Any

import numpy as np

from sgpa.evaluation import metrics

# over-confidence (1 = that of MLE, 0 = none) and extra accuracy of each method
LEVELS = {
    "mle": (1.0, 0.0),
    "ts": (0.6, 0.0),
    "mfvi": (0.3, -0.05),
    "mcd": (0.45, 0.01),
    "kflla": (0.4, -0.005),
    "sngp": (0.42, 0.005),
    "sgpa": (0.25, 0.0),
    "de": (0.3, 0.04),
    "sgpae": (0.15, 0.035),
}
ATTENTIONS = ("sdp", "kernel")
SEEDS = (0, 1, 2, 3, 4)
TYPES = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
OOD = {"cifar100": 0.74, "svhn": 0.78, "mini_imagenet": 0.75}
LAYERED = ("mle", "sgpa")


class Made:
    """Records and curves of one cell: a data set, an attention, a method and a seed."""

    def __init__(self, dataset: str, attention: str, method: str, seed: int, augmentation: str = "") -> None:
        self.who = {
            "dataset": dataset,
            "augmentation": augmentation,
            "attention": attention,
            "method": method,
            "seed": seed,
        }
        self.sharp, self.extra = LEVELS.get(method, (0.5, 0.0))
        self.extra -= 0.03 * (attention == "sdp")
        self.own = np.random.default_rng(hash_of(dataset, augmentation, attention, method, seed))
        self.shared = np.random.default_rng(hash_of(dataset, augmentation, seed)).normal()  # all methods
        self.records: list[dict[str, Any]] = []
        self.curves: list[dict[str, Any]] = []

    def noise(self, scale: float) -> float:
        return float(scale * (self.shared + 0.4 * self.own.normal()))

    def add(self, evaluation: str, shift: str, values: dict[str, float]) -> None:
        about = self.who | {"evaluation": evaluation, "shift": shift}
        self.records += [about | {"metric": name, "value": float(value)} for name, value in values.items()]

    def add_curve(self, kind: str, shift: str, data: Any) -> None:
        self.curves.append(self.who | {"kind": kind, "shift": shift, "data": data})

    def classified(self, evaluation: str, shift: str, level: float, classes: int, *, curves: bool) -> None:
        """Metrics around an accuracy `level`, and curves of random answers with about that accuracy."""
        right = float(np.clip(level + self.extra + self.noise(0.004), 0.05, 0.99))
        wrong = 1 - right
        values = {
            "accuracy": right,
            "nll": wrong * (2 + 5 * self.sharp) * 0.8 + self.noise(0.01),
            "ece": 0.02 + 0.9 * wrong * self.sharp + abs(self.noise(0.003)),
            "mce": 0.06 + 1.1 * wrong * self.sharp + abs(self.noise(0.008)),
            "mce_20": 0.05 + 1.0 * wrong * self.sharp,
            "brier": 1.3 * wrong * (1 + 0.4 * self.sharp),
            "aurc": 0.4 * wrong * (1 - 0.2 * self.sharp),
        }
        if classes == 2:
            values["mcc"] = 100 * (2 * right - 1) * 0.8
        self.add(evaluation, shift, values)
        if curves:
            n = 500
            confidence = np.clip(1 - self.own.exponential(wrong * (1.25 - self.sharp), n), 1 / classes, 1.0)
            p = np.repeat(((1 - confidence) / (classes - 1))[:, None], classes, 1)
            p[:, 0] = confidence
            hit = self.own.random(n) < np.clip(confidence - wrong * self.sharp, 0, 1)
            y = np.where(hit, 0, self.own.integers(1, classes, n))
            self.add_curve("reliability", shift, metrics.reliability(p, y).as_dict())
            curve = metrics.risk_coverage(1 - confidence, y != 0)
            kept = slice(0, None, 5)
            self.add_curve(
                "risk-coverage",
                shift,
                {"coverage": curve.coverage[kept].tolist(), "risk": curve.risk[kept].tolist()},
            )

    def detected(self, shift: str, level: float) -> None:
        score = level + 0.06 * (1 - self.sharp) + self.extra + self.noise(0.005)
        values = {"auroc": score, "aupr": score + 0.05, "fpr_at_95_tpr": 1.2 - score, "ood_share": 0.5}
        if shift in ("svhn", "mini_imagenet"):
            values["aupr_paper_share"] = min(score + 0.15, 0.99)
        self.add("ood-detection", shift, values)

    def spread_out(self, classes: int, centres: dict[str, float]) -> None:
        edges = np.linspace(0, np.log(classes) + 1e-6, 25)
        for shift, centre in centres.items():
            drawn = np.abs(self.own.normal(centre * (1.4 - self.sharp) * np.log(classes), 0.35, 600))
            count, _ = np.histogram(np.minimum(drawn, np.log(classes)), edges)
            self.add_curve("entropy", shift, {"edges": edges.tolist(), "count": count.tolist()})

    def trained(self, epochs: int) -> None:
        epoch = np.arange(1, epochs + 1)
        fall = np.exp(-epoch / (epochs / 5))
        logged = epoch % 10 == 0
        history: dict[str, Any] = {
            "epoch": epoch.tolist(),
            "nll": (0.1 + 0.3 * (1 - self.sharp) + 2 * fall + 0.01 * self.own.random(epochs)).tolist(),
            "validation": [
                float(0.6 + self.sharp + 1.5 * f) if at else None for f, at in zip(fall, logged, strict=True)
            ],
            "kl_g": [0.0] * epochs,
            "kl_a": [0.0] * epochs,
        }
        depth = np.arange(1, 6)
        layers = fall[:, None] * 60 / depth + 4 / depth
        if self.who["method"] == "sgpa":
            history |= {"kl_g": layers.sum(1).tolist(), "kl_a": (layers.sum(1) / 3).tolist()}
        if self.who["method"] in LAYERED:
            per_layer = {"variance": 1 + 0.2 * depth - fall[:, None], "off_diagonal": 0.5 - 0.4 * layers / 64}
            if self.who["method"] == "sgpa":
                per_layer |= {"kl_g": layers, "kl_a": layers / 3, "snr": 1 + 6 * (1 - fall[:, None]) / depth}
            history["layers"] = {
                name: [row.tolist() if at else [None] * 5 for row, at in zip(values, logged, strict=True)]
                for name, values in per_layer.items()
            }
        self.add_curve("training", "", history)


def hash_of(*parts: object) -> int:
    """A number that is the same in every process, unlike `hash`."""
    return zlib.crc32(repr(parts).encode())


def cell(dataset: str, attention: str, method: str, seed: int, augmentation: str = "") -> dict[str, Any]:
    """The results of one cell, in the form of a results.json."""
    made = Made(dataset, attention, method, seed, augmentation)
    if dataset == "cifar10":
        made.classified("in-distribution", "", 0.78, 10, curves=True)
        for strength in range(1, 6):
            for place, name in enumerate(TYPES):
                level = 0.78 - 0.07 * strength + 0.02 * (place % 5)
                shift = f"cifar10-c-regenerated/{name}:{strength}"
                made.classified("robustness", shift, level, 10, curves=False)
            shift = f"cifar10-c-regenerated:{strength}"
            made.classified("robustness", shift, 0.8 - 0.06 * strength, 10, curves=strength == 5)
        for shift, level in OOD.items():
            made.detected(shift, level)
        made.spread_out(10, {"": 0.25, "cifar100": 0.55, "svhn": 0.7, "mini_imagenet": 0.5})
        made.trained(60)
    elif dataset in ("imdb", "cola"):
        made.classified("in-distribution", "", 0.88 if dataset == "imdb" else 0.72, 2, curves=True)
        if dataset == "cola":
            made.classified("robustness", "cola-ood", 0.66, 2, curves=True)
        made.trained(20)
    else:  # regression
        error = 0.45 + 0.15 * made.sharp + made.noise(0.01)
        values = {"mae": error, "rmse": 1.9 * error, "nll": 0.7 + 0.8 * error + made.noise(0.01)}
        made.add("in-distribution", "", values)
        if method != "mle":
            made.add("ood-detection", "zinc-ood", {"auroc": 0.6 - 0.1 * made.sharp, "aupr": 0.65})
        made.trained(60)
    cost = {"mle": 1.0, "sgpa": 2.4, "mfvi": 1.7, "de": 5.0, "sgpae": 12.0}.get(method, 1.2)
    timing = {"attention": attention, "method": method, "seed": seed}
    timing |= {"train_seconds": 800 * cost * (1 + 0.02 * made.own.random()), "seconds_per_step": 0.012 * cost}
    timing |= {"predict_seconds_per_row": 2e-5 * cost, "peak_memory_bytes": 7e8 * cost}
    return {
        "schema": 1,
        "title": "Benchmark of nine methods",
        "summary": "The numbers are random and say nothing about any method.",
        "records": made.records,
        "curves": made.curves,
        "run": {
            "command": "sgpa benchmark --out runs/benchmark",
            "recipe": {"task": dataset},
            "versions": {"python": "3.11", "torch": "2.6"},
            "hardware": "1 GPU",
            "commit": "0123abc",
            "date": "2024-01-01",
            "data": {dataset: {"train": f"sha256:{dataset}-train", "test": f"sha256:{dataset}-test"}},
            "timings": [timing],
        },
    }


def cells(
    datasets: tuple[str, ...] = ("cifar10", "imdb", "cola", "zinc"),
    methods: tuple[str, ...] = tuple(LEVELS),
    seeds: tuple[int, ...] = SEEDS,
    attentions: tuple[str, ...] = ATTENTIONS,
) -> list[dict[str, Any]]:
    """One results dict per cell; ensembles have one seed."""
    return [
        cell(dataset, attention, method, seed)
        for dataset in datasets
        for attention in attentions
        for method in methods
        for seed in (seeds[:1] if method in ("de", "sgpae") else seeds)
    ]
