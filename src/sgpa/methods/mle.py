"""Maximum likelihood: the point estimate every other method is compared with."""

from dataclasses import dataclass, field, replace

from sgpa.core.arguments import checked
from sgpa.core.inputs import Batch
from sgpa.core.types import Loss
from sgpa.gp.objective import Progress, negative_elbo
from sgpa.methods.base import Method
from sgpa.models import DotProductConfig, KernelAttentionConfig, ModelConfig, Transformer


@checked
@dataclass(frozen=True, kw_only=True)
class Mle(Method):
    """Minimise the negative log-likelihood: a point estimate, with kernel or dot-product attention.

    Args:
        attention: `KernelAttentionConfig()` or `DotProductConfig()`.

    Example:
        >>> model = Mle().build(ModelConfig(embedding=PatchConfig()))  # doctest: +SKIP
    """

    attention: KernelAttentionConfig | DotProductConfig = field(default_factory=KernelAttentionConfig)

    id = "mle"

    def build(self, config: ModelConfig) -> Transformer:
        """The task's Transformer with deterministic attention."""
        return Transformer(replace(config, attention=self.attention))

    def loss(self, model: Transformer, batch: Batch, progress: Progress) -> Loss:
        """-log p(y | x)."""
        del progress
        return negative_elbo(model(batch.inputs), model.likelihood, batch.targets)
