"""Attention whose output is drawn from its posterior: the part all three SGPA forms share."""

import math

import torch
from torch import Tensor

from sgpa.attention.base import Moments
from sgpa.attention.kernel import KernelProjections
from sgpa.gp.posteriors import sample_jointly, sample_marginals


class SampledAttention(KernelProjections):
    """Kernel attention that also knows its variance, and samples from both."""

    stochastic = True

    def place_in_batch(self, index: tuple[int, ...]) -> str:
        """Where matrix [b, h] of this layer is, in words."""
        return f"{self.name}, sequence {index[0]} of the batch, head {index[1] + 1}"

    @torch.no_grad()
    def scale_initial_variance(self, share: float) -> None:
        """Less noise around the same mean: σ_f² times `share`, W_v divided by it, so that K_qa v_a stays."""
        self.kernel.log_variance.add_(math.log(share))
        self.W_v.weight.div_(share)

    def draw(self, moments: Moments, samples: tuple[int, ...]) -> Tensor:
        """F ~ q(F), from the marginals or, where `joint`, from the full covariance."""
        if moments.L_c is None:
            return sample_marginals(moments.posterior, samples)
        assert moments.A is not None
        assert moments.s is not None
        return sample_jointly(moments.posterior, moments.L_c, moments.A, moments.s, samples)
