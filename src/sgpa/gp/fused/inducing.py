"""What a decoupled layer computes from its parameters alone, in one kernel.

    L L' = K_gg + jitter diag K_gg,  w_g = L' v_g,  S = s s',  kl = ½ |w_g|² + ½ Σ_v (tr S_v - log |S_v| - M)

The kernel computes in float64, whatever the type of the results: K_gg of a few dozen points is nearly
singular. A K_gg that is not positive definite gives NaN. The reference is
`attention.global_state.plain_states`.
"""

from typing import Any

import torch
from torch import Tensor

from sgpa.gp.fused.mean import row
from sgpa.gp.fused.shapes import TRITON, WIDTH, launch, padded

if TRITON:
    from sgpa.gp.fused import inducing_kernels as kernels

SOME = (8, 2)  # value dimensions of a program, forward and backward

Four = tuple[Tensor, Tensor, Tensor, Tensor]
Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("sgpa::inducing", mutates_args=())
def inducing(
    k_g: Tensor, log_variance: Tensor, raw_s_g: Tensor, v_g: Tensor, jitter: float, rbf: bool
) -> Five:
    """The state [..., M, N] as `mean.pack` packs it and S [..., M, M, D]; kl, L and L^-1 in float64.

    kl [..., P] is in shares that are only ever summed: all have the same gradient.

    Of scaled keys k_g [..., M, D], log σ_f² [...], raw factors [..., D, M, M] and v_g [..., M, D].
    """
    given = [x.contiguous() for x in (k_g, log_variance, raw_s_g, v_g)]
    state, S, kl, L, L_inv = _results(k_g)
    sizes, tile = _sizes(k_g, SOME[0]), _tile(k_g, SOME[0])
    launch(kernels.forward, sizes[0] * sizes[-1])(
        *given, L, L_inv, state, S, kl, *sizes, jitter, **tile, RBF=rbf
    )
    return state, S, kl, L, L_inv


@torch.library.custom_op("sgpa::inducing_gradient", mutates_args=())
def inducing_gradient(
    k_g: Tensor, log_variance: Tensor, raw_s_g: Tensor, v_g: Tensor, L: Tensor, L_inv: Tensor,
    d_state: Tensor, dS: Tensor, d_kl: Tensor, jitter: float, rbf: bool,
) -> Four:  # fmt: skip
    """The gradients of k_g, log σ_f², the raw factors and v_g."""
    given = [x.contiguous() for x in (k_g, log_variance, raw_s_g, v_g, L, L_inv, d_state, dS, d_kl)]
    dk, d_log, d_raw, dv = (torch.empty_like(x) for x in given[:4])
    sizes, tile = _sizes(k_g, SOME[1]), _tile(k_g, SOME[1])
    warps = 4 if tile["MM"] < WIDTH else 8
    launch(kernels.backward, sizes[0] * sizes[-1])(
        *given, dk, d_log, d_raw, dv, *sizes, jitter, **tile, RBF=rbf, num_warps=warps
    )
    return dk, d_log, d_raw, dv


def _sizes(k_g: Tensor, some: int) -> tuple[int, ...]:
    """Heads, M, D, N and the programs of a head: one for its keys, the others for some dimensions each."""
    M, D = k_g.shape[-2:]
    return k_g.shape[:-2].numel(), M, D, row(M, D), 1 + int(-(-D // some))


def _tile(k_g: Tensor, some: int) -> dict[str, int]:
    M, D = k_g.shape[-2:]
    return {"MM": padded(M), "DD": padded(D), "SOME": some}


def _results(k_g: Tensor) -> Five:
    (*heads, M, D), P = k_g.shape, _sizes(k_g, SOME[0])[-1]
    state, S = k_g.new_empty(*heads, M, row(M, D)), k_g.new_empty(*heads, M, M, D)
    kl, L, L_inv = (k_g.new_empty((*heads, *size), dtype=torch.float64) for size in ((P,), (M, M), (M, M)))
    return state, S, kl, L, L_inv


@inducing.register_fake
def _(k_g: Tensor, log_variance: Tensor, raw_s_g: Tensor, v_g: Tensor, jitter: float, rbf: bool) -> Five:
    del log_variance, raw_s_g, v_g, jitter, rbf
    return _results(k_g)


@inducing_gradient.register_fake
def _(
    k_g: Tensor, log_variance: Tensor, raw_s_g: Tensor, v_g: Tensor, L: Tensor, L_inv: Tensor,
    d_state: Tensor, dS: Tensor, d_kl: Tensor, jitter: float, rbf: bool,
) -> Four:  # fmt: skip
    del L, L_inv, d_state, dS, d_kl, jitter, rbf
    dk, d_log, d_raw, dv = (x.new_empty(x.shape) for x in (k_g, log_variance, raw_s_g, v_g))
    return dk, d_log, d_raw, dv


def _save(ctx: Any, inputs: tuple[Any, ...], output: Five) -> None:
    ctx.save_for_backward(*inputs[:4], *output[3:])
    ctx.constants = inputs[4:]


def _backward(ctx: Any, d_state: Tensor, dS: Tensor, d_kl: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    return *inducing_gradient(*ctx.saved_tensors, d_state, dS, d_kl[..., 0], *ctx.constants), None, None


inducing.register_autograd(_backward, setup_context=_save)


def fused_inducing(
    k_g: Tensor, log_variance: Tensor, raw_s_g: Tensor, v_g: Tensor, jitter: float, rbf: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The state, S and, in float64, kl; arguments as in `inducing`."""
    state, S, kl, _, _ = inducing(k_g, log_variance, raw_s_g, v_g, jitter, rbf)
    return state, S, kl.sum(-1)
