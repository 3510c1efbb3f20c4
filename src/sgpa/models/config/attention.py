"""How a layer attends, as frozen data."""

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
from sgpa.attention.decoupled import INDUCING_INITS
from sgpa.attention.positions import places
from sgpa.core.errors import check_fields
from sgpa.gp.kernels import KERNELS, Kernel
from sgpa.models.config.embedding import EmbeddingConfig

FORMS = {"orthogonal": OrthogonalSgpa, "cheng-boots": ChengBootsSgpa}


@dataclass(frozen=True, kw_only=True)
class KernelConfig:
    """A base kernel and its initial values (`Kernel.preset`).

    `locality`, numbers of cells that are dealt out to the heads, lets keys carry their place in the grid of
    patches, or in the line of words (`attention/places.py`); without it a kernel compares what tokens show.
    """

    name: str = "ard-rbf"
    preset: str = "authors"
    locality: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "locality", tuple(self.locality))  # JSON knows lists only
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
                    "none: only with ard-rbf near is alike",
                ),
                ("locality", self.locality, all(r > 0 for r in self.locality), "positive numbers"),
            ],
        )

    def build(self, heads: int, width: int, embedding: EmbeddingConfig) -> tuple[Kernel, Tensor | None]:
        """The kernel for one layer of heads of this width, and its places where there is a reach."""
        kernel = KERNELS[self.name].preset(self.preset, heads, width)
        if not self.locality:
            return kernel, None
        check_fields(
            "kernel", [("locality", self.locality, bool(embedding.grid), "none: graphs have no places")]
        )
        dealt = [self.locality[h % len(self.locality)] for h in range(heads)]
        return kernel, places(embedding.grid, dealt, width)


@dataclass(frozen=True, kw_only=True)
class DotProductConfig:
    """Scaled dot-product attention (id `sdp`)."""

    def build(self, width: int, heads: int, dropout: float, embedding: EmbeddingConfig) -> Attention:
        """The attention of one layer."""
        del embedding
        return DotProductAttention(width, heads, dropout=dropout)


@dataclass(frozen=True, kw_only=True)
class KernelAttentionConfig:
    """Kernel attention without uncertainty (id `kernel`)."""

    kernel: KernelConfig = field(default_factory=KernelConfig)
    tied: bool = True

    def build(self, width: int, heads: int, dropout: float, embedding: EmbeddingConfig) -> Attention:
        """The attention of one layer."""
        kernel, places = self.kernel.build(heads, width // heads, embedding)
        return KernelAttention(width, heads, kernel, tied=self.tied, places=places, dropout=dropout)


@dataclass(frozen=True, kw_only=True)
class SgpaConfig:
    """Sparse-GP attention: `form` is orthogonal, cheng-boots or standard."""

    form: str = "orthogonal"
    kernel: KernelConfig = field(default_factory=KernelConfig)
    num_global: int = 32
    init: str = "small"
    whitened: bool = True
    joint: bool = False
    paths: bool = False
    tied: bool = True

    def __post_init__(self) -> None:
        forms = [*FORMS, "standard"]
        check_fields(
            "attention",
            [
                ("form", self.form, self.form in forms, ", ".join(forms)),
                ("num_global", self.num_global, self.num_global >= 1, "1 or more"),
                ("init", self.init, self.init in INDUCING_INITS, ", ".join(INDUCING_INITS)),
                ("paths", self.paths, not (self.paths and self.joint), "false where joint is true"),
                ("paths", self.paths, not self.paths or self.form != "standard", "false for form=standard"),
                (
                    "paths",
                    self.paths,
                    not self.paths or self.kernel.name == "ard-rbf",
                    "true for ard-rbf only",
                ),
            ],
        )

    def build(self, width: int, heads: int, dropout: float, embedding: EmbeddingConfig) -> Attention:
        """The attention of one layer."""
        kernel, places = self.kernel.build(heads, width // heads, embedding)
        common: dict[str, Any] = {"whitened": self.whitened, "joint": self.joint, "tied": self.tied}
        common |= {"places": places, "dropout": dropout}
        if self.form == "standard":
            return StandardSgpa(width, heads, kernel, max_tokens=embedding.max_tokens, **common)
        common |= {"paths": self.paths, "num_global": self.num_global, "init": self.init}
        return FORMS[self.form](width, heads, kernel, **common)


AttentionConfig = DotProductConfig | KernelAttentionConfig | SgpaConfig
