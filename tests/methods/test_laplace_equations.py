import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import laplace as dense
from sgpa.methods.laplace import (
    BOUNDS,
    Curvature,
    log_evidence,
    monte_carlo,
    most_likely_precision,
    normals,
    probit,
)

DELTA = 0.3
sizes = st.tuples(st.integers(1, 12), st.integers(1, 4), st.integers(2, 4))  # N, E, K


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outputs(theta, phi):
    return torch.func.vmap(dense.outputs, (None, 0))(theta, phi)


def curvature(theta, phi):
    return Curvature.of(phi, outputs(theta, phi).softmax(-1))


def covariance(c, delta):
    """Of W and b, from the eigenvectors."""
    V = torch.block_diag(torch.kron(c.Q, c.R), c.Q)
    inverse = (c.eigenvalues + delta).reciprocal()
    return V @ torch.cat([inverse[:, :-1].flatten(), inverse[:, -1]]).diag() @ V.mT


def output_covariance(c, phi, delta):
    return c.Q @ torch.diag_embed(c.variance(phi, delta)) @ c.Q.mT


def near(actual, expected):
    return torch.allclose(actual, expected, atol=1e-8, rtol=1e-8)


# ---- the curvature against dense algebra --------------------------------------------------------

EXACT = {
    "one row": lambda K: (normal(1, 3), normal(4 * K, seed=1)),
    "one row many times": lambda K: (normal(1, 3).repeat(7, 1), normal(4 * K, seed=1)),
    "the same p everywhere": lambda K: (
        normal(9, 3),
        torch.cat([torch.zeros(3 * K).double(), normal(K, seed=1)]),
    ),
}


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("K", [2, 5])
def test_posterior_equals_the_dense_ggn_where_the_factorisation_is_exact(case, K):
    phi, theta = EXACT[case](K)
    c, H = curvature(theta, phi), dense.without_cross_blocks(dense.ggn(theta, phi), K)
    assert near(covariance(c, DELTA), dense.posterior_covariance(H, DELTA))
    x = normal(6, 3, seed=2)
    assert near(output_covariance(c, x, DELTA), dense.output_covariance(H, DELTA, theta, x))


@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(0, 1000), st.floats(1e-3, 1e3))
def test_covariance_equals_the_dense_kronecker_ggn(size, seed, delta):
    N, E, K = size
    phi, theta = normal(N, E, seed=seed), normal(K * E + K, seed=seed + 1)
    c, H = curvature(theta, phi), dense.kronecker_ggn(theta, phi)
    x = normal(3, E, seed=seed + 2)
    assert near(covariance(c, delta), dense.posterior_covariance(H, delta))
    assert near(output_covariance(c, x, delta), dense.output_covariance(H, delta, theta, x))


def test_factors_are_means_over_rows():
    phi, theta = normal(20, 3), normal(16, seed=1)
    c = curvature(theta, phi)
    assert near(c.Q @ c.g.diag() @ c.Q.mT, dense.output_hessian(theta, phi).mean(0))
    assert near(c.R @ c.a.diag() @ c.R.mT, (phi.unsqueeze(-1) * phi.unsqueeze(-2)).mean(0))
    bias = len(phi) * c.Q @ c.g.diag() @ c.Q.mT
    assert near(bias, dense.ggn(theta, phi)[-4:, -4:])  # this block is exact for any data


def test_more_rows_leave_less_variance():
    phi, theta, x = normal(10, 4), normal(15, seed=1), normal(5, 4, seed=2)
    few, many = (curvature(theta, phi.repeat(n, 1)) for n in (1, 4))
    less = output_covariance(few, x, DELTA) - output_covariance(many, x, DELTA)
    assert torch.linalg.eigvalsh(less).min() > -1e-12
    assert (less.diagonal(dim1=-2, dim2=-1) > 0).all()


# ---- the prior precision ------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(0, 1000), st.floats(1e-3, 1e3))
def test_evidence_equals_dense_determinants(size, seed, delta):
    N, E, K = size
    phi, theta = normal(N, E, seed=seed), normal(K * E + K, seed=seed + 1)
    y = torch.randint(K, (N,), generator=torch.Generator().manual_seed(seed))
    log_likelihood = -torch.nn.functional.cross_entropy(outputs(theta, phi), y, reduction="sum")
    evidence = log_evidence(log_likelihood, curvature(theta, phi).eigenvalues, theta @ theta, delta)
    assert near(evidence, dense.log_evidence(dense.kronecker_ggn(theta, phi), delta, theta, phi, y))


