"""Predictions for new inputs, each with its uncertainty and whether to trust it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.files import write_text
from sgpa.core.precision import require_finite
from sgpa.core.types import Classification, Predictor, Regression
from sgpa.inference.novelty import NoveltyOf
from sgpa.inference.readers import Reader, Rows
from sgpa.inference.trust import TrustRule

Answer = dict[str, Any]


@dataclass(frozen=True)
class Trained:
    """A trained predictor with its reader; the training data are not needed.

    `rule` says which answers to trust. `novelty` measures how unfamiliar an input is; None for runs of
    version 0.1 and where too few rows were held out.
    """

    predictor: Predictor
    reader: Reader
    rule: TrustRule
    classes: tuple[str, ...] = ()  # empty for regression
    novelty: NoveltyOf | None = None

    def with_samples(self, samples: int) -> "Trained":
        """The same with another number of samples; with 0 nothing is sampled. The rule stays."""
        return replace(self, predictor=self.predictor.with_samples(samples))

    def answers(self, rows: Rows) -> list[Answer]:
        """One answer per row.

        Classification: label, its probability, the entropy of all probabilities and the mutual information,
        the part of the entropy that is due to the model (in nats). Regression: value and standard deviation,
        and the parts of the deviation that are due to the model and to the data. Both: novelty (0 to 1, the
        share of held-out rows that look more familiar), whether to trust the answer, and if not, why.
        """
        prediction = self.predictor.predict(rows.inputs)
        require_finite(lambda: "the model's answers are not finite; it was damaged", prediction.score)
        novelty = None if self.novelty is None else self.novelty(rows.inputs)
        reasons = self.rule.reasons(prediction.score, novelty)
        added = [{"trust": not reason, "reason": reason} for reason in reasons]
        if novelty is not None:
            added = [{"novelty": value} | row for value, row in zip(_list(novelty), added, strict=True)]
        answers = self._labels(prediction) if isinstance(prediction, Classification) else _values(prediction)
        return [about | answer | more for about, answer, more in zip(rows.about, answers, added, strict=True)]

    def _labels(self, prediction: Classification) -> list[Answer]:
        names = self.classes or tuple(str(i) for i in range(prediction.probabilities.shape[-1]))
        columns = {
            "label": [names[i] for i in prediction.label.tolist()],
            "probability": _list(prediction.probabilities.amax(-1)),
            "entropy": _list(prediction.entropy),
            "mutual_information": _list(prediction.mutual_information),
        }
        return _rows(columns)


def _values(prediction: Regression) -> list[Answer]:
    columns = {
        "value": _list(prediction.mean),
        "deviation": _list(prediction.variance.sqrt()),
        "model_deviation": _list(prediction.model_variance.sqrt()),
        "data_deviation": _list(prediction.data_variance.sqrt()),
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
