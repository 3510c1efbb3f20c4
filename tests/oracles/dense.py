# Dense float64 algebra for one head and one value dimension: slow, plain and written from the
# textbook form of the sparse variational GP, so that it shares no step with the code under test.

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel, Kernel


@dataclass(frozen=True)
class Svgp:
    mean: Tensor  # [T]
    covariance: Tensor  # [T, T]
    kl: Tensor  # []


@dataclass(frozen=True)
class Inducing:
    # q(u) = N(m, S) on inducing points whose prior is N(0, K_zz)
    m: Tensor  # [Z]
    S: Tensor  # [Z, Z]


@dataclass(frozen=True)
class Grams:
    # of queries q, amortised keys a and global keys g
    qq: Tensor
    qa: Tensor
    qg: Tensor
    aa: Tensor
    ag: Tensor
    gg: Tensor

    @property
    def qz(self) -> Tensor:  # z = [a; g]
        return torch.cat([self.qa, self.qg], -1)

    @property
    def zz(self) -> Tensor:
        return torch.cat([torch.cat([self.aa, self.ag], -1), torch.cat([self.ag.mT, self.gg], -1)], -2)


def gram(kernel: Kernel, head: int, x: Tensor, y: Tensor) -> Tensor:
    # the kernel's formula from differences and products of single points, x [T, D], y [U, D]
    variance = kernel.log_variance[head].detach().double().exp()
    lengthscale = kernel.log_lengthscale[head].detach().double().exp()
    x, y = x.detach().double()[:, None] / lengthscale, y.detach().double()[None] / lengthscale
    if isinstance(kernel, ArdRbfKernel):
        return variance * torch.exp(-0.5 * (x - y).square().sum(-1))
    assert isinstance(kernel, ExponentialKernel)
    return variance * torch.exp((x * y).sum(-1))


def grams(kernel: Kernel, head: int, q: Tensor, a: Tensor, g: Tensor, *, jitter: float = 0.0) -> Grams:
    # `jitter` is relative and on K_gg, where the layers put theirs
    def K(x: Tensor, y: Tensor) -> Tensor:
        return gram(kernel, head, x, y)

    return Grams(K(q, q), K(q, a), K(q, g), K(a, a), K(a, g), with_jitter(K(g, g), jitter))


def with_jitter(K: Tensor, jitter: float) -> Tensor:
    return K + jitter * torch.diag(K.diagonal())


def svgp(K_qq: Tensor, K_qz: Tensor, K_zz: Tensor, u: Inducing) -> Svgp:
    # eqa:svgp
    P = K_qz @ torch.linalg.inv(K_zz)
    prior = MultivariateNormal(torch.zeros_like(u.m), K_zz)
    kl = kl_divergence(MultivariateNormal(u.m, 0.5 * (u.S + u.S.mT)), prior)
    return Svgp(P @ u.m, K_qq + P @ (u.S - K_zz) @ P.mT, kl)


def standard(K_kk: Tensor, v: Tensor, S: Tensor) -> Inducing:
    # eq:fpost is the textbook form with v = K_kk^-1 m
    return Inducing(K_kk @ v, S)


def orthogonal(K: Grams, v_a: Tensor, v_g: Tensor, S_g: Tensor) -> Inducing:
    # eqa:odsvgp with m_a = C v_a and m_g = K_gg v_g
    C = K.aa - K.ag @ torch.linalg.inv(K.gg) @ K.ag.mT
    return Inducing(torch.cat([K.ag @ v_g + C @ v_a, K.gg @ v_g]), joint_covariance(K, S_g))


def cheng_boots(K: Grams, v_a: Tensor, S_g: Tensor) -> Inducing:
    # the mean of u that makes K_qz K_zz^-1 m = K_qa v_a
    return Inducing(torch.cat([K.aa @ v_a, K.ag.mT @ v_a]), joint_covariance(K, S_g))


def joint_covariance(K: Grams, S_g: Tensor) -> Tensor:
    # S_u of eqa:odsvgp, with the plus that its printed top-left block lacks
    R = K.ag @ torch.linalg.inv(K.gg)
    return _blocks(K.aa + R @ (S_g - K.gg) @ R.mT, R @ S_g, S_g)


def printed_joint_covariance(K: Grams, S_g: Tensor) -> Tensor:
    # S_u of eqa:odsvgp to the letter
    R = K.ag @ torch.linalg.inv(K.gg)
    return _blocks(K.aa @ R @ (S_g - K.gg) @ R.mT, R @ S_g, S_g)


def _blocks(aa: Tensor, ag: Tensor, gg: Tensor) -> Tensor:
    return torch.cat([torch.cat([aa, ag], -1), torch.cat([ag.mT, gg], -1)], -2)
