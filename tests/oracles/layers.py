# Small float64 attention layers in all their variants, for tests that hold for each of them.

from collections.abc import Iterator
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from oracles import dense
from sgpa.attention import (
    Attention,
    ChengBootsSgpa,
    DotProductAttention,
    KernelAttention,
    OrthogonalSgpa,
    StandardSgpa,
)
from sgpa.attention.kernel import KernelProjections
from sgpa.attention.moments import JointMoments, Moments
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel, Kernel
from sgpa.gp.linalg import JITTERS
from sgpa.gp.posteriors import covariance

E, H, D, T, M = 8, 2, 4, 5, 3
KERNELS = [ArdRbfKernel, ExponentialKernel]
SGPA: dict[type[Attention], dict] = {
    OrthogonalSgpa: {"num_global": M, "init": "paper"},
    ChengBootsSgpa: {"num_global": M, "init": "paper"},
    StandardSgpa: {"max_tokens": T + 1},
}


def make(
    layer_class: type[Attention], kernel_class: type[Kernel] | None = None, seed: int = 0, **options: bool
) -> Attention:
    torch.manual_seed(seed)
    kernel = () if kernel_class is None else (kernel_class(H, D, variance=1.3, lengthscale=1.2),)
    layer = layer_class(E, H, *kernel, **(SGPA.get(layer_class, {}) | options)).double()
    for k in kernel:  # heads and coordinates must differ for a mix-up to be seen
        nn.init.normal_(k.log_variance, std=0.2)
        nn.init.normal_(k.log_lengthscale, mean=0.2, std=0.2)
    if getattr(layer, "places_g", None) is not None:
        nn.init.normal_(layer.places_g, std=0.3)
    return layer


def variants(*classes: type[Attention], **choices: tuple) -> Iterator:
    # one builder for every combination of a class, a kernel and the given options
    for layer_class, kernel_class, values in product(classes, KERNELS, product(*choices.values())):
        options = dict(zip(choices, values, strict=True))
        words = [layer_class.__name__, kernel_class.__name__[:3], *(k for k, on in options.items() if on)]
        yield pytest.param(partial(make, layer_class, kernel_class, **options), id="-".join(words))


NO_YES = (False, True)
DETERMINISTIC = [
    pytest.param(partial(make, DotProductAttention), id="DotProductAttention"),
    *variants(KernelAttention, tied=NO_YES),
]
DECOUPLED = list(variants(OrthogonalSgpa, ChengBootsSgpa, tied=NO_YES, whitened=NO_YES, joint=NO_YES))
SAMPLED = [*DECOUPLED, *variants(StandardSgpa, tied=NO_YES, whitened=NO_YES, joint=NO_YES)]


def position_aware(*classes: type[Attention]) -> list:
    # builders of layers with position-aware keys; there are more positions than tokens
    where = torch.randn(T + 2, H, D, generator=torch.Generator().manual_seed(2))
    options = [{"positions": where}, {"positions": where, "tied": False}]
    return [
        pytest.param(partial(make, c, ArdRbfKernel, **o), id=f"{c.__name__}-{'-'.join(o)}")
        for c, o in product(classes, options)
    ]


def tokens(B: int = 3, T: int = T) -> Tensor:
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def full_covariance(m: Moments) -> Tensor:
    # of what is drawn: over tokens where they are drawn jointly, else diagonal     [B, H, V, T, T]
    if not isinstance(m, JointMoments):
        return torch.diag_embed(m.posterior.variance.expand_as(m.mean).mT)
    return covariance(m.L_c @ m.L_c.mT + m.A.mT @ m.A, m.A, m.s).expand(-1, -1, D, -1, -1)


def dense_algebra(
    layer: KernelProjections,
    x: Tensor,
    *,
    b: int,
    h: int,
    d: int,
    queries: slice | Tensor = slice(None),
    keys: slice | Tensor = slice(None),
) -> dense.Svgp:
    # the layer's sparse GP for sequence b, head h and value dimension d, with its smallest jitter; of a
    # decoupled layer some queries and keys can be selected
    def project(points: Tensor, W: nn.Linear) -> Tensor:  # on the rows of W that are head h's
        return (points @ W.weight[h * D : (h + 1) * D].mT).detach()

    def unscaled(positions: Tensor | None) -> Tensor | float:  # they are in units of the length-scales
        return 0.0 if positions is None else (positions * layer.kernel.log_lengthscale[h].exp()).detach()

    here = unscaled(None if layer.places is None else layer.places[: x.shape[1], h])
    k, v = project(x[b], layer.W_qk) + here, project(x[b], layer.W_v)[:, d]
    q = k if layer.W_q is None else project(x[b], layer.W_q) + here
    if isinstance(layer, StandardSgpa):
        K_kk = dense.with_jitter(dense.gram(layer.kernel, h, k, k), JITTERS[0])
        s = layer.s_factor(x)[b, h, 0].detach()
        s = torch.linalg.cholesky(K_kk) @ s if layer.whitened else s
        K_qq, K_qk = dense.gram(layer.kernel, h, q, q), dense.gram(layer.kernel, h, q, k)
        return dense.svgp(K_qq, K_qk, K_kk, dense.standard(K_kk, v, s @ s.mT))
    q, k, v = q[queries], k[keys], v[keys]
    g = project(layer.Z_g[h], layer.W_qk) + unscaled(None if layer.places_g is None else layer.places_g[h])
    K = dense.grams(layer.kernel, h, q, k, g, jitter=JITTERS[0])
    s = layer.s_factor()[h, d].detach()
    s = torch.linalg.cholesky(K.gg) @ s if layer.whitened else s
    if isinstance(layer, ChengBootsSgpa):
        return dense.svgp(K.qq, K.qz, K.zz, dense.cheng_boots(K, v, s @ s.mT))
    return dense.svgp(K.qq, K.qz, K.zz, dense.orthogonal(K, v, layer.v_g[h, :, d].detach(), s @ s.mT))
