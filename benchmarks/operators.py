"""The fused operators against their plain versions: error against float64, and time, in one run.

Usage: python -m benchmarks.operators [--device cuda] [--quick]
Errors are relative to the largest entry: first of the results, then of the gradients. Times are of kernels,
as in a recorded step: nothing is launched from Python. On a CPU, with TRITON_INTERPRET=1 in the environment,
there are errors only; `--quick` has sizes for that.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from sgpa.fused import fused_attend, fused_factor, fused_mean, fused_variance
from sgpa.kernels import ArdRbfKernel
from sgpa.linalg import JITTERS, triangular_inverse
from sgpa.posteriors import orthogonal_kl_a, plain_variance

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
    """An operator, its plain version, and numbers to try both on."""

    name: str
    plain: Function
    fused: Function
    given: tuple[Tensor, ...]
    backward: bool = True


def gram(x: Tensor, y: Tensor, log_variance: Tensor) -> Tensor:
    """K_xy of an ARD-RBF kernel, of points in units of the length-scales."""
    return (ArdRbfKernel.exponent(x, y) + log_variance.view(-1, 1, 1)).exp()


def plain_attend(x: Tensor, v: Tensor, log_variance: Tensor) -> Sequence[Tensor]:
    """K_xx v."""
    return (gram(x, x, log_variance) @ v,)


def plain_mean(
    x: Tensor, v: Tensor, k_g: Tensor, L_inv: Tensor, w_g: Tensor, log_variance: Tensor
) -> Sequence[Tensor]:
    """Mean, amortised KL and A of eq:odsvgp, with every matrix written out."""
    A = L_inv @ gram(k_g, x, log_variance)  # [B, H, M, T]
    Kv = gram(x, x, log_variance) @ v  # [B, H, T, V]
    return Kv - A.mT @ (A @ v) + A.mT @ w_g, orthogonal_kl_a(Kv, v, A), A


def plain_factor(K: Tensor) -> Sequence[Tensor]:
    """L and L^-1 by torch's own."""
    jitter = torch.diag_embed(JITTERS[0] * K.diagonal(dim1=-2, dim2=-1))
    L = torch.linalg.cholesky_ex(K + jitter).L
    return L, triangular_inverse(L)


def cases(B: int, H: int, T: int, M: int, D: int, device: str) -> Iterator[Case]:
    """All operators on random numbers."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    x, v, k_g, w_g = 0.5 * normal(B, H, T, D), normal(B, H, T, D), 0.5 * normal(H, M, D), normal(H, M, D)
    log_variance = 0.1 * normal(H)
    K = gram(k_g.double(), k_g.double(), log_variance.double())  # [H, M, M]
    L_inv = plain_factor(K)[1].float()
    A = normal(B, H, M, T) / M**0.5
    s = (0.3 * normal(H, D, M, M)).tril()
    kqq = A.square().sum(-2) + 0.1 * normal(B, H, T)  # some of the variance is explained, some not

    def variance(kqq: Tensor, A: Tensor, s: Tensor) -> Sequence[Tensor]:
        return (fused_variance(kqq, A, torch.einsum("hvmk,hvnk->hmnv", s, s)),)

    yield Case("attend", plain_attend, lambda *a: (fused_attend(*a, rbf=True),), (x, v, log_variance))
    given = (x, v, k_g, L_inv, w_g, log_variance)
    yield Case("mean", plain_mean, partial(fused_mean, rbf=True), given)
    yield Case("variance", lambda *a: (plain_variance(*a),), variance, (kqq, A, s))
    yield Case("factor", plain_factor, lambda K: fused_factor(K, JITTERS[0]), (K,), backward=False)


def passes(function: Function, given: Sequence[Tensor], weights: Sequence[Tensor] | None) -> list[Tensor]:
    """Results and, of their weighted sum, gradients."""
    leaves = [x.detach().requires_grad_(weights is not None) for x in given]
    results = list(function(*leaves))
    if weights is None:
        return results
    return [y.detach() for y in results] + list(torch.autograd.grad(results, leaves, weights))


def weighted(case: Case) -> list[Tensor] | None:
    """A weight for every entry of every result."""
    if not case.backward:
        return None
    results = passes(case.plain, case.given, None)
    return [torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device=y.device).view_as(y) for y in results]


def errors(case: Case, function: Function) -> str:
    """How far from float64."""
    weights = weighted(case)
    doubles = None if weights is None else [w.double() for w in weights]
    exact = passes(case.plain, [x.double() for x in case.given], doubles)
    found = passes(function, case.given, weights)
    apart = ((x - y).abs().max() / y.abs().max() for x, y in zip(found, exact, strict=True))
    return " ".join(f"{float(error):.0e}" for error in apart)


def milliseconds(case: Case, function: Function, backward: bool) -> str:
    """Median time of the kernels, recorded as a CUDA graph."""
    if not case.given[0].is_cuda or (backward and not case.backward):
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
