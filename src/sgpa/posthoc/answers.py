"""What a model with an attached GP answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.types import Classification
from sgpa.posthoc.adapter import Adapter
from sgpa.posthoc.rows import AnswerRows
from sgpa.posthoc.scales import Scales


@dataclass(frozen=True)
class ClassAnswer(Classification):
    """Class probabilities with their uncertainty; of every row, or of every token where the model says so.

    `entropy` is that of the probabilities, `expected_entropy` the part that would be left without the GP's
    variance, and `mutual_information` the part that the variance adds.
    """

    logits: Tensor  # the model's own; of several samples the logarithm of the mean probabilities    [..., C]
    variance: Tensor  # of the logits, from the GPs                                                   [...]
    novelty: Tensor  # in [0, 1]: the share of held-out rows that look more familiar                  [...]
    token_variance: Tensor  # share of the prior variance that the GPs leave, in [0, 1]               [B, T]

    @property
    def label(self) -> Tensor:
        """Most probable class; without samples exactly the model's own."""
        return self.logits.argmax(-1)


@dataclass(frozen=True)
class ValueAnswer:
    """Predicted values with their variance, the sum of a part of the model and a part of the data."""

    mean: Tensor  # without samples exactly the model's own     [...]
    model_variance: Tensor  # from the GPs                      [...]
    data_variance: Tensor  # of targets around the model's values, from held-out rows   []
    novelty: Tensor  # in [0, 1]: the share of held-out rows that look more familiar    [...]
    token_variance: Tensor  # share of the prior variance that the GPs leave, in [0, 1] [B, T]

    @property
    def variance(self) -> Tensor:
        """Predictive variance, [...]."""
        return self.model_variance + self.data_variance

    @property
    def score(self) -> Tensor:
        """Out-of-distribution score, high for unfamiliar inputs: the predictive variance, [...]."""
        return self.variance


Answer = ClassAnswer | ValueAnswer


def one_pass(logits: Tensor, carried: Tensor, scales: Scales) -> tuple[Tensor, Tensor]:
    """Probabilities softmax(f / T(x)) [..., C], and the entropy that is left without the variance [...]."""
    probabilities = (logits / scales.temperature(carried)).softmax(-1)
    alone = (logits / scales.data.to(logits).sqrt()).softmax(-1)
    return probabilities, torch.special.entr(alone).sum(-1)


def sampled(draws: Tensor, carried: Tensor, scales: Scales) -> tuple[Tensor, Tensor]:
    """Mean probabilities [..., C] of S passes with noise, draws [S, ..., C], and the mean entropy [...].

    Variance that is not drawn divides the logits, but does not count in the mean entropy, as in one pass.
    """
    p = (draws / scales.not_drawn.temperature(carried)).softmax(-1).mean(0)
    alone = (draws / scales.data.to(draws).sqrt()).softmax(-1)
    return p, torch.special.entr(alone).sum(-1).mean(0)


def make_answer(adapter: Adapter, rows: AnswerRows, draws: Tensor | None = None) -> Answer:
    """The answer of one pass, or of several passes with noise."""
    scales = adapter.scales
    device = rows.logits.device
    novelty = adapter.on(device).novelty(rows.views).to(device, torch.float32)  # [...]
    variance = scales.variance(rows.carried)
    if not adapter.classes:
        f = rows.logits.squeeze(-1) if draws is None else draws.squeeze(-1).mean(0)
        if draws is not None:
            rest = scales.not_drawn.variance(rows.carried)
            variance = rest + draws.squeeze(-1).var(0, correction=0)
        return ValueAnswer(f, variance, scales.data.to(f), novelty, rows.tokens)
    if draws is None:
        p, expected = one_pass(rows.logits, rows.carried, scales)
        return ClassAnswer(p, expected, rows.logits, variance, novelty, rows.tokens)
    p, expected = sampled(draws, rows.carried, scales)
    return ClassAnswer(p, expected, p.clamp_min(1e-38).log(), variance, novelty, rows.tokens)
