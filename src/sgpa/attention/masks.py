"""Attention masks: which keys each token must not see, in the conventions of `nn.MultiheadAttention`."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.precision import recording


@dataclass(frozen=True)
class Mask:
    """Keys that tokens must not see."""

    hidden: Tensor  # True where a key is hidden, broadcast over sequences and heads   [.., .., T, U]
    causal: bool  # token t sees keys 1 to t, and nothing else

    def apply(self, weights: Tensor) -> Tensor:
        """Weights [B, H, T, U] of keys on tokens, zero at hidden keys."""
        return weights.masked_fill(self.hidden, 0.0)


def read_mask(
    attn_mask: Tensor | None, is_causal: bool, *, sizes: tuple[int, int, int, int], like: Tensor, name: str
) -> Mask | None:
    """The mask that `attn_mask` and `is_causal` describe together; None where every token sees every key.

    Args:
        attn_mask: True at hidden keys, or numbers that are 0 or -inf; [T, U] or [B H, T, U].
        is_causal: tokens do not see later keys, whether or not `attn_mask` states that too.
        sizes: B, H, T and U.
        like: a tensor on the device of the layer's input.
        name: of the layer, for error messages.
    """
    B, H, T, U = sizes
    if is_causal and T != U:
        raise InputError(f"{name}: is_causal=True with {T} queries and {U} keys (allowed: equal numbers)")
    if attn_mask is None and not is_causal:
        return None
    later = torch.ones(T, U, dtype=torch.bool, device=like.device).triu(1)  # [T, U]
    if attn_mask is None:
        return Mask(later, causal=True)
    hidden = as_bool(attn_mask, "attn_mask", name)
    if hidden.shape not in {(T, U), (B * H, T, U)}:
        raise InputError(
            f"{name}: attn_mask of shape {list(hidden.shape)} (allowed: [{T}, {U}] or [{B * H}, {T}, {U}])"
        )
    if hidden.ndim == 3:
        hidden = hidden.unflatten(0, (B, H))  # [B, H, T, U]
    if is_causal:
        hidden = hidden | later
    if recording(hidden):  # nothing may depend on values: the caller's hint is trusted
        return Mask(hidden, causal=is_causal)
    return Mask(hidden, causal=T == U and bool((hidden == later).all()))


def as_bool(mask: Tensor, argument: str, name: str) -> Tensor:
    """A mask that is True where nothing may be seen, from booleans or from numbers that are 0 or -inf."""
    if mask.is_meta:
        raise InputError(f"{name}: {argument} is a meta tensor (allowed: a tensor with values)")
    if mask.dtype == torch.bool:
        return mask
    hidden = mask == -float("inf")
    if not mask.is_floating_point() or (not recording(mask) and not ((mask == 0) | hidden).all()):
        raise InputError(
            f"{name}: {argument} of {mask.dtype} with values other than 0 and -inf (allowed: bool, or 0 and "
            "-inf; a kernel's weights have no softmax to which scores could be added)"
        )
    return hidden
