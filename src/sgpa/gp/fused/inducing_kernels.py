"""The kernels of `inducing.py` in Triton, in float64.

The first programs of a grid compute what depends on the keys of one head each; the others compute S for a few
value dimensions of a head. Both kinds run concurrently.
"""

import triton
import triton.language as tl

from sgpa.gp.fused.tiles import load, store


@triton.jit
def gram(k, m, n, log_variance, RBF: tl.constexpr):
    """K of the keys k [MM, DD] of a head, [MM, MM]."""
    e = tl.dot(k, tl.trans(k))
    if RBF:
        half = 0.5 * tl.sum(k * k, 1)
        e = tl.where(m == n, 0.0, tl.minimum(e - half[:, None] - half[None, :], 0.0))
    return tl.exp(e + log_variance)


@triton.jit
def eliminated(K, m, n, M, MM: tl.constexpr):
    """L and L^-1 of K = L L'; NaN where K is not positive definite.

    Column j of L is column j of what is left of K over the root of its pivot. The same elimination applied to
    the identity gives the inverse, which is stored in the columns that are no longer needed.
    """
    at, L, X = tl.arange(0, MM), tl.zeros((MM, MM), dtype=tl.float64), K
    pivots = tl.sum(tl.where(m == n, K, 0.0), 0)  # kept apart, so that none has to wait for its row
    for j in range(M):
        over = 1.0 / tl.sqrt(tl.sum(tl.where(at == j, pivots, 0.0), 0))
        column, row = tl.sum(tl.where(n == j, X, 0.0), 1) * over, tl.sum(tl.where(m == j, X, 0.0), 0) * over
        pivots -= row * row
        down, across = column[:, None], tl.where(at == j, over, row)[None, :]
        L = tl.where((n == j) & (m >= j), down, L)
        X = tl.where(m == j, across, tl.where(m > j, tl.where(n == j, 0.0, X) - down * across, X))
    return L, tl.where(n <= m, X, 0.0)


@triton.jit
def factor(raw, i, m, n, M):
    """The lower-triangular s that `raw` [M, M] stands for, and the sum of the logarithms on its diagonal."""
    r = load(raw, i, i, M, M, M).to(tl.float64)
    s = tl.where(m > n, r, tl.where((m == n) & (m < M), tl.exp(r), 0.0))
    return tl.sum(tl.sum(tl.where(m == n, r, 0.0), 1), 0), s


