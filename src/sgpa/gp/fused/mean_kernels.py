"""The way from points to A = L^-1 K_gx and back, in Triton. A tile is TT tokens of one head of one sequence.

M inducing points, padded to MM; a state has M rows of N numbers. The rest of `mean.py` is in
`attend_kernels.py`.
"""

import triton
import triton.language as tl

from sgpa.gp.fused.tiles import back, exp, exponent, load, prior, product, received, store, turned


@triton.jit
def project(
    X, state, A, unexplained, T, H, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr, xb, xh, xt,
    TT: tl.constexpr, MM: tl.constexpr, DD: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """A of a tile, and what it leaves of the prior variance."""
    row = tl.program_id(0).to(tl.int64)  # offsets may be large
    b, h = row // H, row % H
    t, m, d = tl.program_id(1) * TT + tl.arange(0, TT), tl.arange(0, MM), tl.arange(0, DD)
    state += h * M * N
    x, k, lv = (
        load(X + b * xb + h * xh, t, d, xt, T, D),
        load(state + M, m, d, N, M, D),
        tl.load(state + M + 2 * D),
    )
    K = exp(exponent(x, k, RBF) + lv)  # [TT, MM]
    a = product(K, turned(state, m, m, N, M, M))
    back(A + row * M * T, a, t, m, T, T, M)
    left = tl.maximum(prior(x, lv, RBF) - tl.sum(a * a, 1), 0.0)
    tl.store(unexplained + row * T + t, left, mask=t < T)


@triton.jit
def backward_x(
    X, G, state, A, unexplained, dA, du, log_part, dX, part,
    B, T, H, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr, xb, xh, xt, gb, gh, gt, ob, oh, ot,
    TT: tl.constexpr, MM: tl.constexpr, DD: tl.constexpr, PER: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """Add to dx what comes through dA. A program goes through every so many-th tile of a head.

    Of its tiles together it writes the share of the state's gradient, rows of dL^-1, dk_g, dw_g, d log σ_f²
    and zeros; to log σ_f² it adds the shares found before, one for every PER tiles.
    """
    h, tiles, whole = tl.program_id(1), tl.cdiv(T, TT), tl.cdiv(T, TT * PER)
    m, d = tl.arange(0, MM), tl.arange(0, DD)
    state += h * M * N
    L, k, lv = load(state, m, m, N, M, M), load(state + M, m, d, N, M, D), tl.load(state + M + 2 * D)
    dL, dk = tl.zeros((MM, MM), dtype=tl.float32), tl.zeros((MM, DD), dtype=tl.float32)
    dw, d_lv = tl.zeros((MM, DD), dtype=tl.float32), tl.zeros((MM,), dtype=tl.float32)
    for j in range(tl.program_id(0), B * tiles, tl.num_programs(0)):
        b, t = (j // tiles).to(tl.int64), (j % tiles) * TT + tl.arange(0, TT)
        row = b * H + h
        g = load(G + b * gb + h * gh, t, d, gt, T, D)
        dw = tl.dot(load(A + row * M * T, m, t, T, M, T), g, acc=dw, input_precision="tf32")
        x = load(X + b * xb + h * xh, t, d, xt, T, D)
        K = tl.where((t < T)[:, None], exp(exponent(x, k, RBF) + lv), 0.0)  # [TT, MM]
        dL = tl.dot(load(dA + row * M * T, m, t, T, M, T), K, acc=dL, input_precision="tf32")
        dE = K * product(turned(dA + row * M * T, t, m, T, T, M), L)
        into = dX + b * ob + h * oh
        dx = load(into, t, d, ot, T, D) + product(dE, k)
        dk = tl.dot(tl.trans(dE), x, acc=dk, input_precision="tf32")
        each, left = tl.sum(dE, 0), received(unexplained, du, row, t, T) * prior(x, lv, RBF)
        at = log_part + (b * whole + j % tiles // PER) * H + h
        earlier = tl.load(at, mask=j % tiles % PER == 0, other=0.0)
        d_lv += each + tl.where(m == 0, tl.sum(left, 0) + earlier, 0.0)
        if not RBF:
            dx += 2.0 * left[:, None] * x
        else:
            dx -= tl.sum(dE, 1)[:, None] * x
            dk -= each[:, None] * k
        store(into, dx, t, d, ot, T, D)
    into, last = part + (tl.program_id(0) * H + h) * M * N, tl.arange(0, 16)
    store(into, dL, m, m, N, M, M)
    store(into + M, dk, m, d, N, M, D)
    store(into + M + D, dw, m, d, N, M, D)
    store(into + M + 2 * D, tl.where(last[None, :] == 0, d_lv[:, None], 0.0), m, last, N, M, N - M - 2 * D)
