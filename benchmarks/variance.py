"""The fused marginal variance against the plain one: error against float64, and time, in one run.

Usage: python -m benchmarks.variance
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from sgpa.fused import fused_variance
from sgpa.posteriors import plain_variance

SHAPES = (
    (100, 4, 64, 32, 32),
    (500, 4, 64, 32, 32),
    (64, 8, 70, 10, 10),
    (3, 2, 130, 50, 16),
    (20, 4, 64, 32, 64),
)


def passes(function: Callable[..., Tensor], kqq: Tensor, A: Tensor, s: Tensor, g: Tensor) -> list[Tensor]:
    """Output and gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in (kqq, A, s)]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, g)]


def milliseconds(function: Callable[[], object], repeats: int = 30) -> float:
    """Median time on the GPU."""
    taken = []
    for i in range(repeats + 5):
        torch.cuda.synchronize()
        started = time.perf_counter()
        function()
        torch.cuda.synchronize()
        if i >= 5:
            taken.append(1e3 * (time.perf_counter() - started))
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; error relative to the largest entry\n")
    print("| B H T M V | error plain | error fused | plain (ms) | fused (ms) |\n|---|---|---|--:|--:|")
    for B, H, T, M, V in SHAPES:
        torch.manual_seed(0)
        A = torch.randn(B, H, M, T, device="cuda") / M**0.5
        s = (0.3 * torch.randn(H, V, M, M, device="cuda")).tril()
        kqq = A.square().sum(-2) + 0.1 * torch.randn(B, H, T, device="cuda")
        g = torch.randn(B, H, T, V, device="cuda")
        exact = passes(plain_variance, *(x.double() for x in (kqq, A, s, g)))
        errors = []
        for function in (plain_variance, fused_variance):
            found = passes(function, kqq, A, s, g)
            apart = [float((x - y).abs().max() / y.abs().max()) for x, y in zip(found, exact, strict=True)]
            errors.append(" ".join(f"{error:.0e}" for error in apart))
        times = [
            milliseconds(partial(passes, function, kqq, A, s, g))
            for function in (plain_variance, fused_variance)
        ]
        print(
            f"| {B} {H} {T} {M} {V} | {errors[0]} | {errors[1]} | {times[0]:.2f} | {times[1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
