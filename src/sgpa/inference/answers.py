"""Answers about new inputs, each with its uncertainty and whether to trust it."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.files import write_text
from sgpa.core.types import Classification, Predictor, Regression
from sgpa.inference.readers import Reader, Rows

Answer = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """All it takes to predict for new inputs; the data it was trained on is not needed.

    Answers whose score (entropy, or variance) is above `threshold` are not to be trusted, and none is where
    the threshold is infinite: not one held-out answer was right then.
    """

    predictor: Predictor
    reader: Reader
    threshold: float
    classes: tuple[str, ...] = ()  # none for numbers

    def with_samples(self, samples: int) -> "Trained":
        """The same with another number of samples; 0 to draw nothing.

        The threshold stays the one that the run's own number of samples was given.
        """
        return replace(self, predictor=self.predictor.with_samples(samples))

    def answers(self, rows: Rows) -> list[Answer]:
        """What the model says about every row.

        A class has a label, its probability, the entropy of all probabilities and the mutual information,
        the part of it that comes from what the model has not learned (in nats). A number has a value and a
        standard deviation, of which one part is the model's and one the data's.
        """
        found = self.predictor.predict(rows.inputs)
        trust = [math.isfinite(self.threshold) and score <= self.threshold for score in _list(found.score)]
        said = self._labels(found) if isinstance(found, Classification) else _values(found)
        return [
            about | answer | {"trust": fine}
            for about, answer, fine in zip(rows.about, said, trust, strict=True)
        ]

    def _labels(self, found: Classification) -> list[Answer]:
        names = self.classes or tuple(str(i) for i in range(found.probabilities.shape[-1]))
        columns = {
            "label": [names[i] for i in found.label.tolist()],
            "probability": _list(found.probabilities.amax(-1)),
            "entropy": _list(found.entropy),
            "mutual_information": _list(found.mutual_information),
        }
        return _rows(columns)


def _values(found: Regression) -> list[Answer]:
    columns = {
        "value": _list(found.mean),
        "deviation": _list(found.variance.sqrt()),
        "model_deviation": _list(found.model_variance.sqrt()),
        "data_deviation": _list(found.data_variance.sqrt()),
    }
    return _rows(columns)


def _rows(columns: dict[str, list[Any]]) -> list[Answer]:
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _list(column: Tensor) -> list[float]:
    return [float(value) for value in column.cpu()]


def write_csv(answers: Sequence[Answer], path: Path) -> None:
    """One line per answer under a header; `trust` is yes or no."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write, such as {path / 'predictions.csv'}")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(answers[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(answer | {"trust": "yes" if answer["trust"] else "no"} for answer in answers)
    write_text(path, text.getvalue())
