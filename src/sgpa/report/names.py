"""Names of metrics, tasks and shifts in tables and figures, and the better direction of each metric."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sgpa.core.names import METHOD_NAMES

Key = tuple[str, str]  # attention, method: one row of a table and one line of a figure
Task = tuple[str, str]  # data set, augmentation; no augmentation is the empty text

CLEAN, ROBUSTNESS, DETECTION = "in-distribution", "robustness", "ood-detection"  # evaluations
TRUST = "trust"  # another one: which answers are trusted

BASELINES = {  # simple models beside that of a user's run; a variant names their features
    "majority": "Majority class",
    "logistic": "Logistic regression",
    "mean": "Mean",
    "ridge": "Ridge regression",
}
ATTENTION = {"sdp": "dot-product", "kernel": "kernel"}
ENOUGH_TO_SPLIT = 3  # rows of each attention from which figures separate the two kinds

TASKS = {
    "digits": "Handwritten digits",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imdb": "IMDB",
    "cola": "CoLA",
    "zinc": "ZINC",
}
AUGMENTATIONS = {"three-augment": "3-Augment"}


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

    def text(self, value: float, error: float | None = None) -> str:
        """The value as printed, in this metric's unit, with its error where there is one."""
        after = "" if error is None else f"\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}{self.text(error)}"
        return f"{value * self.scale:.{self.digits}f}{after}"

    def spoken(self, value: float, error: float | None = None) -> str:
        """The value, with its error where there is one, as it reads inside a sentence."""
        return self.text(value, error) + ("\N{NO-BREAK SPACE}%" if self.unit == "%" else "")


METRICS = {
    "accuracy": Metric("Accuracy", "%", True, 2, 100.0),
    "mcc": Metric("MCC × 100", "", True, 2),
    "mae": Metric("MAE", "", False),
    "rmse": Metric("RMSE", "", False),
    "nll": Metric("NLL", "nats", False),
    "coverage_50": Metric("Inside the 50 % interval", "%", None, 1, 100.0),
    "coverage_90": Metric("Inside the 90 % interval", "%", None, 1, 100.0),
    "ece": Metric("ECE", "", False),
    "mce": Metric("MCE", "", False),
    "mce_20": Metric("MCE, bins ≥ 20", "", False),
    "mce_all_classes": Metric("All-class MCE", "", False),
    "brier": Metric("Brier score", "", False),
    "aurc": Metric("AURC", "", False),
    "error_auroc": Metric("Error AUROC", "", True),
    "error_fpr_at_95_tpr": Metric("Error FPR at 95 % TPR", "", False),
    "auroc": Metric("AUROC", "", True),
    "aupr": Metric("AUPR", "", True),
    "aupr_paper_share": Metric("AUPR at the paper's share", "", True),
    "fpr_at_95_tpr": Metric("FPR at 95 % TPR", "", False),
    "ood_share": Metric("Share of OOD inputs", "%", None, 1, 100.0),
    "trusted_right": Metric("Right answers trusted", "%", True, 1, 100.0),
    "trusted_wrong": Metric("Wrong answers trusted", "%", False, 1, 100.0),
    "trusted_error": Metric("Wrong among trusted", "%", False, 1, 100.0),
    "trusted_ood": Metric("Trusted", "%", False, 1, 100.0),
    "novelty_auroc": Metric("AUROC of novelty", "", True),
    "rank": Metric("Average rank", "", False, 2),
    "train_seconds": Metric("Training", "s", False, 1),
    "seconds_per_step": Metric("Training step", "ms", False, 1, 1e3),
    "predict_seconds_per_row": Metric("Prediction per input", "ms", False, 3, 1e3),
    "relative_time": Metric("Time", "× one pass", None, 2),
    "relative_memory": Metric("Peak memory", "× one pass", None, 2),
    "stored_bytes": Metric("Stored", "KiB", None, 1, 2.0**-10),
    "fit_seconds": Metric("Fit", "s", None, 1),
    "overconfidence": Metric("Confidence − accuracy", "%", None, 1, 100.0),
    "peak_memory_bytes": Metric("Peak memory", "MiB", False, 0, 2.0**-20),
}


def metric(identifier: str) -> Metric:
    """The metric of that id; an unknown one keeps its id as name and has no better direction."""
    return METRICS.get(identifier, Metric(identifier.replace("_", " ")))


def metric_order(identifiers: Iterable[str]) -> list[str]:
    """Distinct metric ids in the order they are shown; unknown ones last."""
    known = list(METRICS)
    return sorted(
        dict.fromkeys(identifiers), key=lambda name: known.index(name) if name in METRICS else len(known)
    )


