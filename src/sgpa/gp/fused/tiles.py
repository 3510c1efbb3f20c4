"""What the Triton kernels share. x, y are points in units of the length-scales; K(x, y) = exp(exponent).

Products whose results are subtracted from nearly equal ones are made of three TF32 products each (`product`),
which is as exact as float32; gradients that end in a sum over many terms take one.
"""

import triton
import triton.language as tl


@triton.jit
def summed(part, out, shares, size, SS: tl.constexpr, CC: tl.constexpr):
    """The sum of all shares, [size] each, of CC numbers: a kernel that several operators end in."""
    s, i = tl.arange(0, SS), tl.program_id(0) * CC + tl.arange(0, CC)
    tl.store(out + i, tl.sum(load(part, s, i, size, shares, size), 0), mask=i < size)


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
    """The transpose of base[cols, rows], [rows, cols], with zeros outside [R, C]."""
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
    """base[cols, rows] = the transpose of value [rows, cols]: the inverse of `turned`."""
    tl.store(
        base + cols[None, :] * stride + rows[:, None],
        value,
        mask=(rows < R)[:, None] & (cols < C)[None, :],
    )


@triton.jit
def near(x):
    """x rounded to TF32: ten bits of its fraction."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def product(x, y):
    """x y as exact as in float32: from the parts that TF32 represents and their remainders.

    Matrix units truncate their sums, so that a sum should not begin with a large number.
    """
    x_near, y_near = near(x), near(y)
    total = tl.dot(x - x_near, y_near, input_precision="tf32")
    total = tl.dot(x_near, y - y_near, acc=total, input_precision="tf32")
    return tl.dot(x_near, y_near, acc=total, input_precision="tf32")


@triton.jit
def exponent(x, y, RBF: tl.constexpr):
    """-½ |x - y|² for the RBF kernel, x·y for the exponential one, for all pairs of rows."""
    e = product(x, tl.trans(y))
    if RBF:
        e = tl.minimum(e - 0.5 * tl.sum(x * x, 1)[:, None] - 0.5 * tl.sum(y * y, 1)[None, :], 0.0)
    return e


@triton.jit
def exp(e):
    """exp(e). The hardware computes powers of two; the rounding error of e log2(e) is corrected.

    Without it the error grows with |e|, which shows where K is large: in the exponential kernel.
    """
    e = tl.maximum(e, -200.0)  # of which the power is zero
    power = e * 1.4426950408889634
    lost = tl.fma(e, 1.4426950408889634, -power) + e * 1.9259629911266175e-08
    return tl.exp2(power) * (1.0 + 0.6931471805599453 * lost)


@triton.jit
def gram(x, y, t, u, log_variance, RBF: tl.constexpr):
    """K between tokens t and u of one sequence; with the RBF kernel a point has distance zero to itself."""
    e = exponent(x, y, RBF)
    if RBF:
        e = tl.where(t[:, None] == u[None, :], 0.0, e)
    return exp(e + log_variance)


@triton.jit
def prior(x, log_variance, RBF: tl.constexpr):
    """K(x_t, x_t) of a tile, [TT]."""
    return exp(tl.sum(x * x, 1) * (0.0 if RBF else 1.0) + log_variance)


@triton.jit
def received(unexplained, du, row, t, T):
    """The gradient of the unexplained variance of a tile, [TT]; where nothing is left there is none."""
    left = tl.load(unexplained + row * T + t, mask=t < T, other=0.0)
    return tl.where(left > 0.0, tl.load(du + row * T + t, mask=t < T, other=0.0), 0.0)
