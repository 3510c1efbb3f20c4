"""Predictions for new inputs, each with its uncertainty and whether to trust it."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError
from sgpa.core.files import write_text
from sgpa.core.html import html_table
from sgpa.core.judgement import JudgedClassification, JudgedRegression
from sgpa.core.types import Classification, Predictor, Regression
from sgpa.evaluation.cases import LEVELS
from sgpa.inference.answer_list import AnswerList
from sgpa.inference.given import read_given
from sgpa.inference.judged import judged
from sgpa.inference.novelty import NoveltyOf
from sgpa.inference.pixels import check_unit
from sgpa.inference.readers import Reader, Rows, read
from sgpa.inference.trust import TrustRule
from sgpa.models.config.embedding import EmbeddingConfig

if TYPE_CHECKING:
    from sgpa.core.progress import OnProgress

Answer = dict[str, Any]
UNREADABLE = "unreadable"
AT_ONCE = 500  # rows that are predicted between two reports of progress


@dataclass(frozen=True)
class Trained:
    """A trained predictor with its reader; the training data are not needed.

    `rule` says which answers to trust. `novelty` measures how unfamiliar an input is; None for runs of
    version 0.1 and where too few rows were held out. `embedding` is the model's own, which knows the unit of
    the images of training.
    """

    predictor: Predictor
    reader: Reader
    rule: TrustRule
    classes: tuple[str, ...] = ()  # empty for regression
    novelty: NoveltyOf | None = None
    embedding: EmbeddingConfig | None = None

    def __repr__(self) -> str:
        classes = f", classes={', '.join(self.classes[:10])}" if self.classes else ""
        return f"Trained({type(self.predictor).__name__}, reads {self.reader.kind}{classes})"

    def with_max_error(self, max_error: float) -> "Trained":
        """The same with another limit of trust; see `sgpa.inference.trust.choose`."""
        return replace(self, rule=self.rule.with_max_error(max_error))

    def with_samples(self, samples: int) -> "Trained":
        """The same with another number of samples; with 0 nothing is sampled. The rule stays."""
        return replace(self, predictor=self.predictor.with_samples(samples))

    @checked
    def predict_files(
        self,
        files: Sequence[str | Path] = (),
        texts: Sequence[str] = (),
        column: str | None = None,
        *,
        strict: bool = False,
    ) -> AnswerList:
        """Answers for files, folders and texts, as `sgpa predict` gives them; see `predict`."""
        paths = [Path(file) for file in files]
        return AnswerList(self.answers(read(self.reader, paths, texts, column, strict=strict)))

    @checked
    def predict(self, inputs: Any, *, column: str | None = None, strict: bool = False) -> AnswerList:
        """Answers for new inputs.

        Args:
            inputs: One input, or a sequence of them. Models of images take paths of image files and folders,
                and Pillow images; models of texts and molecules take texts and SMILES as strings, and files
                of them (.csv, .tsv, .parquet, .txt) as paths. All take tensors, arrays and lists of numbers
                as `fit` does.
            column: The column of texts or SMILES in tables; guessed by default.
            strict: Raise for an input that cannot be read. By default it gets the answer "unreadable", which
                is not trusted, with the reason; only inputs that are all unreadable are an error.

        Returns:
            One answer per input, with the fields that `answers` describes: `answer.label`, `answer.trust`.

        Example:
            >>> model = sgpa.load("runs/photos")  # doctest: +SKIP
            >>> [(answer.label, answer.trust) for answer in model.predict("holiday/")]  # doctest: +SKIP
        """
        rows = read_given(self.reader, inputs, column, strict=strict)
        if self.embedding is not None:
            check_unit(self.embedding, rows.inputs)
        return AnswerList(self.answers(rows))

    def _repr_html_(self) -> str:
        """A table for notebooks: what is predicted, by which method, which answers are trusted."""
        kind = f"{len(self.classes)} classes: {', '.join(self.classes[:10])}" if self.classes else "a number"
        trust = "unsure" if self.novelty is None else "unsure or unfamiliar"
        facts = {"predicts": kind, "reads": self.reader.kind, "does not trust": f"answers that are {trust}"}
        return html_table(("trained predictor", type(self.predictor).__name__), list(facts.items()))

    def answers(self, rows: Rows, on_progress: "OnProgress | None" = None) -> list[Answer]:
        """One answer per row.

        Classification: label, its probability, the entropy of all probabilities and the mutual information,
        the part of the entropy that is due to the model (in nats). Regression: value and standard deviation,
        the parts of the deviation that are due to the model and to the data, and the ends of the 50 % and the
        90 % interval. Both: novelty (0 to 1, the share of held-out rows that look more familiar), whether to
        trust the answer, and if not, why. Of an input that cannot be read, only the last two are known.
        `on_progress` is called where there are more than `AT_ONCE` rows.
        """
        total, readable = len(rows.inputs), list[Answer]()
        for at in range(0, max(1, total), AT_ONCE):
            part = slice(at, at + AT_ONCE)
            unknown = None if rows.unknown is None else rows.unknown[part]
            readable += self._of(judged(self.predictor, self.rule, self.novelty, rows.inputs[part], unknown))
            if on_progress is not None and total > AT_ONCE:
                on_progress("predicting", min(at + AT_ONCE, total), total, "")
        return _in_order(readable, rows)

    def _of(self, prediction: JudgedClassification | JudgedRegression) -> list[Answer]:
        """One answer per row of a prediction."""
        pairs = zip(prediction.trust.tolist(), prediction.reason, strict=True)
        added: list[Answer] = [{"trust": trust, "reason": reason} for trust, reason in pairs]
        if (novelty := prediction.novelty) is not None:
            added = [{"novelty": value} | row for value, row in zip(_list(novelty), added, strict=True)]
        answers = self._labels(prediction) if isinstance(prediction, Classification) else _values(prediction)
        return [answer | more for answer, more in zip(answers, added, strict=True)]

    def _labels(self, prediction: Classification) -> list[Answer]:
        names = self.classes or tuple(str(i) for i in range(prediction.probabilities.shape[-1]))
        columns = {
            "label": [names[i] for i in prediction.label.tolist()],
            "probability": _list(prediction.probabilities.amax(-1)),
            "entropy": _list(prediction.entropy),
            "mutual_information": _list(prediction.mutual_information),
        }
        return _rows(columns)


def _in_order(answers: list[Answer], rows: Rows) -> list[Answer]:
    """Answers with the descriptions of all rows; those that cannot be read have no value but the reason."""
    left = iter(answers)
    complete = []
    for i, metadata in enumerate(rows.metadata):
        if i not in rows.problems:
            complete.append(metadata | next(left))
            continue
        nothing: Answer = dict.fromkeys(answers[0])
        nothing |= {"label": UNREADABLE} if "label" in nothing else {}
        reason = f"{UNREADABLE}: {rows.problems[i]}"
        complete.append(metadata | nothing | {"trust": False, "reason": reason})
    return complete


def _values(prediction: Regression) -> list[Answer]:
    columns = {
        "value": _list(prediction.mean),
        "deviation": _list(prediction.variance.sqrt()),
        "model_deviation": _list(prediction.model_variance.sqrt()),
        "data_deviation": _list(prediction.data_variance.sqrt()),
    }
    for level in LEVELS:
        ends = zip(("low", "high"), prediction.interval(level), strict=True)
        columns |= {f"{end}_{round(100 * level)}": _list(values) for end, values in ends}
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
