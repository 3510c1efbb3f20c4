"""How a layer attends, as frozen data."""

from dataclasses import dataclass, field

from sgpa.attention import (
    Attention,
    ChengBootsSgpa,
    DotProductAttention,
    KernelAttention,
    OrthogonalSgpa,
    StandardSgpa,
)
from sgpa.attention.sgpa import INDUCING_INITS
from sgpa.errors import check_fields
from sgpa.kernels import KERNELS, Kernel

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

    def build(self, width: int, heads: int, dropout: float, max_tokens: int) -> Attention:
        """The attention of one layer."""
        kernel = self.kernel.build(heads, width // heads)
        common = {"whitened": self.whitened, "joint": self.joint, "tied": self.tied}
        if self.form == "standard":
            return StandardSgpa(width, heads, kernel, max_tokens=max_tokens, dropout=dropout, **common)
        common["paths"] = self.paths
        return FORMS[self.form](
            width, heads, kernel, num_global=self.num_global, init=self.init, dropout=dropout, **common
        )


AttentionConfig = DotProductConfig | KernelAttentionConfig | SgpaConfig
