"""One layer of the deep GP: a deep kernel G_phi followed by attention."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sgpa.attention import Attention, GlobalState
from sgpa.core.noise import Dropout
from sgpa.core.types import AttentionOutput


class Mlp(nn.Module):
    """x + MLP(LN(x)): two linear maps of equal width with a GELU between them."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.dropout = Dropout(dropout)

    @property
    def plain(self) -> bool:
        """Whether both maps are `nn.Linear`, neither Bayesian nor spectrally normalised."""
        return type(self.up) is nn.Linear and type(self.down) is nn.Linear

    def forward(self, x: Tensor) -> Tensor:
        """[..., E] -> [..., E]."""
        return x + self.dropout(self.down(nn.functional.gelu(self.dropout(self.up(self.norm(x))))))


class Layer(nn.Module):
    """One GP layer: F^l = attention(LN(G(F^(l-1)))) on top of a residual stream.

    G is the MLP that a Transformer block ends with, read as the beginning of the next layer, so that a
    layer's input space is the output space of the attention before it. The first layer has none.
    """

    def __init__(self, name: str, attention: Attention, mlp: Mlp | None) -> None:
        super().__init__()
        attention.name = name
        self.mlp = mlp if mlp is not None else nn.Identity()
        self.norm = nn.LayerNorm(attention.embed_dim)
        self.attention = attention

    def features(self, f: Tensor) -> tuple[Tensor, Tensor]:
        """The residual stream and G_phi(f), which the attention projects, [..., E] each."""
        h = self.mlp(f)
        return h, self.norm(h)

    def forward(
        self, f: Tensor, padding: Tensor | None, state: GlobalState | None, samples: int | None = None
    ) -> AttentionOutput:
        """f [B, T, E] -> value [B, T, E], or [S, B, T, E] where samples are asked for."""
        h, s = self.features(f)
        out = self.attention(s, padding, state=state, samples=samples)
        return AttentionOutput(h + out.value, out.kl)


def features_of(layers: Sequence[Layer], points: Sequence[Tensor]) -> Tensor:
    """G_phi of every layer at its own points [H, M, E], [L, H, M, E]; layers with plain maps in one pass."""
    deep = [i for i, layer in enumerate(layers) if isinstance(layer.mlp, Mlp) and layer.mlp.plain]
    deep = deep if len(deep) > 1 else []
    others = [i for i in range(len(layers)) if i not in deep]
    alone = [layers[i].features(points[i])[1].unsqueeze(0) for i in others]
    if not deep:
        return torch.cat(alone)
    first = layers[deep[0]]

    def features(mlp: dict[str, Tensor], norm: dict[str, Tensor], x: Tensor) -> Tensor:
        normed: Tensor = functional_call(first.norm, norm, functional_call(first.mlp, mlp, x))
        return normed

    mlps, norms = _stacked([layers[i].mlp for i in deep]), _stacked([layers[i].norm for i in deep])
    together = torch.vmap(features)(mlps, norms, torch.stack([points[i] for i in deep]))  # [.., H, M, E]
    every, order = torch.cat([*alone, together]), others + deep
    return every if order == sorted(order) else every[[order.index(i) for i in range(len(layers))]]


def _stacked(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    each = [dict(module.named_parameters()) for module in modules]
    return {name: torch.stack([parameters[name] for parameters in each]) for name in each[0]}