@triton.jit
def conditioned(
    h, k_g, log_variance, v_g, L, L_inv, state, kl, M, D, N, shares, jitter,
    MM: tl.constexpr, DD: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """L, L^-1 and the state of a head, and ½ |w_g|²."""
    i, d, last = tl.arange(0, MM), tl.arange(0, DD), tl.arange(0, 16)
    m, n = i[:, None], i[None, :]
    keys, lv = load(k_g + h * M * D, i, d, D, M, D), tl.load(log_variance + h)
    K = gram(keys.to(tl.float64), m, n, lv.to(tl.float64), RBF)
    factor, inverse = eliminated(K + tl.where(m == n, K * jitter, 0.0), m, n, M, MM)
    store(L + h * M * M, factor, i, i, M, M, M)
    store(L_inv + h * M * M, inverse, i, i, M, M, M)
    factor = tl.where((m < M) & (n < M), factor, 0.0)
    w = tl.dot(tl.trans(factor), load(v_g + h * M * D, i, d, D, M, D).to(tl.float64))  # [MM, DD]
    tl.store(kl + h * shares, 0.5 * tl.sum(tl.sum(w * w, 1), 0))
    state += h * M * N
    store(state, inverse.to(tl.float32), i, i, N, M, M)
    store(state + M, keys, i, d, N, M, D)
    store(state + M + D, w.to(tl.float32), i, d, N, M, D)
    store(state + M + 2 * D, tl.zeros((MM, 16), dtype=tl.float32) + lv, i, last, N, M, N - M - 2 * D)


@triton.jit
def multiplied(h, share, raw, S, kl, M, D, shares, MM: tl.constexpr, SOME: tl.constexpr):
    """S = s s' of SOME value dimensions of a head, and ½ (tr S - log |S| - M) of them."""
    i = tl.arange(0, MM)
    m, n = i[:, None], i[None, :]
    total = tl.full((), 0.0, tl.float64)
    for v in range(share * SOME, tl.minimum(share * SOME + SOME, D)):
        logs, s = factor(raw + (h * D + v) * M * M, i, m, n, M)
        total += 0.5 * (tl.sum(tl.sum(s * s, 1), 0) - M) - logs
        place = S + ((h * M + m) * M + n) * D + v
        tl.store(place, tl.dot(s, tl.trans(s)).to(tl.float32), mask=(m < M) & (n < M))
    tl.store(kl + h * shares + 1 + share, total)


@triton.jit
def forward(
    k_g, log_variance, raw, v_g, L, L_inv, state, S, kl,
    heads, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr, shares: tl.constexpr, jitter,
    MM: tl.constexpr, DD: tl.constexpr, SOME: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """All that depends on parameters alone; kl [heads, shares]."""
    h, share = tl.program_id(0), tl.program_id(0) - heads
    if share < 0:
        conditioned(
            h, k_g, log_variance, v_g, L, L_inv, state, kl, M, D, N, shares, jitter, MM, DD, RBF
        )  # fmt: skip
    else:
        multiplied(share // (shares - 1), share % (shares - 1), raw, S, kl, M, D, shares, MM, SOME)


@triton.jit
def of_keys(
    h, k_g, log_variance, v_g, L, L_inv, d_state, d_kl, dk, d_log, dv, M, D, N, jitter,
    MM: tl.constexpr, DD: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """The gradients of a head's keys, log σ_f² and v_g.

    dK = sym(L^-T Φ(L' dL - dL^-1 L^-T) L^-1), Φ the lower triangle with half the diagonal. The jitter is in
    proportion to K's diagonal, whose gradient grows in the same proportion.
    """
    i, d = tl.arange(0, MM), tl.arange(0, DD)
    m, n = i[:, None], i[None, :]
    d_state += h * M * N
    factor, inverse = load(L + h * M * M, i, i, M, M, M), load(L_inv + h * M * M, i, i, M, M, M)
    v = load(v_g + h * M * D, i, d, D, M, D).to(tl.float64)
    w = load(d_state + M + D, i, d, N, M, D).to(tl.float64)
    w += tl.load(d_kl + h) * tl.dot(tl.trans(factor), v)  # w_g is in the KL too
    store(dv + h * M * D, tl.dot(factor, w).to(tl.float32), i, d, D, M, D)
    inner = tl.dot(tl.trans(factor), tl.dot(v, tl.trans(w)))  # L' dL
    inner -= tl.dot(load(d_state, i, i, N, M, M).to(tl.float64), tl.trans(inverse))
    inner = tl.where(m > n, inner, tl.where(m == n, 0.5 * inner, 0.0))
    dK = 0.5 * tl.dot(tl.trans(inverse), tl.dot(inner + tl.trans(inner), inverse))
    dK += tl.where(m == n, jitter * dK, 0.0)
    k = load(k_g + h * M * D, i, d, D, M, D).to(tl.float64)
    dE = dK * gram(k, m, n, tl.load(log_variance + h).to(tl.float64), RBF)  # symmetric
    given = tl.load(d_state + M + 2 * D + i * N, mask=i < M, other=0.0)
    tl.store(d_log + h, (tl.sum(tl.sum(dE, 1), 0) + tl.sum(given.to(tl.float64), 0)).to(tl.float32))
    moved = 2.0 * tl.dot(dE, k)
    if RBF:
        moved -= 2.0 * tl.sum(dE, 1)[:, None] * k
    store(dk + h * M * D, moved.to(tl.float32) + load(d_state + M, i, d, N, M, D), i, d, D, M, D)


@triton.jit
def of_factors(h, share, raw, dS, d_kl, d_raw, M, D, MM: tl.constexpr, SOME: tl.constexpr):
    """The gradients of SOME of a head's factors: (dS + dS') s, and what the KL asks for."""
    i = tl.arange(0, MM)
    m, n = i[:, None], i[None, :]
    price, inside = tl.load(d_kl + h), (m < M) & (n < M)
    for v in range(share * SOME, tl.minimum(share * SOME + SOME, D)):
        _, s = factor(raw + (h * D + v) * M * M, i, m, n, M)
        both = tl.load(dS + ((h * M + m) * M + n) * D + v, mask=inside, other=0.0)
        both += tl.load(dS + ((h * M + n) * M + m) * D + v, mask=inside, other=0.0)
        ds = tl.dot(both.to(tl.float64), s) + price * s
        ds = tl.where(m > n, ds, tl.where(m == n, ds * s - price, 0.0))
        store(d_raw + (h * D + v) * M * M, ds.to(tl.float32), i, i, M, M, M)


@triton.jit
def backward(
    k_g, log_variance, raw, v_g, L, L_inv, d_state, dS, d_kl, dk, d_log, d_raw, dv,
    heads, M: tl.constexpr, D: tl.constexpr, N: tl.constexpr, shares: tl.constexpr, jitter,
    MM: tl.constexpr, DD: tl.constexpr, SOME: tl.constexpr, RBF: tl.constexpr,
):  # fmt: skip
    """The gradients of all four parameters."""
    h, share = tl.program_id(0), tl.program_id(0) - heads
    if share < 0:
        of_keys(
            h, k_g, log_variance, v_g, L, L_inv, d_state, d_kl, dk, d_log, dv, M, D, N, jitter, MM, DD, RBF
        )  # fmt: skip
    else:
        of_factors(share // (shares - 1), share % (shares - 1), raw, dS, d_kl, d_raw, M, D, MM, SOME)
