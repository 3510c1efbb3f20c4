"""The types of a results.json, which may come from anywhere."""

from typing import Any, NotRequired, TypedDict

from sgpa.core.arguments import mismatch
from sgpa.core.errors import InputError

Number = float | None
Text = str | None


class Record(TypedDict):
    """One number."""

    dataset: NotRequired[Text]
    augmentation: NotRequired[Text]
    attention: NotRequired[Text]
    method: NotRequired[str]
    seed: NotRequired[int | str | None]
    evaluation: NotRequired[Text]
    shift: NotRequired[Text]
    metric: NotRequired[str]
    value: NotRequired[Number]


class Curve(TypedDict):
    """What a figure is drawn from; `CURVES` has the data of each kind."""

    kind: str
    method: str
    attention: NotRequired[Text]
    dataset: NotRequired[Text]
    augmentation: NotRequired[Text]
    seed: NotRequired[int | str | None]
    shift: NotRequired[Text]
    data: Any


class Reliability(TypedDict):
    """Bins of confidence."""

    edges: list[float]
    count: list[int]
    confidence: list[Number]
    accuracy: list[Number]


class Histogram(TypedDict):
    """Counts between edges."""

    edges: list[float]
    count: list[float]


class Risk(TypedDict):
    """Error rate of the most certain answers."""

    coverage: list[float]
    risk: list[Number]


class Training(TypedDict):
    """A log as columns."""

    epoch: NotRequired[list[int]]
    nll: NotRequired[list[Number]]
    kl_g: NotRequired[list[Number]]
    kl_a: NotRequired[list[Number]]
    validation: NotRequired[list[Number]]
    layers: NotRequired[dict[str, list[list[Number]]]]
    numerics: NotRequired[dict[str, int] | None]
    earlier_epochs: NotRequired[int | None]


class Example(TypedDict):
    """An input with its prediction."""

    caption: str
    image: NotRequired[Any]
    probabilities: list[float]
    entropy: float
    mutual_information: float


class Data(TypedDict):
    """What a method was trained and tested on; the fingerprint does not depend on the split."""

    fingerprint: str
    train_digest: NotRequired[str]  # of the rows themselves; missing in older results
    test_digest: NotRequired[str]
    train: int
    validation: int
    test: int
    test_rows_in_train: int
    class_rows: NotRequired[dict[str, int]]  # training rows of every class, of a user's data


CURVES: dict[str, Any] = {
    "data": Data,
    "reliability": Reliability,
    "entropy": Histogram,
    "risk-coverage": Risk,
    "training": Training,
    "examples": list[Example],
}


class Run(TypedDict):
    """Where results come from; the rest is shown as it is."""

    command: NotRequired[str | list[str] | None]
    data: NotRequired[dict[str, Any] | None]
    timings: NotRequired[list[dict[str, Any]] | None]
    seconds: NotRequired[dict[str, float] | None]


class Results(TypedDict):
    """A results.json."""

    schema: Any
    title: NotRequired[Text]
    summary: NotRequired[Text]
    records: list[Record]
    curves: NotRequired[list[Curve] | None]
    run: NotRequired[Run | None]


ALIKE = {"risk-coverage": ("coverage", "risk"), "reliability": ("count", "confidence", "accuracy")}
BETWEEN = ("reliability", "entropy")  # kinds with one more edge than counts


def _lengths(curve: Any, at: str) -> str | None:
    """What is wrong with the lengths of the columns of a curve."""
    data, names = curve["data"], ALIKE.get(curve["kind"], ())
    if len({len(data[name]) for name in names}) > 1:
        return f"{at}: {', '.join(names)} differ in length"
    if curve["kind"] in BETWEEN and len(data["edges"]) != len(data["count"]) + 1:
        return f"{at}: there must be one more of edges than of count"
    return None


def check_types(results: Any) -> None:
    """Raise unless every entry has the type that tables and figures expect."""
    wrong = mismatch(results, Results)
    for i, curve in enumerate((results.get("curves") or []) if wrong is None else []):
        at = f"curves[{i}].data"
        wrong = wrong or mismatch(curve["data"], CURVES.get(curve["kind"], Any), at)
        wrong = wrong or _lengths(curve, at)
    if wrong is not None:
        raise InputError(f"results: {wrong}; the file was damaged or made by something else")
