"""The variance of heads against dense float64 algebra, and what k-means and the reservoir return."""

import numpy as np
import pytest
import torch

from sgpa.posthoc.head_gps import HeadGps, k_means
from sgpa.posthoc.reservoir import Reservoir


def dense_variance(Z, q):
    """1 - k_qz K_zz^-1 k_zq of one head by a dense solve in float64; the jitter is the library's smallest."""

    def kernel(x, y):
        return np.exp(-0.5 * ((x[:, None] - y[None]) ** 2).sum(-1))

    K_zz = kernel(Z, Z) + 1e-6 * np.eye(len(Z))
    K_zq = kernel(Z, q)
    return 1 - (K_zq * np.linalg.solve(K_zz, K_zq)).sum(0)


def gps(heads=3, points=10, width=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(200, heads, width, generator=generator)
    spread, gain = torch.ones(heads, width), torch.ones(heads)
    return queries, HeadGps.fit(queries, spread, gain, points=points, share=0.5, name="attention")


def test_variance_equals_a_dense_gp():
    queries, gp = gps()
    q = torch.cat([queries[:40], 4 * queries[:10]]).unflatten(0, (5, 10))  # [B, T, H, D]
    variance = gp.variance(q)
    for h in range(3):
        scaled = (q[:, :, h].flatten(0, 1) / gp.lengthscale[h]).double().numpy()
        expected = dense_variance(gp.Z[h].double().numpy(), scaled)
        np.testing.assert_allclose(variance[:, :, h].flatten().numpy(), expected, atol=2e-5)


def test_variance_is_zero_at_inducing_queries_and_one_far_away():
    _, gp = gps()
    at = (gp.Z * gp.lengthscale[:, None, None]).transpose(0, 1).unsqueeze(0)  # [1, M, H, D]
    assert (gp.variance(at) < 1e-4).all()
    torch.testing.assert_close(gp.variance(at + 100), torch.ones(1, 10, 3))


def test_more_inducing_queries_never_leave_more_variance():
    queries, gp = gps(points=6)
    spread, gain = torch.ones(3, 4), torch.ones(3)
    more = torch.cat([gp.Z, gp.Z + 0.7], 1)
    larger = HeadGps.make(more, gp.lengthscale, spread, gain)
    assert (larger.variance(queries.unsqueeze(0)) <= gp.variance(queries.unsqueeze(0)) + 1e-5).all()


def test_repeated_queries_are_allowed():
    queries = torch.randn(1, 2, 4).expand(100, 2, 4)
    gp = HeadGps.fit(queries, torch.ones(2, 4), torch.ones(2), points=5, share=0.5, name="attention")
    assert gp.variance(queries.unsqueeze(0)).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_queries_are_raised_to_float32(dtype):
    queries, gp = gps()
    exact = gp.variance(queries.to(dtype).float().unsqueeze(0))
    torch.testing.assert_close(gp.variance(queries.to(dtype).unsqueeze(0)), exact)


def test_k_means_finds_separate_groups():
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    x = (centres.repeat(30, 1) + 0.1 * torch.randn(90, 2)).unsqueeze(0)
    means = k_means(x, 3)[0]
    assert torch.cdist(means, centres).amin(1).max() < 0.2
    assert len(torch.cdist(means, centres).argmin(1).unique()) == 3


def test_reservoir_is_uniform_and_keeps_columns_together():
    reservoir = Reservoir(500)
    for start in range(0, 5000, 50):
        row = torch.arange(start, start + 50)
        reservoir.add([row, 2.0 * row])
    first, second = reservoir.columns()
    assert len(reservoir) == 500
    assert len(first.unique()) == 500
    assert torch.equal(2.0 * first, second)
    assert abs(float(first.double().mean()) - 2500) < 250  # four standard errors
