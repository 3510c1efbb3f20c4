"""Cholesky factors of small matrices and their inverses in float64, in one kernel, for recorded steps.

At every column j of the factor the same elimination is applied to the identity, which becomes the inverse.
A matrix that is not positive definite gives NaN. The reference is `linalg.cholesky` with its first jitter.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.fused.shapes import TRITON, WIDTH, over, padded

if TRITON:
    from sgpa.fused import factor_kernels as kernels


def factors(K: Tensor) -> bool:
    """Whether the fast path takes these matrices [..., M, M]."""
    return TRITON and K.is_cuda and K.dtype == torch.float64 and K.shape[-1] <= WIDTH


@torch.library.custom_op("sgpa::factor", mutates_args=())
def fused_factor(K: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    """L and L^-1 of K + jitter diag K, [..., M, M] each."""
    K = K.contiguous()
    M = K.shape[-1]
    L, L_inv = torch.empty_like(K), torch.empty_like(K)
    over(kernels.factor, K.numel() // (M * M))(K, L, L_inv, M, jitter, MM=padded(M))
    return L, L_inv


@fused_factor.register_fake
def _(K: Tensor, jitter: float) -> tuple[Tensor, Tensor]:
    del jitter
    return K.new_empty(K.shape), K.new_empty(K.shape)


def _side_by_side(
    info: Any, dims: tuple[int | None, ...], K: Tensor, jitter: float
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    del info
    assert dims[0] is not None
    return fused_factor(K.movedim(dims[0], 0), jitter), (0, 0)


fused_factor.register_vmap(_side_by_side)
