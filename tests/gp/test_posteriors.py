from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from oracles import dense
from oracles.gpytorch_svgp import gpytorch_svgp
from sgpa.core.types import Posterior
from sgpa.gp import posteriors as p
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel, Kernel

TOLERANCE = {"rtol": 1e-8, "atol": 1e-8}


@dataclass(frozen=True)
class Problem:
    kernel: Kernel
    q: Tensor  # [B, H, T, D]
    a: Tensor  # [B, H, U, D]
    g: Tensor  # [H, M, D]
    v_a: Tensor  # [B, H, U, V]
    v_g: Tensor  # [H, M, V]
    s_a: Tensor  # whitened factors: of u_a in standard SGPA   [B, H, V or 1, U, U]
    s_g: Tensor  # of u_g in the decoupled forms                [H, V or 1, M, M]

    @property
    def L_a(self):
        return torch.linalg.cholesky(self.kernel(self.a, self.a))

    @property
    def L_g(self):
        return torch.linalg.cholesky(self.kernel(self.g, self.g))


@dataclass(frozen=True)
class Answer:
    posterior: Posterior
    covariance: Tensor  # [B, H, V or 1, T, T]
    kl: Tensor  # [B, H]


def make(kernel_class, shape=(2, 2, 4, 3, 3, 2), *, shared=False, tied=False, seed=0):
    torch.manual_seed(seed)
    B, H, T, U, M, V = shape
    D = 3
    kernel = kernel_class(H, D).double().requires_grad_(False)
    kernel.log_variance.uniform_(-0.5, 0.5)
    kernel.log_lengthscale.uniform_(-0.4, 0.1)
    # inducing points sit near distinct corners of a grid: dense inverses then keep ten digits
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 0.0, 1.0])] * D)
    z = torch.stack([corners[torch.randperm(27)[: U + M]] for _ in range(H)]).double()
    a = z[:, :U] + 0.1 * torch.rand(B, H, U, D)
    q = a if tied else torch.randn(B, H, T, D).double()

    def factor(*shape):
        s = 0.3 * torch.randn(*shape, dtype=torch.float64)
        return s.tril(-1) + torch.diag_embed(s.diagonal(dim1=-2, dim2=-1).exp())

    v_a, v_g = torch.randn(B, H, U, V).double(), torch.randn(H, M, V).double()
    W = 1 if shared else V
    return Problem(kernel, q, a, z[:, U:], v_a, v_g, factor(B, H, W, U, U), factor(H, W, M, M))


# the code under test: the three forms of SGPA


def standard(x: Problem) -> Answer:
    K, L = x.kernel, x.L_a
    A = p.whiten(torch.linalg.inv(L), K(x.a, x.q))
    posterior = p.standard_posterior(K.diagonal(x.q), K(x.q, x.a), A, x.v_a, x.s_a)
    return Answer(
        posterior, p.covariance(K(x.q, x.q), A, x.s_a), p.standard_kl(K(x.a, x.a) @ x.v_a, x.v_a, x.s_a)
    )


def orthogonal(x: Problem) -> Answer:
    K, L_inv = x.kernel, torch.linalg.inv(x.L_g)
    A_q, A_a = p.whiten(L_inv, K(x.g, x.q)), p.whiten(L_inv, K(x.g, x.a))
    Aa_va = A_a @ x.v_a
    kl = p.orthogonal_kl_a(K(x.a, x.a) @ x.v_a, x.v_a, Aa_va) + p.orthogonal_kl_g(x.L_g.mT @ x.v_g, x.s_g)
    Kqa_va, Kqg_vg = K(x.q, x.a) @ x.v_a, K(x.q, x.g) @ x.v_g
    mean = p.orthogonal_mean(Kqa_va, Kqg_vg, A_q, Aa_va)
    posterior = Posterior(mean, p.marginal_variance(K.diagonal(x.q), A_q, x.s_g))
    return Answer(posterior, p.covariance(K(x.q, x.q), A_q, x.s_g), kl)


def cheng_boots(x: Problem) -> Answer:
    K = x.kernel
    A_q = p.whiten(torch.linalg.inv(x.L_g), K(x.g, x.q))
    kl_g = p.orthogonal_kl_g(torch.zeros_like(x.v_g), x.s_g)
    posterior = Posterior(K(x.q, x.a) @ x.v_a, p.marginal_variance(K.diagonal(x.q), A_q, x.s_g))
    kl = p.cheng_boots_kl_a(K(x.a, x.a) @ x.v_a, x.v_a) + kl_g
    return Answer(posterior, p.covariance(K(x.q, x.q), A_q, x.s_g), kl)


