"""An attention layer before sampling: the distribution of its values, what it costs, and draws from it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core import noise
from sgpa.core.types import Kl, Posterior
from sgpa.gp.fused import fused_sample, fused_variance
from sgpa.gp.posteriors import sample_jointly, sample_marginals


@dataclass(frozen=True)
class Moments:
    """Deterministic attention: its values have no variance."""

    mean: Tensor  # [B, H, T, V]
    kl: Kl

    @property
    def posterior(self) -> Posterior:
        """Mean and marginal variance, zero where attention is deterministic."""
        return Posterior(self.mean, torch.zeros_like(self.mean))

    def draw(self, samples: tuple[int, ...]) -> Tensor:
        """F ~ q(F), [*samples, B, H, T, V]; `samples` is empty or one number."""
        return self.mean.expand(samples + self.mean.shape)


@dataclass(frozen=True)
class MarginalMoments(Moments):
    """Tokens are drawn independently of each other."""

    variance: Tensor  # [B, H, T, V]

    @property
    def posterior(self) -> Posterior:
        """Mean and marginal variance."""
        return Posterior(self.mean, self.variance)

    def draw(self, samples: tuple[int, ...]) -> Tensor:
        """F from its marginals."""
        eps = noise.normal(samples + self.mean.shape, self.mean, rows=len(samples))
        return sample_marginals(self.mean, self.variance, eps)


@dataclass(frozen=True)
class JointMoments(MarginalMoments):
    """Tokens are drawn from their full covariance L_c L_c' + A' s s' A."""

    L_c: Tensor  # factor of K_qq - Q_qq     [B, H, T, T]
    A: Tensor  # [B, H, M, T]
    s: Tensor  # [.., H, V or 1, M, M]

    def draw(self, samples: tuple[int, ...]) -> Tensor:
        """F from its joint distribution over tokens."""
        shape, rows = samples + self.mean.shape, len(samples)
        eps_c = noise.normal(shape, self.mean, rows=rows)
        eps_g = noise.normal((*shape[:-2], shape[-1], self.A.shape[-2], 1), self.mean, rows=rows)
        return sample_jointly(self.mean, self.L_c, self.A, self.s, eps_c, eps_g)


@dataclass(frozen=True)
class FusedMoments(Moments):
    """Moments of the fast path: one operator computes the variance and draws a sample from it."""

    unexplained: Tensor  # diag(K_qq - Q_qq)  [B, H, T]
    A: Tensor  # [B, H, M, T]
    S: Tensor  # s s'                         [H, M, M, V]

    @property
    def variance(self) -> Tensor:
        """The marginal variance, computed anew at every access, [B, H, T, V]."""
        return fused_variance(self.unexplained, self.A, self.S)

    @property
    def posterior(self) -> Posterior:
        """Mean and marginal variance."""
        return Posterior(self.mean, self.variance)

    def draw(self, samples: tuple[int, ...]) -> Tensor:
        """F from its marginals.

        Several samples share one variance, and the operator for one sample has no derivative by the noise,
        which prediction without sampling needs (`models/linearised.py`).
        """
        eps = noise.normal(samples + self.mean.shape, self.mean, rows=len(samples))
        if samples or eps.requires_grad:
            return sample_marginals(self.mean, self.variance, eps)
        return fused_sample(self.unexplained, self.A, self.S, self.mean, eps)
