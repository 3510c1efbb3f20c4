"""What `fit` returns: a trained predictor that says which of its answers to trust."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError
from sgpa.core.files import make_folder, write_json, write_tensors
from sgpa.core.html import html_table
from sgpa.core.judgement import JudgedClassification, JudgedRegression
from sgpa.core.types import Predictor
from sgpa.data.arrays import as_inputs
from sgpa.inference.judged import fit_trust, judged
from sgpa.inference.novelty import NoveltyOf
from sgpa.inference.pixels import check_unit
from sgpa.inference.saved import COMBINED, FILE, NOVELTY, Member, describe, read_saved
from sgpa.inference.trust import TrustRule
from sgpa.methods import Calibration, Method, Tensors, predictor_of
from sgpa.models import Transformer
from sgpa.training.compare import Comparison
from sgpa.training.left_out import LeftOut


@dataclass(frozen=True, eq=False, repr=False)
class Fitted(Predictor):
    """A trained predictor with its limits of trust.

    `predict` returns a `Classification` or a `Regression` whose `trust`, `reason` and `novelty` say which
    answers to rely on. `chosen` is the id of the method that predicts; with `method="auto"` that may be "ts",
    a point model with a temperature, and `comparison` has the held-out NLL of both. `classes` are the names
    of classes that were given as words.

    Example:
        >>> model = sgpa.fit(images, labels)  # doctest: +SKIP
        >>> answer = model.predict(new_images)  # doctest: +SKIP
        >>> answer.label[answer.trust], answer.reason, answer.novelty  # doctest: +SKIP
    """

    method: Method
    models: tuple[Transformer, ...]  # one, or the members of an ensemble
    calibrated: tuple[Tensors, ...]  # of each model
    combined: Tensors  # of an ensemble
    rule: TrustRule
    novelty: NoveltyOf | None  # None where too few rows were held out
    chosen: str
    classes: tuple[str, ...] = ()
    comparison: Comparison | None = None
    samples: int | None = None  # of a prediction; None for the method's own number

    @staticmethod
    def of(
        method: Method,
        models: Sequence[Transformer],
        data: Calibration,
        *,
        left_out: LeftOut | None = None,
        **facts: Any,
    ) -> "Fitted":
        """Calibrate trained models, and choose the limits of trust.

        Args:
            method: That the models were trained with.
            models: One for each member of the method; scales of likelihoods are refitted already.
            data: Training and held-out rows.
            left_out: Errors of the held-out rows, where these rows chose the epoch.
            facts: `chosen`, `classes`, `comparison`.
        """
        calibrated = tuple(method.calibrate(model, data) for model in models)
        members = [
            method.predictor(model, tensors) for model, tensors in zip(models, calibrated, strict=True)
        ]
        combined = method.calibrate_ensemble(members, data.validation)
        predictor = method.combine(members, combined)
        known = left_out.of if left_out is not None and len(models) == 1 else None
        rule, novelty = fit_trust(predictor, models[0], data, residuals=known)
        facts = {"chosen": method.id} | facts
        return Fitted(method, tuple(models), calibrated, combined, rule, novelty, **facts)

    def __repr__(self) -> str:
        classes = f", classes={', '.join(self.classes[:10])}" if self.classes else ""
        doubts = "".join(f", {sentence!r}" for sentence in self.doubts)
        return f"Fitted({self.chosen}, {type(self.models[0].config.embedding).__name__}{classes}{doubts})"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Sentences on limits of trust that too few held-out rows decided; none where there are enough."""
        return self.rule.doubts

    @property
    def model(self) -> Transformer:
        """The trained `Transformer`."""
        if len(self.models) > 1:
            raise InputError(f"{self.chosen} has {len(self.models)} models (allowed: .models)")
        return self.models[0]

    @cached_property
    def predictor(self) -> Predictor:
        """What predicts, without limits of trust."""
        predictor = predictor_of(self.method, self.models, self.calibrated, self.combined)
        return predictor if self.samples is None else predictor.with_samples(self.samples)

    @checked
    def predict(self, inputs: Any) -> JudgedClassification | JudgedRegression:
        """Predict labels or values, and which of them to trust.

        Args:
            inputs: New rows, as `fit` takes them: tensors, arrays, lists, `Features`, `Graphs` or `Words`.

        Returns:
            `Classification` or `Regression`, with `trust` (bool), `reason` ("unsure", "unfamiliar", both, or
            empty where trusted) and `novelty` (0 to 1: the share of held-out rows that look more familiar).

        Example:
            >>> answer = sgpa.fit(images, labels).predict(new_images)  # doctest: +SKIP
            >>> answer.label[answer.trust]  # doctest: +SKIP
        """
        x = as_inputs(inputs)
        check_unit(self.models[0].config.embedding, x)
        return judged(self.predictor, self.rule, self.novelty, x)

    @checked
    def with_samples(self, samples: int) -> "Fitted":
        """The same with another number of samples; with 0 nothing is sampled. The limits stay."""
        self.predictor.with_samples(samples)  # refuses what it does not offer
        return replace(self, samples=samples)

    @checked
    def with_max_error(self, max_error: float) -> "Fitted":
        """The same with another share of wrong answers among the trusted ones (for values, another reach of
        the 90 % interval)."""
        return replace(self, rule=self.rule.with_max_error(max_error))

    @checked
    def save_pretrained(self, directory: str | Path) -> Path:
        """Save the predictor with its limits of trust; `sgpa.load` opens it.

        Args:
            directory: A folder; every file is written whole or not at all.

        Returns:
            The directory.
        """
        folder, members = Path(directory), []
        make_folder(folder)
        for name in (FILE, NOVELTY, COMBINED):  # of another model that was saved here
            (folder / name).unlink(missing_ok=True)
        for i, (model, tensors) in enumerate(zip(self.models, self.calibrated, strict=True)):
            one = len(self.models) == 1
            target = model.save_pretrained(folder / ("model" if one else f"model-{i}"))
            file = folder / f"calibrated-{i}.safetensors" if tensors else None
            if file is not None:
                write_tensors(file, tensors)
            members.append(Member(target, file))
        if self.combined:
            write_tensors(folder / COMBINED, self.combined)
        if self.novelty is not None:
            write_tensors(folder / NOVELTY, self.novelty.tensors())
        facts = {"method": self.chosen, "attention": "own", "seed": 0, "arrays": True}
        facts |= {} if self.samples is None else {"samples": self.samples}
        write_json(
            folder / FILE, facts | describe(folder, self.method, members, self.rule, self.classes)
        )  # last: a folder that has it is complete
        return folder

    @staticmethod
    def load(directory: Path, *, device: str = "cpu") -> "Fitted":
        """What `save_pretrained` wrote."""
        saved = read_saved(directory)
        models, calibrated, combined, novelty = saved.read(device)
        return Fitted(
            saved.method,
            tuple(models),
            tuple(calibrated),
            combined,
            saved.rule,
            novelty,
            chosen=saved.metadata.get("method", saved.method.id),
            classes=saved.classes,
            samples=saved.metadata.get("samples"),
        )

    def _repr_html_(self) -> str:
        """A table for notebooks: what predicts, and which answers are trusted."""
        trust = "unsure" if self.novelty is None else "unsure or unfamiliar"
        compared = {} if self.comparison is None else {"compared": str(self.comparison)}
        facts = {"predicts": ", ".join(self.classes[:10]) or self.models[0].config.likelihood} | compared
        facts |= {"does not trust": f"answers that are {trust}"}
        facts |= {"doubt": " ".join(self.doubts)} if self.doubts else {}
        return html_table(("fitted", self.chosen), list(facts.items()))
