"""Predictions that say which of their answers to trust, and the reason for the others."""

from dataclasses import dataclass, field, fields
from typing import Any

from torch import Tensor

from sgpa.core.types import Classification, Prediction, Regression


@dataclass(frozen=True)
class TrustJudgement:
    """Which answers to trust, and the reason for every one that is not."""

    trust: Tensor  # bool                                                        [B]
    reason: tuple[str, ...]  # "unsure", "unfamiliar" or both; empty where trusted  [B]
    novelty: Tensor | None = None  # in [0, 1]; None where it was not measured      [B]


class Judged:
    """What predictions of `sgpa.fit` and of saved runs add to those of a model alone."""

    judgement: TrustJudgement

    @property
    def trust(self) -> Tensor:
        """Which answers to trust, bool [B]."""
        return self.judgement.trust

    @property
    def reason(self) -> tuple[str, ...]:
        """Why an answer is not trusted: "unsure", "unfamiliar" or both; empty where it is, [B]."""
        return self.judgement.reason

    @property
    def novelty(self) -> Tensor | None:
        """The share of held-out rows that look more familiar, [B]; None where it was not measured."""
        return self.judgement.novelty

    def trust_columns(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Headers and cells of a table for notebooks."""
        words = [f"no ({reason})" if reason else "yes" for reason in self.reason]
        if self.novelty is None:
            return ("trust",), [(word,) for word in words]
        shares = self.novelty.tolist()
        return ("novelty", "trust"), [(f"{n:.2f}", word) for n, word in zip(shares, words, strict=True)]


@dataclass(frozen=True)
class JudgedClassification(Judged, Classification):
    """Class probabilities, with which answers to trust: `trust`, `reason`, `novelty`."""

    judgement: TrustJudgement = field(kw_only=True)


@dataclass(frozen=True)
class JudgedRegression(Judged, Regression):
    """Values, with which answers to trust: `trust`, `reason`, `novelty`."""

    judgement: TrustJudgement = field(kw_only=True)


def with_judgement(
    prediction: Prediction, judgement: TrustJudgement
) -> JudgedClassification | JudgedRegression:
    """The prediction with a judgement.

    >>> import torch
    >>> sure = Classification(torch.tensor([[0.9, 0.1]]), torch.tensor([0.3]))
    >>> with_judgement(sure, TrustJudgement(torch.tensor([True]), ("",))).trust
    tensor([True])
    """
    given: dict[str, Any] = {f.name: getattr(prediction, f.name) for f in fields(prediction) if f.init}
    if isinstance(prediction, Classification):
        return JudgedClassification(**given, judgement=judgement)
    return JudgedRegression(**given, judgement=judgement)
