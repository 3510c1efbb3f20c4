"""What the Triton kernels share. x, y are points in units of the length-scales; K(x, y) = exp(exponent).

Products whose results are subtracted from nearly equal ones are made of three TF32 products each (`tf32x3`),
which is as exact as float32; gradients that end in a sum over many terms take one.
"""

import triton
import triton.language as tl


@triton.jit
def load(base, rows, cols, stride, R, C):
    """base[rows, cols] with zeros outside [R, C]."""
    return tl.load(
        base + rows[:, None] * stride + cols[None, :],
        mask=(rows < R)[:, None] & (cols < C)[None, :],
        other=0.0,
    )


@triton.jit
def turned(base, rows, cols, stride, R, C):
    """base[cols, rows], turned to [rows, cols], with zeros outside [R, C]."""
    return tl.load(
        base + cols[None, :] * stride + rows[:, None],
        mask=(rows < R)[:, None] & (cols < C)[None, :],
        other=0.0,
    )


@triton.jit
def store(base, value, rows, cols, stride, R, C):
    """base[rows, cols] = value inside [R, C]."""
    tl.store(
        base + rows[:, None] * stride + cols[None, :],
        value,
        mask=(rows < R)[:, None] & (cols < C)[None, :],
    )


@triton.jit
def back(base, value, rows, cols, stride, R, C):
    """base[cols, rows] = value [rows, cols]: undoes `turned`."""
    tl.store(
        base + cols[None, :] * stride + rows[:, None],
        value,
        mask=(rows < R)[:, None] & (cols < C)[None, :],
    )


@triton.jit
def exponent(x, y, RBF: tl.constexpr):
    """-½ |x - y|² for the RBF kernel, x·y for the exponential one, for all pairs of rows."""
    e = tl.dot(x, tl.trans(y), input_precision="tf32x3")
    if RBF:
        e = tl.minimum(e - 0.5 * tl.sum(x * x, 1)[:, None] - 0.5 * tl.sum(y * y, 1)[None, :], 0.0)
    return e


@triton.jit
def gram(x, y, t, u, log_variance, RBF: tl.constexpr):
    """K between tokens t and u of one sequence; with the RBF kernel a point is at no distance of itself."""
    e = exponent(x, y, RBF)
    if RBF:
        e = tl.where(t[:, None] == u[None, :], 0.0, e)
    return tl.exp(e + log_variance)


@triton.jit
def attended(
    x, v, X, Y, t, d, dv, xt, vt, T, D, V, log_variance,
    TT: tl.constexpr, VV: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """Σ_u K_tu v_u of a tile of tokens t over all tokens u, and the tile's share of v' K v."""
    total = tl.zeros((TT, VV), dtype=tl.float32)
    for start in range(0, T, TT):
        u = start + tl.arange(0, TT)
        K = gram(x, load(X, u, d, xt, T, D), t, u, log_variance, RBF)
        total += tl.dot(K, load(Y, u, dv, vt, T, V), input_precision="tf32x3")
    return total, tl.sum(tl.sum(v * total, 1), 0)
