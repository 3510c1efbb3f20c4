"""What all attention layers share: projections into heads, masks, and the contract."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError, check_fields
from sgpa.core.noise import Dropout
from sgpa.core.precision import full_precision, recording, require_finite
from sgpa.core.types import AttentionOutput, Kl, Posterior


@dataclass(frozen=True)
class Moments:
    """An attention layer before sampling: enough to sample from and to pay for."""

    mean: Tensor  # [B, H, T, V]
    kl: Kl
    variance: Tensor | None = None  # None where attention is deterministic   [B, H, T, V]
    L_c: Tensor | None = None  # factor of K_qq - Q_qq, for joint sampling      [B, H, T, T]
    A: Tensor | None = None  # [B, H, M, T]
    s: Tensor | None = None  # [.., H, V or 1, M, M]

    @property
    def posterior(self) -> Posterior:
        """Mean and marginal variance (zero where attention is deterministic)."""
        return Posterior(self.mean, torch.zeros_like(self.mean) if self.variance is None else self.variance)


class Attention(nn.Module):
    """Self-attention over x [B, T, E], with arguments in the manner of `nn.MultiheadAttention`.

    `key_padding_mask` [B, T] is True at padding, as there. Subclasses implement `moments` and `weights`;
    those with `stochastic = True` draw their output, and draw `samples` of them at once when asked to.
    """

    stochastic = False

    def __init__(self, embed_dim: int, num_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_fields(
            type(self).__name__,
            [
                ("embed_dim", embed_dim, embed_dim >= 1, "1 or more"),
                ("num_heads", num_heads, num_heads >= 1, "1 or more"),
                (
                    "embed_dim",
                    embed_dim,
                    num_heads < 1 or embed_dim % num_heads == 0,
                    f"a multiple of num_heads={num_heads}",
                ),
                ("dropout", dropout, 0 <= dropout < 1, "0 up to, but not, 1"),
            ],
        )
        self.embed_dim, self.num_heads, self.head_width = embed_dim, num_heads, embed_dim // num_heads
        self.name = "attention"  # a model calls its layers 'layer 1', 'layer 2', ... in error messages
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim)
        self.dropout = Dropout(dropout)

    @property
    def controls_own_precision(self) -> bool:
        """Whether the products that need float32 are in operators that see to it by themselves."""
        return True

    def moments(self, x: Tensor, padding: Tensor | None, state: object = None) -> Moments:
        """Everything up to, but not including, the sampling; x is zero at padding."""
        raise NotImplementedError

    def weights(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """What the values are multiplied with, [B, H, T, T]: for looking at, no pass writes it out."""
        raise NotImplementedError

    def draw(self, moments: Moments, samples: tuple[int, ...]) -> Tensor:
        """F for each head, [*samples, B, H, T, V]; `samples` is empty or one number."""
        return moments.mean.expand(samples + moments.mean.shape)

    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        state: object = None,
        samples: int | None = None,
    ) -> AttentionOutput:
        """Attend. With `samples=S` the value is [S, B, T, E], the draws independent over S."""
        check_inputs(x, key_padding_mask, self.embed_dim, self.name)
        if samples is not None and samples < 1:
            raise InputError(f"{self.name}: samples={samples}, at least one is needed")
        x = mask_tokens(x, key_padding_mask)  # makes v_a = x W_v zero at padding: see posteriors.py
        draws = () if samples is None else (samples,)
        if self.stochastic:
            with full_precision(x):
                F, kl = self.sampled(x.to(self.W_v.weight.dtype), key_padding_mask, state, draws)
        else:
            F, kl = self.sampled(x, key_padding_mask, state, draws)
        value = self.dropout(self.W_o(merge_heads(F)))  # [*S, B, T, E]
        value = mask_tokens(value, key_padding_mask)
        require_finite(lambda: self.not_finite_message(x), value, kl.g, kl.a)
        return AttentionOutput(value, kl)

    def sampled(
        self, x: Tensor, padding: Tensor | None, state: object, samples: tuple[int, ...]
    ) -> tuple[Tensor, Kl]:
        """F as `draw` gives it, and what it costs."""
        moments = self.moments(x, padding, state)
        return self.draw(moments, samples), moments.kl

    def not_finite_message(self, x: Tensor) -> str:
        """What to say when the output for x is not finite."""
        if not x.isfinite().all():
            return f"{self.name}: its input x has entries that are NaN or infinite"
        return self.overflow_message()

    def overflow_message(self) -> str:
        """What to say when the output for a finite input is not finite."""
        return f"{self.name}: the attention output is not finite; lower the learning rate"

    def heads(self, x: Tensor, W: nn.Linear) -> Tensor:
        """x W, cut into heads: [B, T, E] -> [B, H, T, D]."""
        return W(x).unflatten(-1, (self.num_heads, self.head_width)).transpose(-3, -2)

    def extra_repr(self) -> str:
        """Width and heads, for printing."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


def mask_tokens(x: Tensor, padding: Tensor | None) -> Tensor:
    """x [..., B, T, E] with padded tokens set to zero."""
    return x if padding is None else x.masked_fill(padding.unsqueeze(-1), 0.0)


def merge_heads(F: Tensor) -> Tensor:
    """concat(F_1, ..., F_H): [..., H, T, V] -> [..., T, H V]."""
    return F.transpose(-3, -2).flatten(-2)


def check_inputs(x: Tensor, padding: Tensor | None, width: int, name: str) -> None:
    """One clear line for what people get wrong most often."""
    if x.ndim != 3 or x.shape[-1] != width:
        raise InputError(f"{name}: expected x of shape [B, T, {width}], got {list(x.shape)}")
    if not x.is_floating_point():
        raise InputError(f"{name}: expected floating-point x, got {x.dtype}")
    if x.shape[1] == 0:
        raise InputError(f"{name}: the sequences have no token (T = 0)")
    if padding is None:
        return
    if padding.shape != x.shape[:2] or padding.dtype != torch.bool:
        raise InputError(
            f"{name}: expected a bool key_padding_mask of shape {list(x.shape[:2])} (True at padding), "
            f"got {padding.dtype} of shape {list(padding.shape)}"
        )
    if not recording(padding) and padding.all(-1).any():
        row = int(padding.all(-1).nonzero()[0])
        raise InputError(f"{name}: sequence {row} of the batch is all padding; drop it or unmask a token")
