"""Initial values of the variational parameters of the global inducing points."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class InducingInit:
    """Normal distributions from which v_g and the free numbers of S_g's factor are drawn."""

    v_std: float  # of every entry of v_g
    s_std: float  # of every entry of the Cholesky factor below its diagonal
    log_s_mean: float  # of the logarithm of its diagonal
    log_s_std: float

    def draw(self, heads: int, points: int, width: int) -> tuple[Tensor, Tensor]:
        """v_g [H, M, V], and the factor's lower triangle with the logarithm of its diagonal [H, V, M, M]."""
        v_g = self.v_std * torch.randn(heads, points, width)
        below = self.s_std * torch.randn(heads, width, points, points)
        diagonal = self.log_s_mean + self.log_s_std * torch.randn(heads, width, points)
        return v_g, below.tril(-1) + torch.diag_embed(diagonal)


INDUCING_INITS = {
    "paper": InducingInit(1.0, 1.0, 0.0, 1.0),  # every free number a standard normal
    "prior": InducingInit(0.0, 0.0, 0.0, 0.0),  # q(u_g) = p(u_g): the global KL starts at zero
    "small": InducingInit(0.01, 0.0, math.log(0.1), 0.0),  # nearly deterministic at the global keys
}
