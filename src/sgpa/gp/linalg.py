"""Batched Cholesky factors with a bounded jitter; a failure raises an error or gives NaN.

Small symmetric matrices are factorised in float64: at float32 a Gram matrix of a few dozen
smooth-kernel points is numerically singular, and a failed factorisation returns garbage.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sgpa.core.counters import JITTER_RAISED, count
from sgpa.core.errors import NumericalError
from sgpa.core.precision import recording

JITTERS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # relative to each point's own prior variance

Describe = Callable[[tuple[int, ...]], str]  # batch index of a matrix -> where it comes from


def in_batch(index: tuple[int, ...]) -> str:
    """Where a matrix of a batch is, when nothing better is known."""
    return f"matrix {list(index)} of the batch" if index else "the matrix"


def cholesky(K: Tensor, name: str, describe: Describe = in_batch, scale: Tensor | None = None) -> Tensor:
    """Lower factor L of K + ε diag(scale) in float64, with the smallest ε of `JITTERS` that works.

    ε is raised only for those matrices of the batch that need it. While a graph is compiled or captured
    nothing can depend on values: the smallest ε is used, and a factor that does not exist is NaN.

    Args:
        K: symmetric matrices, [..., M, M].
        name: what K is called in error messages.
        describe: names a matrix of the batch in error messages, given its index.
        scale: what the jitter is relative to, [..., M]; K's own diagonal unless given, so that the result
            scales with the kernel variance.

    Returns:
        L, [..., M, M].

    Raises:
        NumericalError: K has entries that are not finite, or no jitter makes it positive definite.

    >>> cholesky(torch.eye(2), "K").shape
    torch.Size([2, 2])
    """
    K = K.double()
    if recording(K):
        diagonal = K.diagonal(dim1=-2, dim2=-1) if scale is None else scale.double()
        L, info = torch.linalg.cholesky_ex(K + torch.diag_embed(JITTERS[0] * diagonal))
        return torch.where((info == 0)[..., None, None], L, float("nan"))
    if not (finite := K.isfinite().all(-1).all(-1)).all():
        problem = f"{name} has entries that are not finite; jitter cannot fix this"
        raise NumericalError(_message(~finite, problem, describe))
    scale = K.diagonal(dim1=-2, dim2=-1) if scale is None else scale.double()
    scale = scale + torch.finfo(torch.float32).tiny  # [..., M]
    jitter = torch.full_like(K[..., :1, 0], JITTERS[0])  # [..., 1]
    for following in (*JITTERS[1:], None):
        L, info = torch.linalg.cholesky_ex(K + torch.diag_embed(jitter * scale))
        failed = (info != 0) | ~L.diagonal(dim1=-2, dim2=-1).isfinite().all(-1)  # [...]
        if not failed.any():
            if following != JITTERS[1]:
                count(JITTER_RAISED, int((jitter > JITTERS[0]).sum()))
            return L
        if following is not None:
            jitter = torch.where(failed.unsqueeze(-1), following, jitter)
    problem = f"{name} is not positive definite even with relative jitter {JITTERS[-1]:g}"
    raise NumericalError(_message(failed, problem, describe))


def triangular_inverse(L: Tensor) -> Tensor:
    """L^-1 of lower-triangular L [..., M, M]."""
    eye = torch.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return torch.linalg.solve_triangular(L, eye.expand_as(L), upper=False)


def inverse_factor(K: Tensor, name: str, describe: Describe = in_batch) -> tuple[Tensor, Tensor]:
    """L and L^-1 of `cholesky`, whose backward pass is products with L^-1 alone."""
    K = K.double()
    L = cholesky(K.detach(), name, describe)
    return _Factor.apply(K, L, triangular_inverse(L))


class _Factor(torch.autograd.Function):
    """dK = sym(L^-T Φ(L' dL - dL^-1 L^-T) L^-1), Φ the lower triangle with half the diagonal.

    The jitter is proportional to K's diagonal, whose gradient is scaled by the same proportion.
    """

    @staticmethod
    def forward(K: Tensor, L: Tensor, L_inv: Tensor) -> tuple[Tensor, Tensor]:
        del K
        return L.view_as(L), L_inv.view_as(L_inv)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(inputs[0].diagonal(dim1=-2, dim2=-1), *output)

    @staticmethod
    def backward(ctx: Any, dL: Tensor, dL_inv: Tensor) -> tuple[Tensor, None, None]:
        diagonal, L, L_inv = ctx.saved_tensors
        inner = (L.mT @ dL - dL_inv @ L_inv.mT).tril()
        inner = inner - 0.5 * torch.diag_embed(inner.diagonal(dim1=-2, dim2=-1))
        dK = 0.5 * (L_inv.mT @ (inner + inner.mT) @ L_inv)
        jitter = L.square().sum(-1) / diagonal - 1
        return dK + torch.diag_embed(jitter * dK.diagonal(dim1=-2, dim2=-1)), None, None


def _message(failed: Tensor, problem: str, describe: Describe) -> str:
    index = tuple(failed.nonzero()[0].tolist())
    return (
        f"{describe(index)}: {problem}; lower the learning rate, move the inducing points apart or "
        "check the kernel's length-scales and variance"
    )