def base(method: str) -> str:
    """The method without its variant: 'sgpa:standard' -> 'sgpa'."""
    return method.partition(":")[0]


def method_name(method: str) -> str:
    """The name in tables; an unknown method keeps its id.

    >>> method_name("sgpa"), method_name("sgpa:standard")
    ('SGPA', 'SGPA (standard)')
    """
    variant = method.partition(":")[2]
    return _title(base(method)) + (f" ({variant})" if variant else "")


def _title(method: str) -> str:
    return METHOD_NAMES[method].title if method in METHOD_NAMES else BASELINES.get(method, method)


def is_baseline(method: str) -> bool:
    """Whether it is one of the simple baselines."""
    return base(method) in BASELINES


def is_ensemble(method: str) -> bool:
    """Whether it trains several models, at several times the cost."""
    return base(method) in METHOD_NAMES and METHOD_NAMES[base(method)].ensemble


def key_order(keys: Iterable[Key]) -> list[Key]:
    """Distinct (attention, method) pairs: dot-product first, methods in the order of `METHOD_NAMES`."""
    methods, attentions = list(METHOD_NAMES), list(ATTENTION)

    def rank(key: Key) -> tuple[int, int]:
        attention, method = key
        return (
            attentions.index(attention) if attention in ATTENTION else len(attentions),
            methods.index(base(method)) if base(method) in METHOD_NAMES else len(methods),
        )

    return sorted(dict.fromkeys(keys), key=rank)


def labels(keys: Iterable[Key]) -> dict[Key, str]:
    """A short name per row; the attention is named only for methods that come with several.

    >>> labels([("sdp", "mle"), ("kernel", "mle"), ("kernel", "sgpa")])
    {('sdp', 'mle'): 'MLE (dot-product)', ('kernel', 'mle'): 'MLE (kernel)', ('kernel', 'sgpa'): 'SGPA'}
    """
    keys = list(keys)
    count = Counter(method for _, method in dict.fromkeys(keys))
    return {
        (attention, method): method_name(method)
        + (f" ({ATTENTION.get(attention, attention)})" if count[method] > 1 and attention else "")
        for attention, method in keys
    }


def by_attention(keys: Iterable[Key]) -> dict[str, list[Key]]:
    """Rows by attention if every kind has enough rows to be shown separately, otherwise all under "".

    >>> by_attention([("kernel", "mle"), ("kernel", "sgpa"), ("sdp", "mle")])
    {'': [('sdp', 'mle'), ('kernel', 'mle'), ('kernel', 'sgpa')]}
    """
    rows = key_order(keys)
    kinds: dict[str, list[Key]] = {}
    for key in rows:
        kinds.setdefault(key[0], []).append(key)
    apart = len(kinds) > 1 and min(map(len, kinds.values())) >= ENOUGH_TO_SPLIT
    return kinds if apart else {"": rows}


def attention_name(attention: str) -> str:
    """An attention in words, for titles."""
    return f"{ATTENTION.get(attention, attention)} attention" if attention else ""


def task_of(dataset: str, augmentation: str | None) -> Task:
    """The task of a record: no augmentation may be written as nothing or as 'none'."""
    return dataset, "" if augmentation in (None, "none") else str(augmentation)


def task_name(task: Task) -> str:
    """A task in words: ('cifar10', 'three-augment') -> 'CIFAR-10, 3-Augment'."""
    dataset, augmentation = task
    words = (TASKS.get(dataset, dataset), AUGMENTATIONS.get(augmentation, augmentation))
    return ", ".join(filter(None, words))


def split_shift(shift: str) -> tuple[str, int | None]:
    """Family and strength of a shift: 'digits-noise:3' -> ('digits-noise', 3); 'photo-patches' has None."""
    family, _, strength = shift.rpartition(":")
    return (family, int(strength)) if family and strength.isdigit() else (shift, None)


def corruption_type(shift: str) -> str:
    """The single type a shift is about: 'cifar10-c/fog:3' -> 'fog'; empty for a mean over types."""
    return split_shift(shift)[0].partition("/")[2].replace("_", " ")


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
    "cola-ood": "CoLA out of domain",
    "zinc-ood": "ZINC complement graphs",
}


def shift_name(shift: str) -> str:
    """A shift in words: 'digits-noise:3' -> 'digits noise, strength 3', 'svhn' -> 'SVHN'."""
    family, strength = split_shift(shift)
    whole, _, kind = family.partition("/")
    words = SHIFTS.get(whole) or whole.replace("-", " ").replace("_", " ")
    words += f", {kind.replace('_', ' ')}" if kind else ""
    return words if strength is None else f"{words}, strength {strength}"


def listed(words: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def sentence_case(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]
