"""Mean-field variational inference over the weights: every linear map has a distribution."""

from dataclasses import dataclass, field, replace

import torch

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.inputs import Batch
from sgpa.core.types import Loss
from sgpa.gp.objective import WEIGHTS, KlWeights, Progress, Weight, is_weight, negative_elbo
from sgpa.methods.base import Method
from sgpa.models import DotProductConfig, KernelAttentionConfig, MeanFieldConfig, ModelConfig, Transformer
from sgpa.models.bayesian import bayesian_maps


@checked
@dataclass(frozen=True, kw_only=True)
class Mfvi(Method):
    """Minimise -E_q[log p(y | x, W)] + KL(q(W) || p(W)) / N, with independent normals q(W).

    All N sequences share the weights, so the KL counts 1/N per sequence. There is no dropout, because the
    weights are random already. Predictions average ten draws of all weights.

    Args:
        attention: `KernelAttentionConfig()` or `DotProductConfig()`.
        weights: prior and initial posterior of the weights.
        kl: weight of the KL for one sequence, a number or "1/N".
        anneal: share of training during which that weight grows linearly from 0.

    Example:
        >>> model = Mfvi(anneal=0.5).build(ModelConfig(embedding=PatchConfig()))  # doctest: +SKIP
    """

    attention: KernelAttentionConfig | DotProductConfig = field(default_factory=KernelAttentionConfig)
    weights: MeanFieldConfig = field(default_factory=MeanFieldConfig)
    kl: Weight = "1/N"
    anneal: float = 0.0

    id = "mfvi"

    def __post_init__(self) -> None:
        check_fields(
            "mfvi",
            [
                ("kl", self.kl, is_weight(self.kl), WEIGHTS),
                ("anneal", self.anneal, 0 <= self.anneal <= 1, "0 to 1"),
            ],
        )

    def build(self, config: ModelConfig) -> Transformer:
        """The task's Transformer with random weights."""
        return Transformer(replace(config, attention=self.attention, weights=self.weights, dropout=0.0))

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-ELBO; the KL of the weights is its global KL."""
        loss = negative_elbo(model(batch.inputs), model.likelihood, batch.targets)
        kl = torch.stack([m.kl() for m in bayesian_maps(model)]).sum()
        weight, _ = KlWeights(g=self.kl, anneal=self.anneal).at(progress)
        return replace(loss, kl_g=kl, weight_g=weight)
