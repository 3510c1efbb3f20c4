"""The config of a model, from which it is built, and which is saved with its weights."""

from dataclasses import dataclass, field
from typing import Any

from sgpa.core.arguments import checked
from sgpa.core.config import from_plain, to_plain
from sgpa.core.errors import check_fields
from sgpa.core.limits import WIDEST
from sgpa.gp.likelihoods import LIKELIHOODS
from sgpa.models.config.attention import (
    AttentionConfig,
    DotProductConfig,
    KernelAttentionConfig,
    KernelConfig,
    SgpaConfig,
)
from sgpa.models.config.embedding import (
    EmbeddingConfig,
    FeatureConfig,
    GraphConfig,
    PatchConfig,
    TokenConfig,
    WordsConfig,
)
from sgpa.models.config.weights import (
    HeadConfig,
    LinearHeadConfig,
    MeanFieldConfig,
    PointConfig,
    RandomFeatureConfig,
    SpectralConfig,
    WeightsConfig,
)

POOLINGS = ("mean", "sequence", "sum")  # over real tokens: their mean, one with learned weights, their sum
DEEPEST, MOST = 1_000, 1_000_000  # larger models are mistakes


@checked
@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The config of a Transformer.

    Args:
        embedding: what the inputs are: `PatchConfig`, `TokenConfig`, `GraphConfig`, `WordsConfig` or
            `FeatureConfig`.
        attention: `DotProductConfig`, `KernelAttentionConfig` or `SgpaConfig`.
        weights: `PointConfig`, or a distribution or bound for the weights of linear maps.
        head: the last layer, `LinearHeadConfig` or `RandomFeatureConfig`.
        depth: number of layers.
        heads: attention heads of a layer.
        width: E, the width of tokens, a multiple of `heads`.
        dropout: probability of dropout in training.
        pooling: over the tokens of a sequence: `mean`, `sequence` (a mean with learned weights) or `sum`.
        outputs: number of classes, or 1 for regression.
        likelihood: `categorical` for classes, `laplace` for regression.

    >>> config = ModelConfig(embedding=PatchConfig(), attention=SgpaConfig(num_global=16), outputs=100)
    >>> config.depth
    5
    """

    embedding: EmbeddingConfig
    attention: AttentionConfig = field(default_factory=KernelAttentionConfig)
    weights: WeightsConfig = field(default_factory=PointConfig)
    head: HeadConfig = field(default_factory=LinearHeadConfig)
    depth: int = 5
    heads: int = 4
    width: int = 128
    dropout: float = 0.1
    pooling: str = "mean"
    outputs: int = 10
    likelihood: str = "categorical"

    def __post_init__(self) -> None:
        fits = self.heads >= 1 and 1 <= self.width <= WIDEST and self.width % self.heads == 0
        check_fields(
            "model",
            [
                ("depth", self.depth, 1 <= self.depth <= DEEPEST, f"1 to {DEEPEST}"),
                ("heads", self.heads, self.heads >= 1, "1 or more"),
                ("width", self.width, fits, f"a multiple of heads={self.heads}, 1 to {WIDEST}"),
                ("dropout", self.dropout, 0 <= self.dropout < 1, "0 up to, but not, 1"),
                ("pooling", self.pooling, self.pooling in POOLINGS, ", ".join(POOLINGS)),
                ("outputs", self.outputs, 1 <= self.outputs <= MOST, f"1 to {MOST}"),
                ("likelihood", self.likelihood, self.likelihood in LIKELIHOODS, ", ".join(LIKELIHOODS)),
            ],
        )


KINDS: dict[str, type[Any]] = {
    "model": ModelConfig,
    "kernel": KernelConfig,
    "dot-product": DotProductConfig,
    "kernel-attention": KernelAttentionConfig,
    "sgpa": SgpaConfig,
    "patches": PatchConfig,
    "tokens": TokenConfig,
    "graphs": GraphConfig,
    "words": WordsConfig,
    "features": FeatureConfig,
    "point": PointConfig,
    "mean-field": MeanFieldConfig,
    "spectral": SpectralConfig,
    "linear": LinearHeadConfig,
    "random-features": RandomFeatureConfig,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def to_json(config: Any) -> Any:
    """A model config as plain data; every object says what kind it is."""
    return to_plain(config, NAMES)


def from_json(data: Any) -> Any:
    """The config that `to_json` wrote, checked again; names of older versions are translated."""
    return from_plain(data, KINDS, "model config")
