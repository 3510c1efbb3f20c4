"""Float32 layers far from the origin, with near-duplicate keys and extreme length-scales, against float64."""

import copy
from dataclasses import dataclass

import torch

from sgpa.attention import (
    ChengBootsSgpa,
    KernelAttention,
    MultiheadSgpa,
    OrthogonalSgpa,
    StandardSgpa,
    prepare,
    total_kl,
)
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
    values = layer.heads(x.detach(), layer.W_v).detach().abs().max()  # K_qk v with K_qk below the prior
    return compared(about, layer.kernel, values, low, exact, (output.value, x.grad))


def compared(about, kernel, values, low, exact, outputs, padding=None):
    """Moments in float32 beside those in float64; what stands at padding does not count."""
    prior = kernel.log_variance.detach().exp().max()
    real = slice(None) if padding is None else ~padding
    means, variances = (
        [m.transpose(1, 2)[real] for m in pair]  # [.., H, V]
        for pair in ((low.mean, exact.mean), (low.posterior.variance, exact.posterior.variance))
    )
    error = float(((variances[0] - variances[1]).abs() / variances[1].clamp_min(prior)).max())
    mean_error = float((means[0] - means[1]).abs().max() / means[1].abs().max().clamp_min(prior * values))
    kl_error = (low.kl.a - exact.kl.a).abs() - 0.01 * exact.kl.a.abs()
    problems = {
        "a number is not finite": not all(y.isfinite().all() for y in (*outputs, low.kl.a, low.kl.g)),
        "the variance is wrong by more than 1 %": error >= 0.01,
        "the mean is wrong by more than 1 %": mean_error > 0.01,
        "the KL is negative": min(float(low.kl.a.min()), float(low.kl.g)) <= -1e-3,
        "the KL is wrong": float(kl_error.max()) > 1e-3,
    }
    return Measured(
        about, error=error, problem=next((name for name, wrong in problems.items() if wrong), None)
    )


MASKS = ("none", "causal", "window", "padding", "cross")


def hostile_multihead(seed):
    """A `MultiheadSgpa`, arguments of its pass, and what they are."""
    torch.manual_seed(seed)
    shift, distance, lengthscale, form, mask = (
        choices[int(torch.randint(len(choices), ()))]
        for choices in (SHIFTS, DUPLICATES, LENGTHSCALES, ("cheng-boots", "orthogonal"), MASKS)
    )
    kernel = ArdRbfKernel(H, E // H, lengthscale=lengthscale)
    layer = MultiheadSgpa(E, H, batch_first=True, num_global=M, kernel=kernel, form=form)
    x = shift + torch.randn(3, T, E)
    if distance:
        x[:, T // 2 :] = x[:, : T // 2] + distance * torch.randn(3, T // 2, E)
    prepare(layer, (x, x, x), initial_variance_scale=1.0)
    with torch.no_grad():
        Z_g = layer.attention.Z_g
        Z_g[:, M // 2 :] = Z_g[:, : M // 2] + distance * torch.randn(H, M // 2, E)
    at = torch.arange(T)
    later, far = at > at[:, None], (at - at[:, None]).abs() > 2  # [T, T]
    options = {
        "causal": {"attn_mask": later, "is_causal": True},
        "window": {"attn_mask": far},
        "padding": {"key_padding_mask": at.expand(3, T) >= torch.tensor([[T], [7], [3]])},
    }.get(mask, {})
    key = x[:, :9].clone() if mask == "cross" else x
    named = {"query": x, "key": key, "value": key} | options
    return layer, named, f"seed {seed}: {form}, {mask}, x + {shift:g}, {distance:g}, ℓ {lengthscale:g}"


def measure_multihead(seed):
    """One layer with its gradient and masks, against the same layer in float64."""
    layer, named, about = hostile_multihead(seed)
    x = named["query"].requires_grad_()
    named = named if named["key"] is not x else named | {"key": x, "value": x}
    try:
        value, _ = layer(**named)
        (value.square().sum() + total_kl(layer, dataset_size=1)).backward()
    except NumericalError:
        return Measured(about, refused=True)
    with torch.no_grad():
        exact = {
            name: given.double() if getattr(given, "dtype", None) == torch.float32 else given
            for name, given in named.items()
        }
        if named["key"] is named["query"]:
            exact |= {"key": exact["query"], "value": exact["query"]}
        moments = moments_of(layer, named), moments_of(copy.deepcopy(layer).double(), exact)
        values = layer.attention.heads(named["value"].detach(), layer.attention.W_v).abs().max()
    outputs, padding = (value.detach(), x.grad), named.get("key_padding_mask")
    return compared(about, layer.attention.kernel, values, *moments, outputs, padding)


def moments_of(layer, named):
    """The moments that a pass computes."""
    seen = []

    def keep(*args):
        seen.append(MultiheadSgpa._moments(layer, *args))
        return seen[-1]

    layer._moments = keep
    layer(**named)
    del layer._moments
    return seen[0]
