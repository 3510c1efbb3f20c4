"""The config of a model, from which it is built, and which is saved with its weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sgpa.core.errors import ConfigError, check_fields
from sgpa.gp.likelihoods import LIKELIHOODS
from sgpa.models.config.attention import (
    AttentionConfig,
    DotProductConfig,
    KernelAttentionConfig,
    KernelConfig,
    SgpaConfig,
)
from sgpa.models.config.embedding import EmbeddingConfig, GraphConfig, PatchConfig, TokenConfig, WordsConfig
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


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The config of a Transformer.

    Args:
        embedding: what the inputs are: `PatchConfig`, `TokenConfig`, `GraphConfig` or `WordsConfig`.
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
        fits = self.heads >= 1 and self.width % self.heads == 0
        check_fields(
            "model",
            [
                ("depth", self.depth, self.depth >= 1, "1 or more"),
                ("heads", self.heads, self.heads >= 1, "1 or more"),
                ("width", self.width, fits, f"a multiple of heads={self.heads}"),
                ("dropout", self.dropout, 0 <= self.dropout < 1, "0 up to, but not, 1"),
                ("pooling", self.pooling, self.pooling in POOLINGS, ", ".join(POOLINGS)),
                ("outputs", self.outputs, self.outputs >= 1, "1 or more"),
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
    "point": PointConfig,
    "mean-field": MeanFieldConfig,
    "spectral": SpectralConfig,
    "linear": LinearHeadConfig,
    "random-features": RandomFeatureConfig,
}
NAMES = {kind: name for name, kind in KINDS.items()}


def to_json(config: Any) -> Any:
    """A config as plain data; every object says what kind it is."""
    if type(config) not in NAMES:
        return config
    parts = {f.name: to_json(getattr(config, f.name)) for f in fields(config)}
    return {"kind": NAMES[type(config)], **parts}


def from_json(data: Any) -> Any:
    """The config that `to_json` wrote, checked again."""
    if not isinstance(data, Mapping):
        return data
    kind = KINDS.get(str(data.get("kind")))
    if kind is None:
        raise ConfigError(f"unknown kind {data.get('kind')!r} in a model config (known: {', '.join(KINDS)})")
    given = {key: from_json(value) for key, value in data.items() if key != "kind"}
    known = {f.name for f in fields(kind)}
    if unknown := set(given) - known:
        raise ConfigError(f"{data['kind']}: unknown fields {', '.join(sorted(unknown))}")
    try:
        return kind(**given)
    except TypeError as error:
        raise ConfigError(f"{data['kind']}: {error}") from error
