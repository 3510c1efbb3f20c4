"""What methods, metrics and shifts are called on paper, and which direction of a metric is better."""

from collections.abc import Iterable
from dataclasses import dataclass

Key = tuple[str, str]  # attention, method: what one row of a table and one line of a figure stand for

METHODS = {
    "mle": "MLE",
    "ts": "Temperature scaling",
    "mfvi": "MFVI",
    "mcd": "MC dropout",
    "kflla": "KFAC Laplace",
    "sngp": "SNGP",
    "sgpa": "SGPA",
    "de": "Deep ensemble",
    "sgpae": "SGPA ensemble",
}

ATTENTION = {"sdp": "dot-product", "kernel": "kernel"}


@dataclass(frozen=True)
class Metric:
    """How a metric is written: `digits` after the point once multiplied by `scale`."""

    name: str
    unit: str = ""
    higher_is_better: bool | None = None
    digits: int = 3
    scale: float = 1.0

    @property
    def arrow(self) -> str:
        """The direction that is better, empty when there is none."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    @property
    def heading(self) -> str:
        """Name, unit and arrow, for example 'Accuracy (%) ↑'."""
        return " ".join(filter(None, (self.name, f"({self.unit})" if self.unit else "", self.arrow)))

    @property
    def axis(self) -> str:
        """Name and unit, as an axis label."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def text(self, value: float) -> str:
        """The value as printed, in this metric's unit."""
        return f"{value * self.scale:.{self.digits}f}"

    def spoken(self, value: float) -> str:
        """The value as it reads inside a sentence."""
        return self.text(value) + ("\N{NO-BREAK SPACE}%" if self.unit == "%" else "")


METRICS = {
    "accuracy": Metric("Accuracy", "%", True, 2, 100.0),
    "mcc": Metric("Matthews correlation × 100", "", True, 2),
    "mae": Metric("Mean absolute error", "", False),
    "rmse": Metric("Root mean squared error", "", False),
    "nll": Metric("NLL", "nats", False),
    "ece": Metric("ECE", "", False),
    "mce": Metric("MCE", "", False),
    "adaptive_ece": Metric("Adaptive ECE", "", False),
    "ece_all_classes": Metric("All-class ECE", "", False),
    "brier": Metric("Brier score", "", False),
    "aurc": Metric("AURC", "", False),
    "auroc": Metric("AUROC", "", True),
    "aupr": Metric("AUPR", "", True),
    "aupr_paper_share": Metric("AUPR at the paper's share", "", True),
    "fpr_at_95_tpr": Metric("FPR at 95 % TPR", "", False),
    "ood_share": Metric("Share of unfamiliar inputs", "%", None, 1, 100.0),
}


def metric(identifier: str) -> Metric:
    """The metric of that id; an unknown one keeps its id as name and has no better direction."""
    return METRICS.get(identifier, Metric(identifier.replace("_", " ")))


def metric_order(identifiers: Iterable[str]) -> list[str]:
    """Distinct metric ids in the order they are shown; unknown ones last, as they came."""
    known = list(METRICS)
    return sorted(
        dict.fromkeys(identifiers), key=lambda name: known.index(name) if name in METRICS else len(known)
    )


def key_order(keys: Iterable[Key]) -> list[Key]:
    """Distinct (attention, method) pairs: dot-product attention first, methods in the order of `METHODS`."""
    methods, attentions = list(METHODS), list(ATTENTION)

    def rank(key: Key) -> tuple[int, int]:
        attention, method = key
        return (
            attentions.index(attention) if attention in ATTENTION else len(attentions),
            methods.index(method) if method in METHODS else len(methods),
        )

    return sorted(dict.fromkeys(keys), key=rank)


def labels(keys: Iterable[Key]) -> dict[Key, str]:
    """A short name per row; the attention is named only where a run compares several."""
    keys = list(keys)
    several = len({attention for attention, _ in keys}) > 1
    return {
        (attention, method): METHODS.get(method, method)
        + (f" ({ATTENTION.get(attention, attention)})" if several and attention else "")
        for attention, method in keys
    }


def split_shift(shift: str) -> tuple[str, int | None]:
    """Family and strength of a shift: 'digits-noise:3' -> ('digits-noise', 3); 'photo-patches' has None."""
    family, _, strength = shift.rpartition(":")
    return (family, int(strength)) if family and strength.isdigit() else (shift, None)


SHIFTS = {
    "": "clean test set",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "cifar10-c": "CIFAR-10-C",
    "cifar100-c": "CIFAR-100-C",
    "cifar10-c-regenerated": "CIFAR-10-C (regenerated)",
    "cifar100-c-regenerated": "CIFAR-100-C (regenerated)",
    "svhn": "SVHN",
    "miniimagenet": "mini-ImageNet",
    "mini_imagenet": "mini-ImageNet",
    "cola-ood": "CoLA, out of domain",
    "zinc-ood": "ZINC, complement graphs",
}


def shift_name(shift: str) -> str:
    """A shift in words: 'digits-noise:3' -> 'digits noise, strength 3', 'svhn' -> 'SVHN'."""
    family, strength = split_shift(shift)
    whole, _, kind = family.partition("/")
    words = SHIFTS.get(whole) or whole.replace("-", " ").replace("_", " ")
    words += f", {kind.replace('_', ' ')}" if kind else ""
    return words if strength is None else f"{words}, strength {strength}"


def sentence_case(text: str) -> str:
    """The text with its first letter raised, the rest untouched."""
    return text[:1].upper() + text[1:]
