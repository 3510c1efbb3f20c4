"""What a model is, as frozen data: enough to build it, to save it and to build it again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from sgpa.attention import (
    Attention,
    ChengBootsSgpa,
    DotProductAttention,
    KernelAttention,
    OrthogonalSgpa,
    StandardSgpa,
)
from sgpa.attention.sgpa import INDUCING_INITS
from sgpa.errors import ConfigError, check_fields
from sgpa.kernels import KERNELS, Kernel
from sgpa.likelihoods import LIKELIHOODS

POOLINGS = ("mean", "sequence")  # mean over real tokens, or learned softmax weights over them
FORMS = {"orthogonal": OrthogonalSgpa, "cheng-boots": ChengBootsSgpa}


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """A base kernel and its initial values (`Kernel.preset`)."""

    name: str = "ard-rbf"
    preset: str = "authors"

    def __post_init__(self) -> None:
        known = KERNELS.get(self.name)
        presets = known.presets if known else {self.preset: None}
        check_fields(
            "kernel",
            [
                ("name", self.name, known is not None, ", ".join(KERNELS)),
                ("preset", self.preset, self.preset in presets, ", ".join(presets)),
            ],
        )

    def build(self, heads: int, head_width: int) -> Kernel:
        """The kernel for one layer."""
        return KERNELS[self.name].preset(self.preset, heads, head_width)


@dataclass(frozen=True, kw_only=True)
class DotProductConfig:
    """Scaled dot-product attention (id `sdp`)."""

    def build(self, width: int, heads: int, dropout: float, max_tokens: int) -> Attention:
        """The attention of one layer."""
        del max_tokens
        return DotProductAttention(width, heads, dropout=dropout)


@dataclass(frozen=True, kw_only=True)
class KernelAttentionConfig:
    """Kernel attention without uncertainty (id `kernel`)."""

    kernel: KernelConfig = field(default_factory=KernelConfig)
    tied: bool = True

    def build(self, width: int, heads: int, dropout: float, max_tokens: int) -> Attention:
        """The attention of one layer."""
        del max_tokens
        kernel = self.kernel.build(heads, width // heads)
        return KernelAttention(width, heads, kernel, tied=self.tied, dropout=dropout)


@dataclass(frozen=True, kw_only=True)
class SgpaConfig:
    """Sparse-GP attention: `form` is orthogonal, cheng-boots or standard."""

    form: str = "orthogonal"
    kernel: KernelConfig = field(default_factory=KernelConfig)
    num_global: int = 32
    init: str = "small"
    whitened: bool = True
    joint: bool = False
    tied: bool = True

    def __post_init__(self) -> None:
        forms = [*FORMS, "standard"]
        check_fields(
            "attention",
            [
                ("form", self.form, self.form in forms, ", ".join(forms)),
                ("num_global", self.num_global, self.num_global >= 1, "1 or more"),
                ("init", self.init, self.init in INDUCING_INITS, ", ".join(INDUCING_INITS)),
            ],
        )

    def build(self, width: int, heads: int, dropout: float, max_tokens: int) -> Attention:
        """The attention of one layer."""
        kernel = self.kernel.build(heads, width // heads)
        common = {"whitened": self.whitened, "joint": self.joint, "tied": self.tied}
        if self.form == "standard":
            return StandardSgpa(width, heads, kernel, max_tokens=max_tokens, dropout=dropout, **common)
        return FORMS[self.form](
            width, heads, kernel, num_global=self.num_global, init=self.init, dropout=dropout, **common
        )


@dataclass(frozen=True, kw_only=True)
class PatchConfig:
    """Square images cut into square patches, each a token.

    uint8 images are scaled to [0, 1] and normalised with `mean` and `std` (one number per channel), so that
    a saved model carries its own preprocessing; floating-point images are taken as they are.
    """

    image_size: int = 32
    channels: int = 3
    patch_size: int = 4
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("mean", "std"):  # JSON knows lists only
            object.__setattr__(self, name, tuple(getattr(self, name)))
        fits = self.patch_size >= 1 and self.image_size % self.patch_size == 0
        check_fields(
            "embedding",
            [
                ("image_size", self.image_size, self.image_size >= 1, "1 or more"),
                ("channels", self.channels, self.channels >= 1, "1 or more"),
                ("patch_size", self.patch_size, fits, f"a divisor of image_size={self.image_size}"),
                (
                    "mean",
                    self.mean,
                    len(self.mean) in (0, self.channels),
                    f"{self.channels} numbers, or none",
                ),
                (
                    "std",
                    self.std,
                    len(self.std) == len(self.mean) and all(s > 0 for s in self.std),
                    "as many positive numbers as mean has",
                ),
            ],
        )

    @property
    def max_tokens(self) -> int:
        """Patches per image."""
        return (self.image_size // self.patch_size) ** 2


@dataclass(frozen=True, kw_only=True)
class TokenConfig:
    """Token ids with learned embeddings and positions. `pad` is the id that fills up short rows."""

    vocabulary: int
    max_tokens: int = 512
    embedding_width: int = 128
    pad: int = 0

    def __post_init__(self) -> None:
        check_fields(
            "embedding",
            [
                ("vocabulary", self.vocabulary, self.vocabulary >= 2, "2 or more"),
                ("max_tokens", self.max_tokens, self.max_tokens >= 1, "1 or more"),
                ("embedding_width", self.embedding_width, self.embedding_width >= 1, "1 or more"),
                ("pad", self.pad, 0 <= self.pad < self.vocabulary, f"0..{self.vocabulary - 1}"),
            ],
        )


@dataclass(frozen=True, kw_only=True)
class GraphConfig:
    """Graphs whose nodes and edges are all tokens, told apart by node and type identifiers."""

    node_types: int
    edge_types: int
    identifier_width: int = 16
    max_tokens: int = 256

    def __post_init__(self) -> None:
        check_fields(
            "embedding",
            [
                (name, getattr(self, name), getattr(self, name) >= 1, "1 or more")
                for name in ("node_types", "edge_types", "identifier_width", "max_tokens")
            ],
        )


@dataclass(frozen=True, kw_only=True)
class WordsConfig:
    """Words with learned embeddings, beside `layers` features of width `features` from a language model."""

    vocabulary: int
    features: int
    layers: int = 3
    max_tokens: int = 64
    embedding_width: int = 128

    def __post_init__(self) -> None:
        check_fields(
            "embedding",
            [
                ("vocabulary", self.vocabulary, self.vocabulary >= 2, "2 or more"),
                *(
                    (name, getattr(self, name), getattr(self, name) >= 1, "1 or more")
                    for name in ("features", "layers", "max_tokens", "embedding_width")
                ),
            ],
        )


AttentionConfig = DotProductConfig | KernelAttentionConfig | SgpaConfig
EmbeddingConfig = PatchConfig | TokenConfig | GraphConfig | WordsConfig


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """A Transformer: what it reads, how deep and wide it is, how it attends and what it predicts."""

    embedding: EmbeddingConfig
    attention: AttentionConfig = field(default_factory=KernelAttentionConfig)
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
