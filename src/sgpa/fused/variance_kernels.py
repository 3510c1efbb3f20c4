"""The tiles of `variance.py` in Triton: TT of the N = B T tokens of a head; M inducing points, padded to MM.

The outer products a_t a_t' are made R rows at a time, [TT, R MM].
"""

import triton
import triton.language as tl


@triton.jit
def tokens(A, start, N, T, H, M, h, TT: tl.constexpr, MM: tl.constexpr):
    """a of a tile [TT, MM], which tokens are real, where each begins in A, and its row of [B H]."""
    t, m = start + tl.arange(0, TT), tl.arange(0, MM)
    real, row = t < N, (t // T) * H + h
    at = row.to(tl.int64) * M * T + t % T
    a = tl.load(A + at[:, None] + m[None, :] * T, mask=real[:, None] & (m < M)[None, :], other=0.0)
    return a, real, at, row


@triton.jit
def some(A, at, real, i, T, M, R: tl.constexpr):
    """Columns i to i + R - 1 of a, [TT, R]."""
    n = i + tl.arange(0, R)
    return tl.load(A + at[:, None] + n[None, :] * T, mask=real[:, None] & (n < M)[None, :], other=0.0)


@triton.jit
def covariance(S, i, M, V, MM: tl.constexpr, VV: tl.constexpr, R: tl.constexpr):
    """Rows i to i + R - 1 of S [M, M, V] as [R MM, VV], zero outside."""
    r, c = tl.arange(0, R * MM), tl.arange(0, VV)
    n, m = i + r // MM, r % MM
    inside = ((n < M) & (m < M))[:, None] & (c < V)[None, :]
    return tl.load(S + (n * M + m)[:, None] * V + c[None, :], mask=inside, other=0.0)


@triton.jit
def forward(
    kqq, A, S, out, N, T, H, M, V, kb, kh, kt,
    TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """out[t, v] = max(0, k_t - Σ_m a_mt²) + Σ_mn a_mt a_nt S[m, n, v]."""
    h, start, c = tl.program_id(1), tl.program_id(0) * TT, tl.arange(0, VV)
    a, real, at, row = tokens(A, start, N, T, H, M, h, TT, MM)
    total = tl.zeros((TT, VV), dtype=tl.float32)
    for i in range(0, M, R):
        a_i = some(A, at, real, i, T, M, R)
        aa = tl.reshape(a_i[:, :, None] * a[:, None, :], (TT, R * MM))
        S_i = covariance(S + h * M * M * V, i, M, V, MM, VV, R)
        total = tl.dot(aa, S_i, acc=total, input_precision="tf32")
    t = start + tl.arange(0, TT)
    k = tl.load(kqq + (t // T).to(tl.int64) * kb + h * kh + (t % T) * kt, mask=real, other=0.0)
    total += tl.maximum(k - tl.sum(a * a, 1), 0.0)[:, None]
    place = (row.to(tl.int64) * T + t % T)[:, None] * V + c[None, :]
    tl.store(out + place, total, mask=real[:, None] & (c < V)[None, :])


@triton.jit
def backward_A(
    kqq, A, S, W, dk, dA, N, T, H, M, V, kb, kh, kt, wb, wh, wt,
    TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """dA[n, t] = 2 Σ_m a_mt Σ_v S[m, n, v] w[t, v] - 2 a_nt dk_t,  dk_t = Σ_v w[t, v] if k_t > Σ_m a_mt²."""
    h, start, m, c = tl.program_id(1), tl.program_id(0) * TT, tl.arange(0, MM), tl.arange(0, VV)
    a, real, at, row = tokens(A, start, N, T, H, M, h, TT, MM)
    t = start + tl.arange(0, TT)
    place = ((t // T).to(tl.int64) * wb + h * wh + (t % T) * wt)[:, None] + c[None, :]
    w = tl.load(W + place, mask=real[:, None] & (c < V)[None, :], other=0.0)  # [TT, VV]
    total = tl.zeros((TT, MM), dtype=tl.float32)
    for i in range(0, M, R):
        a_i = some(A, at, real, i, T, M, R)
        S_i = covariance(S + h * M * M * V, i, M, V, MM, VV, R)  # [R MM, VV]
        wS = tl.dot(w, tl.trans(S_i), input_precision="tf32")  # [TT, R MM]
        total += tl.sum(tl.reshape(wS, (TT, R, MM)) * a_i[:, :, None], 1)
    k = tl.load(kqq + (t // T).to(tl.int64) * kb + h * kh + (t % T) * kt, mask=real, other=0.0)
    each = tl.where(k - tl.sum(a * a, 1) > 0.0, tl.sum(w, 1), 0.0)  # [TT]
    tl.store(dk + row.to(tl.int64) * T + t % T, each, mask=real)
    into = dA + at[:, None] + m[None, :] * T
    tl.store(into, 2.0 * (total - a * each[:, None]), mask=real[:, None] & (m < M)[None, :])


@triton.jit
def backward_S(
    A, W, dS, N, T, H, M, V, wb, wh, wt,
    TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """dS[n, m, v] = Σ_t a_nt a_mt w[t, v] for R rows n of a head, over one share of the tiles."""
    i, h, share = tl.program_id(0) * R, tl.program_id(1), tl.program_id(2)
    m, c, n = tl.arange(0, MM), tl.arange(0, VV), i + tl.arange(0, R)
    total = tl.zeros((R * MM, VV), dtype=tl.float32)
    for start in range(share * TT, N, tl.num_programs(2) * TT):
        t = start + tl.arange(0, TT)
        real = t < N
        at = ((t // T) * H + h).to(tl.int64) * M * T + t % T
        a = tl.load(A + at[None, :] + m[:, None] * T, mask=real[None, :] & (m < M)[:, None], other=0.0)
        a_i = tl.load(A + at[None, :] + n[:, None] * T, mask=real[None, :] & (n < M)[:, None], other=0.0)
        aa = tl.reshape(a_i[:, None, :] * a[None, :, :], (R * MM, TT))
        place = ((t // T).to(tl.int64) * wb + h * wh + (t % T) * wt)[:, None] + c[None, :]
        w = tl.load(W + place, mask=real[:, None] & (c < V)[None, :], other=0.0)  # [TT, VV]
        total = tl.dot(aa, w, acc=total, input_precision="tf32")
    r = tl.arange(0, R * MM)
    n, m = i + r // MM, r % MM
    into = dS + (share * H + h).to(tl.int64) * M * M * V + (n * M + m)[:, None] * V + c[None, :]
    tl.store(into, total, mask=((n < M) & (m < M))[:, None] & (c < V)[None, :])