FORMS = {f.__name__: f for f in (standard, orthogonal, cheng_boots)}


# what it must equal: one sparse GP per sequence b, head h and value dimension d


def joint(form: str, x: Problem, b: int, h: int, d: int) -> tuple[Tensor, dense.Inducing]:
    a, g, v_a = x.a[b, h], x.g[h], x.v_a[b, h, :, d]
    if form == "standard":
        K, Ls = dense.gram(x.kernel, h, a, a), x.L_a[b, h] @ x.s_a[b, h, d % x.s_a.shape[2]]
        return a, dense.standard(K, v_a, Ls @ Ls.mT)
    K, Ls = dense.grams(x.kernel, h, x.q[b, h], a, g), x.L_g[h] @ x.s_g[h, d % x.s_g.shape[1]]
    if form == "orthogonal":
        return torch.cat([a, g]), dense.orthogonal(K, v_a, x.v_g[h, :, d], Ls @ Ls.mT)
    return torch.cat([a, g]), dense.cheng_boots(K, v_a, Ls @ Ls.mT)


def dense_oracle(kernel, h, q, z, u) -> dense.Svgp:
    return dense.svgp(*(dense.gram(kernel, h, *xy) for xy in ((q, q), (q, z), (z, z))), u)


kernels = pytest.mark.parametrize("kernel_class", [ArdRbfKernel, ExponentialKernel])
forms = pytest.mark.parametrize("form", FORMS)
OPTIONS = st.fixed_dictionaries(
    {"shared": st.booleans(), "tied": st.booleans(), "seed": st.integers(0, 2**31)}
)


@kernels
@forms
@pytest.mark.parametrize("oracle", [dense_oracle, gpytorch_svgp])
@settings(deadline=None, max_examples=10)
@given(
    options=OPTIONS, shape=st.tuples(*[st.integers(1, 2)] * 2, *[st.integers(1, 5)] * 3, st.integers(1, 2))
)
def test_each_form_equals_a_joint_sparse_gp(oracle, form, kernel_class, shape, options):
    x = make(kernel_class, shape, **options)
    answer = FORMS[form](x)
    B, H, _, V = x.v_a.shape
    covariance = answer.covariance.expand(B, H, V, *answer.covariance.shape[-2:])
    for b, h in torch.cartesian_prod(torch.arange(B), torch.arange(H)).tolist():
        expected = [oracle(x.kernel, h, x.q[b, h], *joint(form, x, b, h, d)) for d in range(V)]
        for d, f in enumerate(expected):
            torch.testing.assert_close(answer.posterior.mean[b, h, :, d], f.mean, **TOLERANCE)
            torch.testing.assert_close(covariance[b, h, d], f.covariance, **TOLERANCE)
        # the library's KL is the sum of its parts, the oracle's that of the joint
        torch.testing.assert_close(answer.kl[b, h], sum(f.kl for f in expected), **TOLERANCE)


@kernels
@forms
@settings(deadline=None, max_examples=20)
@given(options=OPTIONS)
def test_variance_covariance_and_kl_are_consistent(form, kernel_class, options):
    answer = FORMS[form](make(kernel_class, **options))
    diagonal = answer.covariance.diagonal(dim1=-2, dim2=-1).mT  # [B, H, T, V or 1]
    variance = answer.posterior.variance
    torch.testing.assert_close(variance, diagonal.expand_as(variance), **TOLERANCE)
    eigenvalues = torch.linalg.eigvalsh(answer.covariance)
    assert (eigenvalues[..., 0] > -1e-12 * eigenvalues[..., -1]).all()
    assert (answer.kl >= 0).all()


@kernels
def test_kl_is_zero_at_the_prior(kernel_class):
    x = make(kernel_class)
    eye_a, eye_g = (torch.eye(3).double().expand_as(s) for s in (x.s_a, x.s_g))
    prior = replace(x, v_a=0 * x.v_a, v_g=0 * x.v_g, s_a=eye_a, s_g=eye_g)
    for form in FORMS.values():
        torch.testing.assert_close(form(prior).kl, torch.zeros(2, 2).double(), **TOLERANCE)


@kernels
def test_global_kl_is_that_of_u_g_alone(kernel_class):
    x = make(kernel_class, (1, 1, 3, 3, 3, 1))
    K, Ls = dense.gram(x.kernel, 0, x.g[0], x.g[0]), x.L_g[0] @ x.s_g[0, 0]
    u_g = dense.svgp(K, K, K, dense.standard(K, x.v_g[0, :, 0], Ls @ Ls.mT))
    torch.testing.assert_close(p.orthogonal_kl_g(x.L_g.mT @ x.v_g, x.s_g)[0], u_g.kl, **TOLERANCE)