@settings(max_examples=25, deadline=None)
@given(sizes, st.integers(0, 1000), st.floats(0.05, 20.0))
def test_the_precision_maximises_the_evidence(size, seed, scale):
    N, E, K = size
    phi, theta = normal(N, E, seed=seed), scale * normal(K * E + K, seed=seed + 1)
    eigenvalues, theta2 = curvature(theta, phi).eigenvalues, theta @ theta
    delta = most_likely_precision(eigenvalues, float(theta2))
    grid = torch.logspace(-8, 8, 801, dtype=torch.float64)
    zero = torch.zeros(()).double()
    evidence = torch.stack([log_evidence(zero, eigenvalues, theta2, float(d)) for d in grid])
    assert log_evidence(zero, eigenvalues, theta2, delta) >= evidence.max() - 1e-12
    assert abs(math.log10(delta) - float(grid[evidence.argmax()].log10())) <= 16 / 800
    assert (evidence[2:] - 2 * evidence[1:-1] + evidence[:-2]).max() < 1e-9  # concave in log δ


@pytest.mark.parametrize(("eigenvalues", "theta2", "bound"), [(0.0, 1.0, 0), (1.0, 0.0, 1)])
def test_a_precision_at_its_bound_is_logged(caplog, eigenvalues, theta2, bound):
    delta = most_likely_precision(torch.full((2, 3), eigenvalues, dtype=torch.float64), theta2)
    assert delta == BOUNDS[bound]
    assert "the prior precision stops at its bound" in caplog.text


# ---- predictives --------------------------------------------------------------------------------


def gaussian(N, E, K, rows=8, delta=DELTA):
    """Outputs at new features with their variance, and all that made them."""
    phi, theta, x = normal(N, E), normal(K * E + K, seed=1), normal(rows, E, seed=2)
    c = curvature(theta, phi)
    return c, outputs(theta, x), c.variance(x, delta), (dense.kronecker_ggn(theta, phi), delta, theta, x)


@pytest.mark.parametrize(("N", "K"), [(3, 2), (3, 3), (30, 3), (300, 5)])
def test_predictives_against_weights_drawn_from_the_dense_posterior(N, K):
    c, f, variance, problem = gaussian(N, 4, K)
    expected = dense.predictive(*problem, draws=100_000, seed=0)  # standard error at most 0.0016
    many = [t.repeat_interleave(1000, 0) for t in (f, variance)]
    p, entropy = monte_carlo(*many, c.Q, normals(many[0], 100))
    assert torch.allclose(p.unflatten(0, (-1, 1000)).mean(1), expected, atol=0.008)
    assert (entropy.unflatten(0, (-1, 1000)).mean(1) < torch.special.entr(expected).sum(-1) + 0.008).all()
    p = probit(f, variance, c.Q)
    assert torch.allclose(p, expected, atol=0.17)  # an approximation: this is how good it is
    Sigma = dense.output_covariance(*problem).diagonal(dim1=-2, dim2=-1)
    assert near(p, (f / (1 + math.pi * Sigma / 8).sqrt()).softmax(-1))


def test_draws_do_not_depend_on_the_signs_of_eigenvectors():
    c, f, variance, _ = gaussian(10, 3, 4)
    signs = torch.tensor([1.0, -1.0, 1.0, -1.0]).double()
    p, turned = (monte_carlo(f, variance, Q, normals(f, 3))[0] for Q in (c.Q, c.Q * signs))
    assert near(p, turned)


def test_only_probit_counts_a_shift_of_all_outputs():
    f, variance = normal(4, 3), torch.tensor([9.0, 0.0, 0.0]).double().expand(4, 3)
    Q = torch.linalg.qr(torch.cat([torch.ones(3, 1).double(), normal(3, 2)], 1)).Q
    assert near(monte_carlo(f, variance, Q, normals(f, 5))[0], f.softmax(-1))
    assert (probit(f, variance, Q).amax(-1) < f.softmax(-1).amax(-1) - 0.02).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 1000), st.floats(1e-4, 1e4))
def test_probit_keeps_the_labels_of_a_binary_problem(N, E, seed, delta):
    phi, theta, x = (
        normal(N, E, seed=seed),
        normal(2 * E + 2, seed=seed + 1),
        5 * normal(20, E, seed=seed + 2),
    )
    c, f = curvature(theta, phi), outputs(theta, x)
    assert torch.equal(probit(f, c.variance(x, delta), c.Q).argmax(-1), f.argmax(-1))


@pytest.mark.parametrize("predictive", ["probit", "monte-carlo"])
def test_confidence_falls_with_the_distance_from_data(predictive):
    phi = normal(50, 4)
    phi[:, 3] = 0  # nothing is known along the last feature, and the outputs do not depend on it
    W = normal(3, 4, seed=1)
    W[:, 3] = 0
    theta = torch.cat([W.flatten(), normal(3, seed=2)])
    c = curvature(theta, phi)
    x = phi[:1] + torch.tensor([0.0, 1.0, 3.0, 10.0, 100.0]).double().unsqueeze(-1) * torch.eye(4).double()[3]
    f, variance = outputs(theta, x), c.variance(x, DELTA)
    assert near(f, f[:1].expand_as(f))
    p = (
        probit(f, variance, c.Q)
        if predictive == "probit"
        else monte_carlo(f, variance, c.Q, normals(f, 20_000))[0]
    )
    confidence = p.amax(-1)
    assert (confidence.diff() < 0).all()
    assert confidence[-1] < 0.37
