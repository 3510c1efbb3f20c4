"""The tiles of `variance.py` in Triton. N = B T tokens of a head; M inducing points; V value dimensions."""

import triton
import triton.language as tl


@triton.jit
def forward(kqq, A, S, out, N, T, H, M, V, TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr):
    """out[t, v] for a tile of the N = B T tokens of a head."""
    h = tl.program_id(1)
    t = tl.program_id(0) * TT + tl.arange(0, TT)
    m, v = tl.arange(0, MM), tl.arange(0, VV)
    row = (t // T) * H + h  # which [M, T] matrix of A a token is in
    real = t < N
    a = tl.load(
        A + row[:, None] * M * T + m[None, :] * T + (t % T)[:, None],
        mask=real[:, None] & (m < M)[None, :],
        other=0.0,
    )  # [TT, MM]
    total = tl.zeros((TT, VV), dtype=tl.float32)
    for i in range(M):
        a_i = tl.load(A + row * M * T + i * T + t % T, mask=real, other=0.0)  # [TT]
        S_i = tl.load(
            S + ((h * M + i) * M + m[:, None]) * V + v[None, :],
            mask=(m < M)[:, None] & (v < V)[None, :],
            other=0.0,
        )  # [MM, VV]
        total += tl.dot(a_i[:, None] * a, S_i, input_precision="tf32x3")
    k = tl.load(kqq + row * T + t % T, mask=real, other=0.0)
    unexplained = tl.maximum(k - tl.sum(a * a, 1), 0.0)
    tl.store(
        out + (row * T + t % T)[:, None] * V + v[None, :],
        total + unexplained[:, None],
        mask=real[:, None] & (v < V)[None, :],
    )


@triton.jit
def backward_A(kqq, A, S, g, dk, dA, N, T, H, M, V, TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr):
    """dA[n, t] = 2 Σ_m a_mt Σ_v S_v[m, n] g[t, v] - 2 a_nt Σ_v g[t, v] if k_t > Σ_m a_mt²."""
    h = tl.program_id(1)
    t = tl.program_id(0) * TT + tl.arange(0, TT)
    m, v = tl.arange(0, MM), tl.arange(0, VV)
    row = (t // T) * H + h
    real = t < N
    place = A + row[:, None] * M * T + m[None, :] * T + (t % T)[:, None]
    inside = real[:, None] & (m < M)[None, :]
    a = tl.load(place, mask=inside, other=0.0)  # [TT, MM]
    g_t = tl.load(
        g + (row * T + t % T)[:, None] * V + v[None, :], mask=real[:, None] & (v < V)[None, :], other=0.0
    )  # [TT, VV]
    total = tl.zeros((TT, MM), dtype=tl.float32)
    for i in range(M):
        a_i = tl.load(A + row * M * T + i * T + t % T, mask=real, other=0.0)  # [TT]
        S_i = tl.load(
            S + ((h * M + i) * M + m[None, :]) * V + v[:, None],
            mask=(m < M)[None, :] & (v < V)[:, None],
            other=0.0,
        )  # [VV, MM]
        total += a_i[:, None] * tl.dot(g_t, S_i, input_precision="tf32x3")
    k = tl.load(kqq + row * T + t % T, mask=real, other=0.0)
    each = tl.sum(g_t, 1) * tl.where(k - tl.sum(a * a, 1) > 0.0, 1.0, 0.0)  # [TT]
    tl.store(dk + row * T + t % T, each, mask=real)
    shift = row[:, None] * M * T + m[None, :] * T + (t % T)[:, None]
    tl.store(dA + shift, 2.0 * (total - a * each[:, None]), mask=inside)


@triton.jit
def backward_S(A, g, dS, N, T, H, M, V, TT: tl.constexpr, MM: tl.constexpr, VV: tl.constexpr):
    """dS_v[i, n] = Σ_t a_it a_nt g[t, v] for one row i of a head, over one share of the tokens."""
    i, h, share = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    each = tl.cdiv(tl.cdiv(N, TT), tl.num_programs(2)) * TT
    m, v = tl.arange(0, MM), tl.arange(0, VV)
    total = tl.zeros((MM, VV), dtype=tl.float32)
    for start in range(share * each, tl.minimum(N, (share + 1) * each), TT):
        t = start + tl.arange(0, TT)
        row = (t // T) * H + h
        real = t < N
        a = tl.load(
            A + row[None, :] * M * T + m[:, None] * T + (t % T)[None, :],
            mask=real[None, :] & (m < M)[:, None],
            other=0.0,
        )  # [MM, TT]
        a_i = tl.load(A + row * M * T + i * T + t % T, mask=real, other=0.0)  # [TT]
        g_t = tl.load(
            g + (row * T + t % T)[:, None] * V + v[None, :],
            mask=real[:, None] & (v < V)[None, :],
            other=0.0,
        )  # [TT, VV]
        total += tl.dot(a * a_i[None, :], g_t, input_precision="tf32x3")
    tl.store(
        dS + (((share * H + h) * M + i) * M + m[:, None]) * V + v[None, :],
        total,
        mask=(m < M)[:, None] & (v < V)[None, :],
    )
