"""Float32 layers far from the origin, with near-duplicate keys and extreme length-scales, against float64."""

import copy
from dataclasses import dataclass

import torch

from sgpa.attention import ChengBootsSgpa, KernelAttention, OrthogonalSgpa, StandardSgpa
from sgpa.core.errors import NumericalError
from sgpa.gp.kernels import ArdRbfKernel

E, H, M, T = 16, 2, 8, 12
SHIFTS, DUPLICATES, LENGTHSCALES = (0.0, 1.0, 30.0, 300.0), (0.0, 1e-4, 1e-2), (1e-2, 0.1, 1.0, 4.0, 30.0)
FORMS = (
    (OrthogonalSgpa, {"init": "small"}),
    (OrthogonalSgpa, {"init": "paper"}),
    (OrthogonalSgpa, {"init": "paper", "whitened": False}),
    (ChengBootsSgpa, {"init": "paper"}),
    (StandardSgpa, {}),
    (KernelAttention, {}),
)


@dataclass(frozen=True)
class Measured:
    """What a layer did: the error of its variance relative to max(prior, variance), or why it is wrong."""

    about: str
    refused: bool = False
    error: float = 0.0
    problem: str | None = None


def hostile_layer(seed):
    """A layer, its inputs [3, T, E] and what they are."""
    torch.manual_seed(seed)
    shift, distance, lengthscale, (form, options), tied = (
        choices[int(torch.randint(len(choices), ()))]
        for choices in (SHIFTS, DUPLICATES, LENGTHSCALES, FORMS, (True, True, False))
    )
    kernel = ArdRbfKernel(H, E // H, lengthscale=lengthscale)
    x = shift + torch.randn(3, T, E)
    if distance:
        x[:, T // 2 :] = x[:, : T // 2] + distance * torch.randn(3, T // 2, E)
    if form is StandardSgpa:
        layer = form(E, H, kernel, max_tokens=T, tied=tied)
    elif form is KernelAttention:
        layer = form(E, H, kernel, tied=tied)
    else:
        layer = form(E, H, kernel, num_global=M, tied=tied, **options)
        layer.init_on_data(x.flatten(0, 1))
        with torch.no_grad():
            layer.Z_g[:, M // 2 :] = layer.Z_g[:, : M // 2] + distance * torch.randn(H, M // 2, E)
    return layer, x, f"seed {seed}: {form.__name__} {options}, x + {shift:g}, {distance:g}, ℓ {lengthscale:g}"


def measure(seed):
    """One layer with its gradient, against the same layer in float64."""
    layer, x, about = hostile_layer(seed)
    try:
        output = layer(x.requires_grad_(), samples=2)
        (output.value.square().sum() + output.kl.a.sum() + output.kl.g).backward()
    except NumericalError:
        return Measured(about, refused=True)
    with torch.no_grad():
        low, exact = layer.moments(x, None), copy.deepcopy(layer).double().moments(x.double(), None)
    prior = layer.kernel.log_variance.detach().exp().max()
    variance, truth = low.posterior.variance, exact.posterior.variance
    error = float(((variance - truth).abs() / truth.clamp_min(prior)).max())
    values = layer.heads(x.detach(), layer.W_v).detach().abs().max()  # K_qk v with K_qk below the prior
    mean_error = float((low.mean - exact.mean).abs().max() / exact.mean.abs().max().clamp_min(prior * values))
    kl_error = (low.kl.a - exact.kl.a).abs() - 0.01 * exact.kl.a.abs()
    problems = {
        "a number is not finite": not all(
            y.isfinite().all() for y in (output.value, low.kl.a, low.kl.g, x.grad)
        ),
        "the variance is wrong by more than 1 %": error >= 0.01,
        "the mean is wrong by more than 1 %": mean_error > 0.01,
        "the KL is negative": min(float(low.kl.a.min()), float(low.kl.g)) <= -1e-3,
        "the KL is wrong": float(kl_error.max()) > 1e-3,
    }
    return Measured(
        about, error=error, problem=next((name for name, wrong in problems.items() if wrong), None)
    )
