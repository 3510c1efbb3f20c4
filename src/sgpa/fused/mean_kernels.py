"""The tiles of `mean.py` in Triton. A tile is TT tokens of one head of one sequence.

M inducing points, padded to MM.
"""

import triton
import triton.language as tl

from sgpa.fused.tiles import attended, back, exponent, load, store, turned


@triton.jit
def project(
    X, Y, k_g, L_inv, log_variance, A, P, T, H, M, D, V, xb, xh, xt, vb, vh, vt,
    TT: tl.constexpr, MM: tl.constexpr, DD: tl.constexpr, VV: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """A of a tile, and the tile's share of P = A v."""
    row = tl.program_id(0).to(tl.int64)  # offsets may be large
    b, h = row // H, row % H
    t, m = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, MM)
    d, c = tl.arange(0, DD), tl.arange(0, VV)
    x, v = load(X + b * xb + h * xh, t, d, xt, T, D), load(Y + b * vb + h * vh, t, c, vt, T, V)
    k, L = load(k_g + h * M * D, m, d, D, M, D), load(L_inv + h * M * M, m, m, M, M, M)
    K = tl.where((t < T)[None, :], tl.exp(exponent(k, x, RBF) + tl.load(log_variance + h)), 0.0)
    a = tl.dot(L, K, input_precision="tf32x3")  # [MM, TT]
    store(A + row * M * T, a, m, t, T, M, T)
    share = tl.dot(a, v, input_precision="tf32x3")  # [MM, VV]
    store(P + (row * tl.num_programs(1) + tl.program_id(1)) * M * V, share, m, c, V, M, V)


@triton.jit
def forward(
    X, Y, k_g, L_inv, w_g, log_variance, A, P, out, kl, T, H, M, D, V, xb, xh, xt, vb, vh, vt,
    TT: tl.constexpr, MM: tl.constexpr, DD: tl.constexpr, VV: tl.constexpr, RBF: tl.constexpr,
    ALONE: tl.constexpr,
):  # fmt: skip
    """K v + A' (w_g - P) of a tile, and its share of ½ (v' K v - |P|²).

    A tile that is ALONE in its sequence makes A and P by itself; others read what `project` made.
    """
    row = tl.program_id(0).to(tl.int64)  # offsets may be large
    b, h = row // H, row % H
    t, m = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, MM)
    d, c = tl.arange(0, DD), tl.arange(0, VV)
    X, Y, lv = X + b * xb + h * xh, Y + b * vb + h * vh, tl.load(log_variance + h)
    A, P = A + row * M * T, P + row * M * V
    x, v = load(X, t, d, xt, T, D), load(Y, t, c, vt, T, V)
    if ALONE:
        k, L = load(k_g + h * M * D, m, d, D, M, D), turned(L_inv + h * M * M, m, m, M, M, M)
        K = tl.where((t < T)[:, None], tl.exp(exponent(x, k, RBF) + lv), 0.0)  # [TT, MM]
        a = tl.dot(K, L, input_precision="tf32x3")
        p = tl.dot(tl.trans(a), v, input_precision="tf32x3")  # [MM, VV]
        back(A, a, t, m, T, T, M)
        store(P, p, m, c, V, M, V)
    else:
        a, p = turned(A, t, m, T, T, M), load(P, m, c, V, M, V)
    shift = load(w_g + h * M * V, m, c, V, M, V) - p
    total, quadratic = attended(x, v, X, Y, t, d, c, xt, vt, T, D, V, lv, TT, VV, RBF)
    if tl.program_id(1) == 0:
        quadratic -= tl.sum(tl.sum(p * p, 1), 0)
    tl.store(kl + row * tl.num_programs(1) + tl.program_id(1), 0.5 * quadratic)
    total = tl.dot(a, shift, acc=total, input_precision="tf32x3")
    store(out + row * T * V, total, t, c, V, T, V)


@triton.jit
def reach(A, G, out, T, H, M, V, gb, gh, gt, TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr):
    """A g over all tokens of a head of a sequence, [M, V]: what w_g - P receives from the mean."""
    row = tl.program_id(0).to(tl.int64)  # offsets may be large
    b, h = row // H, row % H
    m, c = tl.arange(0, MM), tl.arange(0, VV)
    total = tl.zeros((MM, VV), dtype=tl.float32)
    for start in range(0, T, TT):
        t = start + tl.arange(0, TT)
        a, g = load(A + row * M * T, m, t, T, M, T), load(G + b * gb + h * gh, t, c, gt, T, V)
        total = tl.dot(a, g, acc=total, input_precision="tf32")
    store(out + row * M * V, total, m, c, V, M, V)


