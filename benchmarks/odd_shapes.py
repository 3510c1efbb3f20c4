"""Every fused operator, forward and backward, at sizes that fit no tile: something for a memory checker.

Usage: compute-sanitizer --tool memcheck python -m benchmarks.odd_shapes
       compute-sanitizer --tool racecheck python -m benchmarks.odd_shapes
With PYTORCH_NO_CUDA_MEMORY_CACHING=1 every tensor has bounds of its own.
"""

import torch

from sgpa.fused import fused_attend, fused_factor, fused_mean, fused_variance

SHAPES = ((2, 2, 70, 10, 12), (3, 1, 5, 3, 16), (1, 2, 129, 33, 20))  # B, H, T, M, D


def main() -> None:
    """Run each once, and say what the numbers are so that nothing is left out."""
    for B, H, T, M, D in SHAPES:
        for rbf in (True, False):
            torch.manual_seed(0)

            def leaf(*shape: int, scale: float = 0.3) -> torch.Tensor:
                return (scale * torch.randn(*shape, device="cuda")).requires_grad_()

            x, v, k_g, w_g = leaf(B, H, T, D), leaf(B, H, T, D), leaf(H, M, D), leaf(H, M, D)
            K = torch.eye(M, dtype=torch.float64, device="cuda").expand(H, M, M) * 1.5 + 0.1
            L_inv = fused_factor(K, 1e-6)[1].float().requires_grad_()
            S, log_variance, kqq = leaf(H, M, M, D), leaf(H), leaf(B, H, T)
            mean, kl, A = fused_mean(x, v, k_g, L_inv, w_g, log_variance, rbf)
            variance = fused_variance(kqq, A, S)
            attended = fused_attend(x, v, log_variance, rbf)
            total = mean.sum() + kl.sum() + variance.sum() + attended.sum()
            total.backward()
            torch.cuda.synchronize()
            print(f"B{B} H{H} T{T} M{M} D{D} rbf={rbf}: {total.item():.4f} {x.grad.norm().item():.4f}")


if __name__ == "__main__":
    main()
