"""Compare the fused operators with their plain versions: error against float64, and time.

Usage: python -m benchmarks.operators [--device cuda] [--quick]
Errors are relative to the largest entry: first of the results, then of the gradients. Times are of CUDA
graphs, without launches from Python. On a CPU, with TRITON_INTERPRET=1 in the environment, only errors are
printed; `--quick` uses small sizes.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sgpa.attention.global_state import lower
from sgpa.gp.fused import fused_attend, fused_inducing, fused_mean, fused_variance, pack
from sgpa.gp.kernels import ArdRbfKernel
from sgpa.gp.linalg import JITTERS, triangular_inverse
from sgpa.gp.posteriors import orthogonal_kl_a, orthogonal_kl_g, orthogonal_mean, plain_variance, unexplained

SHAPES = (  # B, H, T, M and the width D = V of heads
    (100, 4, 64, 32, 32),
    (500, 4, 64, 32, 32),
    (8, 8, 2048, 32, 32),
    (64, 8, 70, 10, 10),
    (20, 4, 130, 64, 64),
)
QUICK = ((2, 2, 70, 5, 8),)
Function = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Case:
    """An operator, its plain version, and inputs."""

    name: str
    plain: Function
    fused: Function
    given: tuple[Tensor, ...]


def gram(x: Tensor, y: Tensor, log_variance: Tensor) -> Tensor:
    """K_xy of an ARD-RBF kernel, of points in units of the length-scales."""
    return (ArdRbfKernel.exponent(x, y) + log_variance.view(-1, 1, 1)).exp()


def plain_attend(xv: Tensor, log_variance: Tensor) -> Sequence[Tensor]:
    """K_xx v."""
    x, v = xv.transpose(1, 3).unbind(2)  # [B, H, T, D]
    return (gram(x, x, log_variance) @ v,)


def plain_mean(xv: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor) -> Sequence[Tensor]:
    """Mean, amortised KL, A and unexplained variance of eq:odsvgp, with every matrix written out."""
    x, v = xv.transpose(1, 3).unbind(2)  # [B, H, T, D]
    A = L_inv @ gram(k_g, x, log_variance)  # [B, H, M, T]
    Kv, Av = gram(x, x, log_variance) @ v, A @ v
    left = unexplained(log_variance.exp().unsqueeze(-1).expand(A.shape[:2] + A.shape[3:]), A)
    return orthogonal_mean(Kv, A.mT @ w_g, A, Av), orthogonal_kl_a(Kv, v, Av), A, left


def plain_inducing(k_g: Tensor, log_variance: Tensor, raw: Tensor, v_g: Tensor) -> Sequence[Tensor]:
    """The state of the global keys, S and the global KL, in float64 with torch's own functions."""
    k, lv, raw, v = (y.double() for y in (k_g, log_variance, raw, v_g))
    K = gram(k, k, lv)
    L = torch.linalg.cholesky_ex(K + torch.diag_embed(JITTERS[0] * K.diagonal(dim1=-2, dim2=-1))).L
    s, w = lower(raw), L.mT @ v
    state = pack(triangular_inverse(L), k, w, lv)[..., : len(w[0]) + 2 * k.shape[-1] + 1]
    return state.to(k_g.dtype), (s @ s.mT).movedim(-3, -1).to(k_g.dtype), orthogonal_kl_g(w, s)


def cases(B: int, H: int, T: int, M: int, D: int, device: str) -> Iterator[Case]:
    """All operators with random inputs."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    xv, k_g, w_g = normal(B, T, 2, H, D), 0.5 * normal(H, M, D), normal(H, M, D)
    xv[:, :, 0] *= 0.5
    log_variance, raw = 0.1 * normal(H), 0.3 * normal(H, D, M, M)
    L_inv = plain_inducing(k_g, log_variance, raw, w_g)[0][..., :M]
    A, s = normal(B, H, M, T) / M**0.5, (0.3 * normal(H, D, M, M)).tril()
    left = normal(B, H, T).abs()

    def mean(xv: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor) -> Sequence[Tensor]:
        return fused_mean(xv, pack(L_inv, k_g, w_g, log_variance), True)

    def plain_form(left: Tensor, A: Tensor, s: Tensor) -> Sequence[Tensor]:
        explained = A.square().sum(-2).detach()
        return (plain_variance(left + explained, A, s),)

    def form(left: Tensor, A: Tensor, s: Tensor) -> Sequence[Tensor]:
        explained = A.square().sum(-2)
        kqq = left + explained.detach()
        return (fused_variance(kqq - explained, A, torch.einsum("hvmk,hvnk->hmnv", s, s)),)

    def inducing(k_g: Tensor, log_variance: Tensor, raw: Tensor, v_g: Tensor) -> Sequence[Tensor]:
        state, S, kl = fused_inducing(k_g, log_variance, raw, v_g, JITTERS[0], True)
        return state[..., : M + 2 * D + 1], S, kl  # without the padding of a row

    yield Case("attend", plain_attend, lambda *a: (fused_attend(*a, rbf=True),), (xv, log_variance))
    yield Case("mean", plain_mean, mean, (xv, k_g, L_inv, w_g, log_variance))
    yield Case("variance", plain_form, form, (left, A, s))
    yield Case("inducing", plain_inducing, inducing, (k_g, log_variance, raw, w_g))


def passes(function: Function, given: Sequence[Tensor], weights: Sequence[Tensor] | None) -> list[Tensor]:
    """The results and, with weights, the gradients of their weighted sum."""
    leaves = [x.detach().requires_grad_(weights is not None) for x in given]
    results = list(function(*leaves))
    if weights is None:
        return results
    return [y.detach() for y in results] + list(torch.autograd.grad(results, leaves, weights))


def weighted(case: Case) -> list[Tensor]:
    """A weight for every entry of every result."""
    results = passes(case.plain, case.given, None)
    return [torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=y.device).view_as(y) for y in results]


def errors(case: Case, function: Function) -> str:
    """Largest difference from float64, relative to the largest entry."""
    weights = weighted(case)
    exact = passes(case.plain, [x.double() for x in case.given], [w.double() for w in weights])
    results = passes(function, case.given, weights)
    apart = ((x - y).abs().max() / y.abs().max() for x, y in zip(results, exact, strict=True))
    return " ".join(f"{float(error):.0e}" for error in apart)


def milliseconds(case: Case, function: Function, backward: bool) -> str:
    """Median time of the kernels, captured as a CUDA graph."""
    if not case.given[0].is_cuda:
        return "–"
    from triton.testing import do_bench_cudagraph  # noqa: PLC0415  only where there is a GPU

    job = partial(passes, function, case.given, weighted(case) if backward else None)
    return f"{do_bench_cudagraph(job, return_mode='median'):.3f}"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(arguments)
    where = torch.cuda.get_device_name() if args.device == "cuda" else args.device
    print(f"{where}, torch {torch.__version__}\n")
    print("| B H T M D | operator | error plain | error fused | forward: plain, fused (ms) | and backward |")
    print("|---|---|---|---|--:|--:|")
    for shape in QUICK if args.quick else SHAPES:
        for case in cases(*shape, args.device):
            both = (case.plain, case.fused)
            apart = [errors(case, function) for function in both]
            times = [", ".join(milliseconds(case, f, backward) for f in both) for backward in (False, True)]
            cells = [" ".join(map(str, shape)), case.name, *apart, *times]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