@triton.jit
def backward_A(
    Y, w_g, A, P, G, price, given, D_shift, dA, dY, T, H, M, V, vb, vh, vt, gb, gh, gt, pb, ph,
    TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr,
):  # fmt: skip
    """dA of a tile for g·mean + price kl, added to what is given, and what v gets through P."""
    row = tl.program_id(0).to(tl.int64)  # offsets may be large
    b, h = row // H, row % H
    t, m, c = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, MM), tl.arange(0, VV)
    A, P, w_g = A + row * M * T, P + row * M * V, w_g + h * M * V
    g = load(G + b * gb + h * gh, t, c, gt, T, V)
    if D_shift is None:  # one tile has all of A g, [MM, VV]
        received = tl.dot(load(A, m, t, T, M, T), g, input_precision="tf32")
    else:
        received = load(D_shift + row * M * V, m, c, V, M, V)
    dp = -received - tl.load(price + b * pb + h * ph) * load(P, m, c, V, M, V)
    v = load(Y + b * vb + h * vh, t, c, vt, T, V)
    da = tl.dot(g, turned(w_g, c, m, V, V, M) - turned(P, c, m, V, V, M), input_precision="tf32")
    da = tl.dot(v, tl.trans(dp), acc=da, input_precision="tf32")
    back(dA + row * M * T, da + turned(given + row * M * T, t, m, T, T, M), t, m, T, T, M)
    dv = tl.dot(turned(A, t, m, T, T, M), dp, input_precision="tf32")
    store(dY + row * T * V, dv, t, c, V, T, V)


@triton.jit
def backward_x(
    X, G, k_g, L_inv, log_variance, A, dA, dX, part, B, T, H, M, D, V, xb, xh, xt, gb, gh, gt,
    TT: tl.constexpr, MM: tl.constexpr, DD: tl.constexpr, VV: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """dx from dA. A program goes through every so many-th tile of a head.

    Of its tiles together it writes the share of dL^-1, dk_g, dw_g and d log σ_f², side by side:
    [M, M + D + V + 1].
    """
    h, tiles = tl.program_id(1), tl.cdiv(T, TT)
    m, d, c = tl.arange(0, MM), tl.arange(0, DD), tl.arange(0, VV)
    lv = tl.load(log_variance + h)
    k, L = load(k_g + h * M * D, m, d, D, M, D), load(L_inv + h * M * M, m, m, M, M, M)
    dL, dk = tl.zeros((MM, MM), dtype=tl.float32), tl.zeros((MM, DD), dtype=tl.float32)
    dw, d_lv = tl.zeros((MM, VV), dtype=tl.float32), tl.zeros((MM,), dtype=tl.float32)
    for j in range(tl.program_id(0), B * tiles, tl.num_programs(0)):
        b, t = (j // tiles).to(tl.int64), (j % tiles) * TT + tl.arange(0, TT)
        row = b * H + h
        g = load(G + b * gb + h * gh, t, c, gt, T, V)
        dw = tl.dot(load(A + row * M * T, m, t, T, M, T), g, acc=dw, input_precision="tf32")
        x = load(X + b * xb + h * xh, t, d, xt, T, D)
        K = tl.where((t < T)[:, None], tl.exp(exponent(x, k, RBF) + lv), 0.0)  # [TT, MM]
        dL = tl.dot(load(dA + row * M * T, m, t, T, M, T), K, acc=dL, input_precision="tf32")
        dE = K * tl.dot(turned(dA + row * M * T, t, m, T, T, M), L, input_precision="tf32x3")  # [TT, MM]
        dx = tl.dot(dE, k, input_precision="tf32x3")
        dk = tl.dot(tl.trans(dE), x, acc=dk, input_precision="tf32")
        each = tl.sum(dE, 0)
        d_lv += each
        if RBF:
            dx -= tl.sum(dE, 1)[:, None] * x
            dk -= each[:, None] * k
        store(dX + row * T * D, dx, t, d, D, T, D)
    N = M + D + V + 1
    into = part + (tl.program_id(0) * H + h) * M * N
    store(into, dL, m, m, N, M, M)
    store(into + M, dk, m, d, N, M, D)
    store(into + M + D, dw, m, c, N, M, V)
    tl.store(into + M + D + V + m * N, d_lv, mask=m < M)
