"""The kernel of `factor.py` in Triton: one program per matrix."""

import triton
import triton.language as tl


@triton.jit
def factor(K, L, L_inv, M, jitter, MM: tl.constexpr):
    """Column j of L is column j of what is left of K over the root of its pivot."""
    m, n = tl.arange(0, MM)[:, None], tl.arange(0, MM)[None, :]
    at = tl.program_id(0) * M * M + m * M + n
    inside = (m < M) & (n < M)
    left = tl.load(K + at, mask=inside, other=0.0)
    left += tl.where(m == n, left * jitter, 0.0)
    lower = tl.zeros((MM, MM), dtype=tl.float64)
    inverse = tl.where(m == n, 1.0, 0.0).to(tl.float64)
    for j in range(M):
        column = tl.sum(tl.where(n == j, left, 0.0), 1)
        over = 1.0 / tl.sqrt(tl.sum(tl.where(tl.arange(0, MM) == j, column, 0.0), 0))
        down = column[:, None] * over
        across = tl.sum(tl.where(m == j, left, 0.0), 0)[None, :] * over  # row j, the same numbers
        left -= tl.where((m > j) & (n > j), down * across, 0.0)
        lower = tl.where((n == j) & (m >= j), down, lower)
        row = tl.sum(tl.where(m == j, inverse, 0.0), 0)[None, :] * over
        inverse = tl.where(m == j, row, inverse - tl.where(m > j, down, 0.0) * row)
    tl.store(L + at, lower, mask=inside)
    tl.store(L_inv + at, inverse, mask=inside)
