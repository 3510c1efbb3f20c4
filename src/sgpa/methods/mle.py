"""Maximum likelihood: the point estimate every other method is compared with."""

from dataclasses import dataclass, field, replace

from sgpa.methods.base import Method
from sgpa.models import DotProductConfig, KernelAttentionConfig, ModelConfig, Transformer
from sgpa.objectives import Progress, negative_elbo
from sgpa.types import Batch, Loss


@dataclass(frozen=True, kw_only=True)
class Mle(Method):
    """Minimise the negative log-likelihood, with kernel or dot-product attention."""

    attention: KernelAttentionConfig | DotProductConfig = field(default_factory=KernelAttentionConfig)

    id = "mle"

    def build(self, config: ModelConfig) -> Transformer:
        """The task's Transformer with deterministic attention."""
        return Transformer(replace(config, attention=self.attention))

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-log p(y | x)."""
        del progress
        return negative_elbo(model(batch.inputs), model.likelihood, batch.targets)