@kernels
def test_printed_joint_covariance_is_an_erratum(kernel_class):
    # eqa:odsvgp lacks a plus: to the letter it neither is symmetric nor gives eq:odsvgp
    x = make(kernel_class)
    S_g = x.L_g[0] @ x.s_g[0, 0] @ x.s_g[0, 0].mT @ x.L_g[0].mT
    K = dense.grams(x.kernel, 0, x.q[0, 0], x.a[0, 0], x.g[0])
    P = K.qz @ torch.linalg.inv(K.zz)
    printed, corrected = dense.printed_joint_covariance(K, S_g), dense.joint_covariance(K, S_g)
    paper = orthogonal(x).covariance[0, 0, 0]
    torch.testing.assert_close(K.qq + P @ (corrected - K.zz) @ P.mT, paper, **TOLERANCE)
    assert (K.qq + P @ (printed - K.zz) @ P.mT - paper).abs().max() > 0.01
    assert (printed - printed.mT).abs().max() > 0.01


@kernels
@forms
def test_gradients_equal_finite_differences(form, kernel_class):
    x = make(kernel_class, (1, 1, 2, 2, 2, 2))
    leaves = [t.clone().requires_grad_() for t in (x.q, x.v_a, x.v_g, x.s_a, x.s_g)]

    def moments(q, v_a, v_g, s_a, s_g):
        answer = FORMS[form](replace(x, q=q, a=q, v_a=v_a, v_g=v_g, s_a=s_a, s_g=s_g))
        return answer.posterior.mean, answer.posterior.variance, answer.kl

    assert torch.autograd.gradcheck(moments, leaves)


def check_draws(draws, mean, covariance):
    # draws [S, B, H, T, V]; five standard errors of the sample mean and of the sample covariance
    S, f = len(draws), (draws - mean).mT  # [S, B, H, V, T]
    variance = covariance.diagonal(dim1=-2, dim2=-1)  # [B, H, V, T]
    assert (f.mean(0).abs() < 5 * (variance / S).sqrt()).all()
    estimate = torch.einsum("sbhvt,sbhvu->bhvtu", f, f) / S
    error = ((variance[..., None] * variance[..., None, :] + covariance.square()) / S).sqrt()
    assert ((estimate - covariance).abs() < 5 * error).all()
    # value dimensions are independent even where they share their covariance
    z = f / variance.sqrt()
    assert ((z[:, :, :, 0] * z[:, :, :, 1]).mean(0).abs() < 5 / S**0.5).all()


@kernels
@forms
@pytest.mark.parametrize("shared", [True, False])
def test_marginal_draws_have_the_marginals_and_are_uncorrelated(form, kernel_class, shared):
    posterior = FORMS[form](make(kernel_class, shared=shared)).posterior
    eps = torch.randn(20_000, *posterior.mean.shape, dtype=torch.float64)
    draws = p.sample_marginals(posterior.mean, posterior.variance, eps)
    variance = posterior.variance.expand_as(posterior.mean)
    check_draws(draws, posterior.mean, torch.diag_embed(variance.mT))


@kernels
@pytest.mark.parametrize("shared", [True, False])
def test_joint_draws_have_the_full_covariance(kernel_class, shared):
    x = make(kernel_class, shared=shared)
    A = p.whiten(torch.linalg.inv(x.L_g), x.kernel(x.g, x.q))
    L_c = torch.linalg.cholesky(x.kernel(x.q, x.q) - A.mT @ A)
    answer = orthogonal(x)
    mean = answer.posterior.mean  # [B, H, T, V]
    eps_c = torch.randn(20_000, *mean.shape, dtype=torch.float64)
    eps_g = torch.randn(20_000, 2, 2, 2, 3, 1, dtype=torch.float64)  # [S, B, H, V, M, 1]
    draws = p.sample_jointly(mean, L_c, A, x.s_g, eps_c, eps_g)
    check_draws(draws, mean, answer.covariance.expand(2, 2, 2, 4, 4))


def test_variance_is_zero_where_the_explained_part_exceeds_the_prior():
    A, s = torch.full((1, 1, 1, 3), 1.01), torch.zeros(1, 2, 1, 1)
    assert (p.marginal_variance(torch.ones(1, 1, 3), A, s) == 0).all()


def test_gradient_of_draws_is_finite_at_zero_variance():
    variance = torch.zeros(1, 1, 3, 2, requires_grad=True)
    p.sample_marginals(torch.zeros(1, 1, 3, 2), variance, torch.randn(1, 1, 3, 2)).sum().backward()
    assert variance.grad.isfinite().all()
