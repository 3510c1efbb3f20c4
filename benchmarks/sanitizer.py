"""Run every fused operator, forward and backward, at sizes that do not fit the tiles, for a memory checker.

Usage: compute-sanitizer --tool memcheck python -m benchmarks.sanitizer
       compute-sanitizer --tool racecheck python -m benchmarks.sanitizer
With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor is allocated separately.
"""

import torch

from sgpa.gp.fused import fused_attend, fused_inducing, fused_mean, fused_variance

SHAPES = ((2, 2, 70, 10, 12), (3, 1, 5, 3, 16), (1, 2, 129, 33, 20))  # B, H, T, M, D


def main() -> None:
    """Run each operator once. Results are printed so that no computation is optimised away."""
    for B, H, T, M, D in SHAPES:
        for rbf in (True, False):
            torch.manual_seed(0)

            def leaf(*shape: int, scale: float = 0.3) -> torch.Tensor:
                return (scale * torch.randn(*shape, device="cuda")).requires_grad_()

            xv, k_g, log_variance = leaf(B, T, 2, H, D), leaf(H, M, D), leaf(H)
            raw, v_g = leaf(H, D, M, M), leaf(H, M, D)
            state, S, kl_g = fused_inducing(k_g, log_variance, raw, v_g, 1e-6, rbf)
            mean, kl, A, left = fused_mean(xv, state, rbf)
            variance, attended = fused_variance(left, A, S), fused_attend(xv, log_variance, rbf)
            total = mean.sum() + kl.sum() + kl_g.sum() + variance.sum() + attended.sum()
            total.backward()
            torch.cuda.synchronize()
            print(f"B{B} H{H} T{T} M{M} D{D} rbf={rbf}: {total.item():.4f} {xv.grad.norm().item():.4f}")


if __name__ == "__main__":
    main()
