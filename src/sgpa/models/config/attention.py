"""Configs of the attention layers."""

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from sgpa.attention import (
    Attention,
    ChengBootsSgpa,
    DotProductAttention,
    KernelAttention,
    OrthogonalSgpa,
    StandardSgpa,
)
from sgpa.attention.inducing import INDUCING_INITS
from sgpa.attention.positions import grid_positions
from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.limits import is_scale
from sgpa.gp.kernels import KERNELS, Kernel
from sgpa.models.config.embedding import EmbeddingConfig

FORMS = {"orthogonal": OrthogonalSgpa, "cheng-boots": ChengBootsSgpa}


@checked
@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """A base kernel and its initial values.

    Args:
        name: `ard-rbf` or `exponential`.
        preset: initial values of the kernel's parameters, see `Kernel.preset`.
        locality: makes keys position-aware (`attention/positions.py`): for each head the distance, in patches
            or words, over which it attends at first. Heads take these numbers in turn. Without it a kernel
            compares the contents of tokens only.

    >>> KernelConfig(preset="paper", locality=(1.0, 3.0)).name
    'ard-rbf'
    """

    name: str = "ard-rbf"
    preset: str = "authors"
    locality: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "locality", tuple(self.locality))  # JSON has lists only
        known, rbf = KERNELS.get(self.name), self.name == "ard-rbf"
        presets = known.presets if known else {self.preset: None}
        check_fields(
            "kernel",
            [
                ("name", self.name, known is not None, ", ".join(KERNELS)),
                ("preset", self.preset, self.preset in presets, ", ".join(presets)),
                (
                    "locality",
                    self.locality,
                    rbf or not self.locality,
                    "none: position-aware keys need ard-rbf",
                ),
                ("locality", self.locality, all(map(is_scale, self.locality)), "positive numbers"),
            ],
        )

    def build(self, heads: int, width: int, embedding: EmbeddingConfig) -> tuple[Kernel, Tensor | None]:
        """The kernel of one layer, and the initial positions of its tokens where keys are position-aware."""
        kernel = KERNELS[self.name].preset(self.preset, heads, width)
        if not self.locality:
            return kernel, None
        check_fields(
            "kernel", [("locality", self.locality, bool(embedding.grid), "none: graphs have no positions")]
        )
        locality = [self.locality[h % len(self.locality)] for h in range(heads)]
        return kernel, grid_positions(embedding.grid, locality, width)


@checked
@dataclass(frozen=True, kw_only=True)
class DotProductConfig:
    """Scaled dot-product attention (id `sdp`); it has no settings.

    Example:
        >>> ModelConfig(embedding=PatchConfig(), attention=DotProductConfig()).attention
        DotProductConfig()
    """

    def build(self, width: int, heads: int, dropout: float, embedding: EmbeddingConfig) -> Attention:
        """The attention of one layer."""
        del embedding
        return DotProductAttention(width, heads, dropout=dropout)


@checked
@dataclass(frozen=True, kw_only=True)
class KernelAttentionConfig:
    """Kernel attention without uncertainty (id `kernel`).

    Args:
        kernel: the base kernel and its initial values.
        tied: whether queries and keys are the same projection of a token, as a symmetric kernel needs.

    Example:
        >>> KernelAttentionConfig(kernel=KernelConfig(preset="paper")).tied
        True
    """

    kernel: KernelConfig = field(default_factory=KernelConfig)
    tied: bool = True

    def build(self, width: int, heads: int, dropout: float, embedding: EmbeddingConfig) -> Attention:
        """The attention of one layer."""
        kernel, positions = self.kernel.build(heads, width // heads, embedding)
        return KernelAttention(width, heads, kernel, tied=self.tied, positions=positions, dropout=dropout)


@checked
@dataclass(frozen=True, kw_only=True)
class SgpaConfig:
    """Sparse-GP attention.

    Args:
        form: `orthogonal` (the paper's), `cheng-boots` or `standard`.
        kernel: the base kernel.
        num_global: M, global inducing points per head; `standard` has none.
        init: initial values of the global inducing points: `paper`, `prior` or `small`.
        whitened: S = L s s' L' with free s, or a free factor of S itself.
        joint: sample from the full covariance over tokens instead of its diagonal.
        tied: queries and keys share their projection.

    >>> SgpaConfig(num_global=16).form
    'orthogonal'
    """

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

    def build(self, width: int, heads: int, dropout: float, embedding: EmbeddingConfig) -> Attention:
        """The attention of one layer."""
        kernel, positions = self.kernel.build(heads, width // heads, embedding)
        common: dict[str, Any] = {"whitened": self.whitened, "joint": self.joint, "tied": self.tied}
        common |= {"positions": positions, "dropout": dropout}
        if self.form == "standard":
            return StandardSgpa(width, heads, kernel, max_tokens=embedding.max_tokens, **common)
        common |= {"num_global": self.num_global, "init": self.init}
        return FORMS[self.form](width, heads, kernel, **common)


AttentionConfig = DotProductConfig | KernelAttentionConfig | SgpaConfig
