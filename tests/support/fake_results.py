"""Invented results of a run, for tests of the report."""

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from sgpa.evaluation import metrics

METHODS = ("mle", "sgpa")
SEEDS = (0, 1, 2)


def record(method: str, metric: str, value: float | None, seed: int = 0, **other: str) -> dict[str, Any]:
    base = {"dataset": "digits", "augmentation": "", "evaluation": "in-distribution", "shift": ""}
    return {
        **base,
        "attention": "kernel",
        "method": method,
        "metric": metric,
        "value": value,
        "seed": seed,
        **other,
    }


def synthetic(methods: tuple[str, ...] = METHODS, seeds: tuple[int, ...] = SEEDS) -> dict[str, Any]:
    """A results.json with random numbers, which say nothing about any method."""
    rng = np.random.default_rng(0)
    records: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    digits = load_digits().images[[3, 14, 25, 36]] / 16
    for rank, method in enumerate(methods):
        better = 1 - 0.6 * rank / max(len(methods) - 1, 1)
        for seed in seeds:
            who = {"dataset": "digits", "attention": "kernel", "method": method, "seed": seed}

            def spread() -> float:
                return float(1 + 0.04 * rng.normal())

            def measure(strength: int, slope: float, better: float = better) -> dict[str, float]:
                decay = strength * slope
                return {
                    "accuracy": 0.97 - 0.09 * decay + 0.002 * rng.normal(),
                    "nll": (0.11 + 0.32 * decay * better) * spread(),
                    "ece": (0.02 + 0.05 * decay * better) * spread(),
                    "mce": (0.2 + 0.04 * decay * better) * spread(),
                    "mce_20": (0.1 + 0.04 * decay * better) * spread(),
                    "error_auroc": (0.9 - 0.02 * decay * better) * spread(),
                    "brier": (0.05 + 0.12 * decay * better) * spread(),
                }

            for name, value in measure(0, 1.0).items():
                records.append(record(method, name, value, seed))
            for family, slope in (("digits-noise", 1.0), ("digits-rotation", 0.6)):
                for strength in range(1, 6):
                    where = {"evaluation": "robustness", "shift": f"{family}:{strength}"}
                    for name, value in measure(strength, slope).items():
                        if name in ("accuracy", "nll", "ece", "brier"):
                            records.append(record(method, name, value, seed, **where))
            where = {"evaluation": "ood-detection", "shift": "photo-patches"}
            records.append(record(method, "auroc", 0.97 - 0.12 * better * spread(), seed, **where))
            records.append(record(method, "aupr", 0.95 - 0.15 * better * spread(), seed, **where))
            for shift, sharp in (("", 4.0), ("digits-noise:5", 2.0)):
                logits = sharp * rng.normal(size=(400, 10)) * (1 + better)
                p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
                y = np.where(rng.random(400) < 0.2 + 0.7 * p.max(1), p.argmax(1), rng.integers(10, size=400))
                data = metrics.reliability(p, y).as_dict()
                curves.append({"kind": "reliability", "shift": shift, **who, "data": data})
                curve = metrics.risk_coverage(1 - p.max(1), p.argmax(1) != y)
                data = {"coverage": curve.coverage[::4].tolist(), "risk": curve.risk[::4].tolist()}
                curves.append({"kind": "risk-coverage", "shift": shift, **who, "data": data})
            edges = np.linspace(0, np.log(10), 24)
            for shift, centre in (("", 0.3), ("photo-patches", 1.9 - 0.8 * better)):
                count, _ = np.histogram(np.abs(rng.normal(centre, 0.45, 800)), edges)
                data = {"edges": edges.tolist(), "count": count.tolist()}
                curves.append({"kind": "entropy", "shift": shift, **who, "data": data})
            epoch = np.arange(1, 41)
            fall = np.exp(-epoch / 9)
            history: dict[str, Any] = {
                "epoch": epoch.tolist(),
                "nll": (2.2 * fall + 0.06 * better + 0.01 * rng.random(40)).tolist(),
                "validation": (0.2 + 2 * fall + 0.02 * rng.random(40)).tolist(),
            }
            if method == "sgpa":
                depth = np.arange(1, 4)
                layers = fall[:, None] * 60 / depth + 4 / depth
                history |= {"kl_g": layers.sum(1).tolist(), "kl_a": [None, *(layers[1:].sum(1) / 3).tolist()]}
                history["layers"] = {
                    "kl_g": layers.tolist(),
                    "kl_a": (layers / 3).tolist(),
                    "variance": (1 + 0.2 * depth - fall[:, None]).tolist(),
                    "snr": (1 + 6 * (1 - fall[:, None]) / depth).tolist(),
                    "off_diagonal": (0.1 + 0.5 * (1 - fall[:, None]) / depth).tolist(),
                }
            curves.append({"kind": "training", **who, "data": history})
        shown = []
        for i, image in enumerate(digits):
            p = np.full(10, 0.01 + 0.02 * i * (1 - better))
            p[i] = 0
            p[i] = 1 - p.sum()
            entropy = float(-(p * np.log(np.maximum(p, 1e-9))).sum())
            caption = f"digit, noise {i}"
            facts = {"entropy": entropy, "mutual_information": entropy / 3}
            shown.append({"caption": caption, "image": image.tolist(), "probabilities": p.tolist(), **facts})
        who = {"dataset": "digits", "attention": "kernel", "method": method, "seed": 0}
        curves.append({"kind": "examples", **who, "data": shown})
    return {
        "schema": 1,
        "title": "Handwritten digits",
        "summary": "Two small Transformers on the same digits. The numbers on this page are made up.",
        "records": records,
        "curves": curves,
        "run": {
            "command": "sgpa demo --seeds 3",
            "recipe": {"task": "digits", "model": {"layers": 3, "width": 64}, "epochs": 40},
            "versions": {"python": "3.11", "torch": "2.6"},
            "hardware": "2 cores",
            "commit": "0123abc",
            "date": "2024-01-01",
            "seconds": {"mle": 41.2, "sgpa": 130.0},
        },
    }
