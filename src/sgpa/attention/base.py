"""What all attention layers share: projections into heads, masks, and the contract."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from sgpa.attention.masks import Mask, read_mask
from sgpa.attention.moments import Moments
from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.limits import WIDEST
from sgpa.core.noise import MAX_SAMPLES, Dropout
from sgpa.core.precision import full_precision, recording, require_finite
from sgpa.core.types import AttentionOutput, Kl

Forward = TypeVar("Forward", bound=Callable[..., Any])


def checked_pass(forward: Forward) -> Forward:
    """`checked` for a forward pass: nothing is checked while it is compiled."""
    with_checks = checked(forward)

    @wraps(forward)
    def call(*args: Any, **options: Any) -> Any:
        return (forward if torch.compiler.is_compiling() else with_checks)(*args, **options)

    return cast(Forward, call)


class Attention(nn.Module):
    """Self-attention over x [B, T, E], with the mask conventions of `nn.MultiheadAttention`.

    Subclasses implement `moments` and `weights`. Those with `stochastic = True` draw their output.
    `MultiheadSgpa` has all arguments of `nn.MultiheadAttention`.
    """

    stochastic = False
    controls_own_precision = True  # whether what needs float32 is safe when float32 products may run in TF32

    @checked
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
                ("embed_dim", embed_dim, embed_dim <= WIDEST, f"at most {WIDEST}"),
                ("dropout", dropout, 0 <= dropout < 1, "0 up to, but not, 1"),
            ],
        )
        self.embed_dim, self.num_heads, self.head_width = embed_dim, num_heads, embed_dim // num_heads
        self.name = "attention"  # a model calls its layers 'layer 1', 'layer 2', ... in error messages
        self.W_v = nn.Linear(embed_dim, embed_dim, bias=False)
        self.W_o = nn.Linear(embed_dim, embed_dim)
        self.dropout = Dropout(dropout)

    def moments(
        self, x: Tensor, padding: Tensor | None, state: object = None, mask: Mask | None = None
    ) -> Moments:
        """The distribution of the heads' values and its KL; x [B, T, E] is zero at padding."""
        raise NotImplementedError

    def weights(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """What the values are multiplied with, [B, H, T, T]: for inspection, `forward` does not use it."""
        raise NotImplementedError

    @checked_pass
    def forward(
        self,
        x: Tensor,
        key_padding_mask: Tensor | None = None,
        *,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        state: object = None,
        samples: int | None = None,
    ) -> AttentionOutput:
        """Attend over the tokens of each sequence.

        Args:
            x: tokens, [B, T, E].
            key_padding_mask: True at padding, [B, T] bool; no mask means no padding.
            attn_mask: True at keys that a token must not see, or 0 and -inf; [T, T] or [B H, T, T].
            is_causal: tokens do not see later tokens; needs no `attn_mask`.
            state: the layer's global state, for decoupled SGPA; computed here where it is left out.
            samples: S draws at once, independent of each other; one draw where it is left out.

        Returns:
            value [B, T, E], or [S, B, T, E] with `samples=S`, zero at padding, and the KL of the layer.
        """
        check_inputs(x, key_padding_mask, self.embed_dim, self.name)
        if samples is not None and not 1 <= samples <= MAX_SAMPLES:
            raise InputError(f"{self.name}: samples={samples} (allowed: 1 to {MAX_SAMPLES})")
        sizes = (len(x), self.num_heads, x.shape[1], x.shape[1])
        mask = read_mask(attn_mask, is_causal, sizes=sizes, like=x, name=self.name)
        if key_padding_mask is not None:
            x = mask_tokens(x, key_padding_mask)  # makes v_a = x W_v zero at padding: see gp/posteriors.py
        with full_precision(x) if self.stochastic else nullcontext():
            lowered = torch.is_autocast_enabled(x.device.type)  # autocast makes bfloat16 of x
            points = x if lowered and not self.stochastic else x.to(self.W_v.weight.dtype)
            moments = self.moments(points, key_padding_mask, state, mask)
            F = moments.draw(() if samples is None else (samples,))  # [*S, B, H, T, V]
        value = mask_tokens(self.merge_heads(F), key_padding_mask)  # [*S, B, T, E]
        require_finite(lambda: self.not_finite_message(x), value, moments.kl.g, moments.kl.a)
        if self.stochastic:
            self.check_kl(moments.kl, x)
        return AttentionOutput(value, moments.kl)

    def check_kl(self, kl: Kl, x: Tensor, value: Tensor | None = None) -> None:
        """Raise if a part of the KL is negative beyond rounding; x is zero at padding."""

    def not_finite_message(self, x: Tensor) -> str:
        """The error message for an output that is not finite."""
        if not x.isfinite().all():
            return f"{self.name}: its input x has entries that are NaN or infinite"
        return self.overflow_message()

    def overflow_message(self) -> str:
        """The error message for an output that is not finite although x is."""
        return f"{self.name}: the attention output is not finite; lower the learning rate"

    def heads(self, x: Tensor, W: nn.Linear) -> Tensor:
        """x W, cut into heads: [B, T, E] -> [B, H, T, D]."""
        return W(x).unflatten(-1, (self.num_heads, self.head_width)).transpose(-3, -2)

    def merge_heads(self, F: Tensor) -> Tensor:
        """concat(F_1 .. F_H) W_o with dropout: [*S, B, H, T, V] -> [*S, B, T, E]."""
        return self.dropout(self.W_o(F.transpose(-3, -2).flatten(-2)))

    def name_matrix(self, index: tuple[int, ...]) -> str:
        """Matrix [b, h] of this layer in words, for error messages."""
        return f"{self.name}, sequence {index[0]} of the batch, head {index[1] + 1}"

    def extra_repr(self) -> str:
        """Width and heads, for printing."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


def mask_tokens(x: Tensor, padding: Tensor | None) -> Tensor:
    """x [..., B, T, E] with padded tokens set to zero."""
    return x if padding is None else x.masked_fill(padding.unsqueeze(-1), 0.0)


def check_inputs(x: Tensor, padding: Tensor | None, width: int, name: str) -> None:
    """Raise an error of one line unless x is [B, T, width] with tokens, and the mask fits it."""
    if x.is_meta or (padding is not None and padding.is_meta):
        raise InputError(f"{name}: x or key_padding_mask is a meta tensor (allowed: tensors with values)")
    if x.ndim != 3 or x.shape[-1] != width:
        raise InputError(f"{name}: expected x of shape [B, T, {width}], got {list(x.shape)}")
    if not x.is_floating_point():
        raise InputError(f"{name}: expected floating-point x, got {x.dtype}")
    if len(x) == 0:
        raise InputError(f"{name}: the batch has no sequence (B = 0)")
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
