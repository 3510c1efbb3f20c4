"""The tiles of `attend.py` and `mean.py` in Triton: a tile of tokens of one head of one sequence.

Where there are projections A [M, T] on inducing points, K - A'A takes the place of K.
"""

import triton
import triton.language as tl

from sgpa.gp.fused.tiles import back, gram, load, product, received, store, turned


@triton.jit
def forward(
    X, Y, A, w_g, log_variance, out, kl,
    T, H, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr, lh, xb, xh, xt, ob, oh, ot,
    TT: tl.constexpr, UU: tl.constexpr, MM: tl.constexpr, DD: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """out[t] = Σ_u K(x_t, x_u) v_u, the tokens u taken UU at a time.

    With A it is Σ_u (K - A'A)_tu v_u + a_t' w_g, and kl gets the tile's share of ½ v' (K - A'A) v.
    """
    row = tl.program_id(0).to(tl.int64)  # offsets may be large
    b, h = row // H, row % H
    t, m, d = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, MM), tl.arange(0, DD)
    X, Y, lv = X + b * xb + h * xh, Y + b * xb + h * xh, tl.load(log_variance + h * lh)
    x, total = load(X, t, d, xt, T, D), tl.zeros((TT, DD), dtype=tl.float32)
    if A is not None:
        A += row * M * T
        a = turned(A, t, m, T, T, M)
    for start in range(0, T, UU):
        u = start + tl.arange(0, UU)
        K = gram(x, load(X, u, d, xt, T, D), t, u, lv, RBF)
        if A is not None:
            K -= product(a, load(A, m, u, T, M, T))
        total += product(K, load(Y, u, d, xt, T, D))
    if A is not None:
        share = 0.5 * tl.sum(tl.sum(load(Y, t, d, xt, T, D) * total, 1), 0)
        tl.store(kl + row * tl.num_programs(1) + tl.program_id(1), share)
        total += product(a, load(w_g + h * M * N, m, d, N, M, D))
    store(out + b * ob + h * oh, total, t, d, ot, T, D)


@triton.jit
def backward(
    X, Y, A, w_g, log_variance, unexplained, G, price, given, du, dX, dY, dA, part,
    T, H, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr, lh, xb, xh, xt, gb, gh, gt, ob, oh, ot, pb, ph,
    TT: tl.constexpr, UU: tl.constexpr, MM: tl.constexpr, DD: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """Gradients of g·out + price kl. K is symmetric, so both directions of a pair are computed together.

    With w = g + ½ price v and s_tu = w_t·v_u + v_t·w_u:  dx_t = Σ_u s_tu K_tu (x_u - x_t),
    dv_t = Σ_u K_tu (g_u + price v_u), or with K - A'A for K; da_t = w_g g_t - Σ_u s_tu a_u - 2 a_t du_t,
    added to what is given.
    """
    row = tl.program_id(0).to(tl.int64)  # offsets may be large
    b, h = row // H, row % H
    t, m, d = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, MM), tl.arange(0, DD)
    X, Y, G = X + b * xb + h * xh, Y + b * xb + h * xh, G + b * gb + h * gh
    lv, p = tl.load(log_variance + h * lh), 0.0
    if A is not None:
        A += row * M * T
        a, da, p = (
            turned(A, t, m, T, T, M),
            tl.zeros((TT, MM), dtype=tl.float32),
            tl.load(price + b * pb + h * ph),
        )
    x, v = load(X, t, d, xt, T, D), load(Y, t, d, xt, T, D)
    w = load(G, t, d, gt, T, D) + 0.5 * p * v
    dx, dv = tl.zeros((TT, DD), dtype=tl.float32), tl.zeros((TT, DD), dtype=tl.float32)
    own = tl.zeros((TT,), dtype=tl.float32)  # Σ_u s_tu K_tu
    each = tl.zeros((TT,), dtype=tl.float32)  # the same without u = t where that has no gradient
    for start in range(0, T, UU):
        u = start + tl.arange(0, UU)
        y, z, g = load(X, u, d, xt, T, D), load(Y, u, d, xt, T, D), load(G, u, d, gt, T, D)
        K = gram(x, y, t, u, lv, RBF)
        s = tl.dot(w, tl.trans(z), input_precision="tf32")
        s = tl.dot(v, tl.trans(g + 0.5 * p * z), acc=s, input_precision="tf32")
        dE = K * s
        own += tl.sum(dE, 1)
        if RBF:
            dE = tl.where(t[:, None] == u[None, :], 0.0, dE)
            each += tl.sum(dE, 1)
        dx += product(dE, y)
        if A is not None:
            a_u = turned(A, u, m, T, T, M)  # [UU, MM]
            da = tl.dot(s, a_u, acc=da, input_precision="tf32")
            K = tl.dot(-a, tl.trans(a_u), acc=K, input_precision="tf32")
        dv = tl.dot(K, g + p * z, acc=dv, input_precision="tf32")
    if RBF:
        dx -= each[:, None] * x
    store(dX + b * ob + h * oh, dx, t, d, ot, T, D)
    store(dY + b * ob + h * oh, dv, t, d, ot, T, D)
    tl.store(part + (b * tl.num_programs(1) + tl.program_id(1)) * H + h, 0.5 * tl.sum(own, 0))  # of log σ_f²
    if A is not None:
        w = turned(w_g + h * M * N, d, m, N, D, M)
        da = tl.dot(load(G, t, d, gt, T, D), w, acc=-da, input_precision="tf32")
        da += turned(given + row * M * T, t, m, T, T, M)
        da -= 2.0 * a * received(unexplained, du, row, t, T)[:, None]
        back(dA + row * M * T, da, t, m, T, T, M)
