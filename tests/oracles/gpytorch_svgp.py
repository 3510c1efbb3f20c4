# The joint sparse GP of one head and one value dimension, by GPyTorch.

import gpytorch
from gpytorch.variational import CholeskyVariationalDistribution, UnwhitenedVariationalStrategy
from torch import Tensor, linalg

from oracles.dense import Inducing, Svgp
from sgpa.gp.kernels import ArdRbfKernel, Kernel


class Exponential(gpytorch.kernels.Kernel):
    # GPyTorch has no kernel exp(x . y)
    def __init__(self, lengthscale: Tensor):
        super().__init__()
        self.scale = lengthscale

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **_: object) -> Tensor:
        K = ((x1 / self.scale) @ (x2 / self.scale).mT).exp()
        return K.diagonal(dim1=-2, dim2=-1) if diag else K


class Model(gpytorch.models.ApproximateGP):
    def __init__(self, kernel: gpytorch.kernels.Kernel, z: Tensor, u: Inducing):
        q_u = CholeskyVariationalDistribution(len(z))
        strategy = UnwhitenedVariationalStrategy(
            self, z, q_u, learn_inducing_locations=False, jitter_val=1e-12
        )
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        self.double()
        q_u.variational_mean.data = u.m
        q_u.chol_variational_covar.data = linalg.cholesky(u.S)
        strategy.variational_params_initialized.fill_(1)  # or the first call overwrites q(u) by the prior

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gpytorch_svgp(kernel: Kernel, head: int, q: Tensor, z: Tensor, u: Inducing) -> Svgp:
    lengthscale = kernel.log_lengthscale[head].detach().exp()
    if isinstance(kernel, ArdRbfKernel):
        base = gpytorch.kernels.RBFKernel(ard_num_dims=len(lengthscale)).double()
        base.lengthscale = lengthscale
    else:
        base = Exponential(lengthscale)
    scaled = gpytorch.kernels.ScaleKernel(base).double()
    scaled.outputscale = kernel.log_variance[head].detach().exp()
    model = Model(scaled, z, u)
    # the KL reads a prior that only a call in training mode, away from z, stores with our jitter
    model.train()(z + 1)
    kl = model.variational_strategy.kl_divergence()
    f = model.eval()(q)
    return Svgp(f.mean, f.covariance_matrix, kl)
