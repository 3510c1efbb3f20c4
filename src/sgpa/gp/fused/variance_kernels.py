"""The tiles of `variance.py` in Triton: TT of the N = B T tokens of a head; M inducing points, padded to MM.

The outer products a_t a_t' are made R rows of CC columns at a time, [TT, R CC]. S is symmetric: rows of its
lower half (n < MM / 2) need only the columns of that half, and of the off-diagonal blocks one is enough.
M and V are constants of a model, so the compiler knows them: most of the addresses and masks fall away.
"""

import triton
import triton.language as tl

FLOOR = tl.constexpr(1e-12)  # of a variance, as in `posteriors`


@triton.jit
def dense(t, h, T, H, V):
    """Where tokens begin in a tensor [B, H, T, V] without gaps, [TT, 1]."""
    return ((((t // T) * H + h).to(tl.int64) * T + t % T) * V)[:, None]


@triton.jit
def pulled(G, slope, t, h, T, H, V, c, inside, gb, gh, gt):
    """The gradient of the variance of a tile, [TT, VV]: that of a sample comes with the slope of its root."""
    place = ((t // T).to(tl.int64) * gb + h * gh + (t % T) * gt)[:, None] + c[None, :]
    g = tl.load(G + place, mask=inside, other=0.0)
    if slope is not None:
        g *= tl.load(slope + dense(t, h, T, H, V) + c[None, :], mask=inside, other=0.0)
    return g


@triton.jit
def some(A, at, real, i, T, M, R: tl.constexpr):
    """Columns i to i + R - 1 of a, [TT, R]."""
    n = i + tl.arange(0, R)
    return tl.load(A + at[:, None] + n[None, :] * T, mask=real[:, None] & (n < M)[None, :], other=0.0)


@triton.jit
def covariance(S, i, M, V, CC: tl.constexpr, VV: tl.constexpr, R: tl.constexpr):
    """Rows i to i + R - 1 of S [M, M, V], the first CC columns of each, as [R CC, VV], zero outside."""
    r, c = tl.arange(0, R * CC), tl.arange(0, VV)
    n, m = i + r // CC, r % CC
    inside = ((n < M) & (m < M))[:, None] & (c < V)[None, :]
    return tl.load(S + (n * M + m)[:, None] * V + c[None, :], mask=inside, other=0.0)


@triton.jit
def quadratic(
    total, a, A, S, at, real, first, last, T, M, V,
    TT: tl.constexpr, CC: tl.constexpr, VV: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """total + Σ_nm a_nt a_mt S[n, m, v] over rows n from first to last - 1, the columns m of a [TT, CC]."""
    for i in range(first, last, R):
        a_i = some(A, at, real, i, T, M, R)
        aa = tl.reshape(a_i[:, :, None] * a[:, None, :], (TT, R * CC))
        S_i = covariance(S, i, M, V, CC, VV, R)
        total = tl.dot(aa, S_i, acc=total, input_precision="tf32")
    return total


@triton.jit
def forward(
    U, A, S, mean, noise, out, slope, N, T, H, M: tl.constexpr, V: tl.constexpr, ub, uh, ut, ob, oh, ot,
    TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr, R: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    """out[t, v] = u_t + Σ_mn a_mt a_nt S[m, n, v]; LOW rows take LOW columns only.

    With noise it is mean + √ of that times noise, and the derivative by what is under the root is the slope.
    """
    h, start, m, c = tl.program_id(1), tl.program_id(0) * TT, tl.arange(0, MM), tl.arange(0, VV)
    t = start + tl.arange(0, TT)
    real, at = t < N, ((t // T) * H + h).to(tl.int64) * M * T + t % T
    a = some(A, at, real, 0, T, M, MM)
    S += h * M * M * V
    total = tl.zeros((TT, VV), dtype=tl.float32)
    if LOW > 0:
        low = some(A, at, real, 0, T, M, LOW)
        total = quadratic(total, low, A, S, at, real, 0, LOW, T, M, V, TT, LOW, VV, R * MM // LOW)
    both = tl.where((m < LOW)[None, :], 2.0 * a, a)  # these columns stand for the rows left out as well
    total = quadratic(total, both, A, S, at, real, LOW, M, T, M, V, TT, MM, VV, R)
    left = tl.load(U + (t // T).to(tl.int64) * ub + h * uh + (t % T) * ut, mask=real, other=0.0)
    total += left[:, None]
    inside = real[:, None] & (c < V)[None, :]
    if noise is not None:
        at = dense(t, h, T, H, V) + c[None, :]
        eps, kept = tl.load(noise + at, mask=inside, other=0.0), tl.maximum(total, FLOOR)
        over_root = tl.rsqrt(kept)
        tl.store(slope + at, tl.where(total > FLOOR, 0.5 * eps * over_root, 0.0), mask=inside)
        total = tl.load(mean + at, mask=inside, other=0.0) + kept * over_root * eps
    place = ((t // T).to(tl.int64) * ob + h * oh + (t % T) * ot)[:, None] + c[None, :]
    tl.store(out + place, total, mask=inside)


@triton.jit
def backward_A(
    A, S, G, slope, du, dA, N, T, H, M: tl.constexpr, V: tl.constexpr, gb, gh, gt,
    TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """dA[n, t] = 2 Σ_m a_mt Σ_v S[m, n, v] w[t, v] and du_t = Σ_v w[t, v], w the gradient of the variance."""
    h, start, m, c = tl.program_id(1), tl.program_id(0) * TT, tl.arange(0, MM), tl.arange(0, VV)
    t = start + tl.arange(0, TT)
    real, row = t < N, (t // T) * H + h
    at = row.to(tl.int64) * M * T + t % T
    w = pulled(G, slope, t, h, T, H, V, c, real[:, None] & (c < V)[None, :], gb, gh, gt)  # [TT, VV]
    total = tl.zeros((TT, MM), dtype=tl.float32)
    for i in range(0, M, R):
        a_i = some(A, at, real, i, T, M, R)
        S_i = covariance(S + h * M * M * V, i, M, V, MM, VV, R)  # [R MM, VV]
        wS = tl.dot(w, tl.trans(S_i), input_precision="tf32")  # [TT, R MM]
        total += tl.sum(tl.reshape(wS, (TT, R, MM)) * a_i[:, :, None], 1)
    tl.store(du + row.to(tl.int64) * T + t % T, tl.sum(w, 1), mask=real)
    into = dA + at[:, None] + m[None, :] * T
    tl.store(into, 2.0 * total, mask=real[:, None] & (m < M)[None, :])


@triton.jit
def backward_S(
    A, G, slope, dS, N, T, H, M: tl.constexpr, V: tl.constexpr, gb, gh, gt,
    TT: tl.constexpr, VV: tl.constexpr, R: tl.constexpr, CC: tl.constexpr,
):  # fmt: skip
    """dS[n, m, v] = Σ_t a_nt a_mt w[t, v] for R rows n and CC columns m of a head, over a share of the tiles.

    The first programs take all rows of the first CC columns, the others the rows from CC on of the rest; what
    is above these blocks is the transpose of what is below them.
    """
    p, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    left = tl.cdiv(M, R)
    i, j = tl.where(p < left, p * R, CC + (p - left) * R), tl.where(p < left, 0, CC)
    n, m, c = i + tl.arange(0, R), j + tl.arange(0, CC), tl.arange(0, VV)
    total = tl.zeros((R * CC, VV), dtype=tl.float32)
    for start in range(share * TT, N, tl.num_programs(2) * TT):
        t = start + tl.arange(0, TT)
        real = t < N
        at = ((t // T) * H + h).to(tl.int64) * M * T + t % T
        a = tl.load(A + at[None, :] + m[:, None] * T, mask=real[None, :] & (m < M)[:, None], other=0.0)
        a_i = tl.load(A + at[None, :] + n[:, None] * T, mask=real[None, :] & (n < M)[:, None], other=0.0)
        aa = tl.reshape(a_i[:, None, :] * a[None, :, :], (R * CC, TT))
        w = pulled(G, slope, t, h, T, H, V, c, real[:, None] & (c < V)[None, :], gb, gh, gt)
        total = tl.dot(aa, w, acc=total, input_precision="tf32")
    r = tl.arange(0, R * CC)
    n, m = i + r // CC, j + r % CC
    inside = ((n < M) & (m < M))[:, None] & (c < V)[None, :]
    dS += (share * H + h).to(tl.int64) * M * M * V
    tl.store(dS + (n * M + m)[:, None] * V + c[None, :], total, mask=inside)
    if i - j >= CC:
        tl.store(dS + (m * M + n)[:, None] * V + c[None, :], total, mask=inside)
