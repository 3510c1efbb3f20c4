"""The tiles of `attend.py` in Triton: one program per tile of tokens of one head of one sequence."""

import triton
import triton.language as tl

from sgpa.fused.tiles import attended, gram, load, store


@triton.jit
def forward(
    X, Y, log_variance, out, T, H, D, V, xb, xh, xt, vb, vh, vt,
    TT: tl.constexpr, DD: tl.constexpr, VV: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """out[t] = Σ_u K(x_t, x_u) v_u."""
    row = tl.program_id(0).to(tl.int64)
    b, h = row // H, row % H
    t, d, c = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, DD), tl.arange(0, VV)
    X, Y = X + b * xb + h * xh, Y + b * vb + h * vh
    x, v = load(X, t, d, xt, T, D), load(Y, t, c, vt, T, V)
    total, _ = attended(x, v, X, Y, t, d, c, xt, vt, T, D, V, tl.load(log_variance + h), TT, VV, RBF)
    store(out + row * T * V, total, t, c, V, T, V)


@triton.jit
def backward(
    X, Y, log_variance, G, price, dX, dY, part, T, H, D, V, xb, xh, xt, vb, vh, vt, gb, gh, gt, pb, ph,
    TT: tl.constexpr, DD: tl.constexpr, VV: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """Gradients of g·out + ½ price v' K v. Both ways of a pair are met at once, for K is symmetric.

    With w = g + ½ price v:  dE_tu = K_tu (w_t·v_u + v_t·w_u),  dx_t = Σ_u dE_tu (x_u - x_t),
    dv_t = Σ_u K_tu (g_u + price v_u).
    """
    row = tl.program_id(0).to(tl.int64)
    b, h = row // H, row % H
    t, d, c = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, DD), tl.arange(0, VV)
    X, Y, G = X + b * xb + h * xh, Y + b * vb + h * vh, G + b * gb + h * gh
    lv, p = tl.load(log_variance + h), 0.0
    if price is not None:
        p = tl.load(price + b * pb + h * ph)
    x, v = load(X, t, d, xt, T, D), load(Y, t, c, vt, T, V)
    w = load(G, t, c, gt, T, V) + 0.5 * p * v
    dx, dv = tl.zeros((TT, DD), dtype=tl.float32), tl.zeros((TT, VV), dtype=tl.float32)
    own = tl.zeros((TT,), dtype=tl.float32)  # Σ_u dE_tu
    each = tl.zeros((TT,), dtype=tl.float32)  # the same without u = t where that has no gradient
    for start in range(0, T, TT):
        u = start + tl.arange(0, TT)
        y, z, g = load(X, u, d, xt, T, D), load(Y, u, c, vt, T, V), load(G, u, c, gt, T, V)
        K = gram(x, y, t, u, lv, RBF)
        dE = tl.dot(w, tl.trans(z), input_precision="tf32")
        dE = K * tl.dot(v, tl.trans(g + 0.5 * p * z), acc=dE, input_precision="tf32")
        own += tl.sum(dE, 1)
        if RBF:
            dE = tl.where(t[:, None] == u[None, :], 0.0, dE)
            each += tl.sum(dE, 1)
        dx += tl.dot(dE, y, input_precision="tf32x3")
        dv += tl.dot(K, g + p * z, input_precision="tf32")
    if RBF:
        dx -= each[:, None] * x
    store(dX + row * T * D, dx, t, d, D, T, D)
    store(dY + row * T * V, dv, t, c, V, T, V)
    tl.store(part + (b * tl.num_programs(1) + tl.program_id(1)) * H + h, 0.5 * tl.sum(own, 0))  # of log σ_f²
