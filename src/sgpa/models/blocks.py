"""One layer of the deep GP: a deep kernel G_phi followed by attention."""

from torch import Tensor, nn

from sgpa.attention import Attention, GlobalState
from sgpa.noise import Dropout
from sgpa.types import AttentionOutput


class Mlp(nn.Module):
    """x + MLP(LN(x)): two linear maps of equal width with a GELU between them."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)
        self.dropout = Dropout(dropout)

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


class NoDropout:
    """Switch dropout off inside the block; the module's other modes stay as they are."""

    def __init__(self, module: nn.Module) -> None:
        self.active = [m for m in module.modules() if isinstance(m, Dropout) and m.training]

    def __enter__(self) -> None:
        for m in self.active:
            m.training = False

    def __exit__(self, *_: object) -> None:
        for m in self.active:
            m.training = True
