"""Prediction without sampling: the posterior means of all layers, and their variances to first order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from sgpa.core import noise
from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs
from sgpa.core.precision import full_precision, require_finite
from sgpa.gp.likelihoods import NOT_FINITE
from sgpa.models.batches import in_batches
from sgpa.models.bayesian import bayesian_maps

if TYPE_CHECKING:
    from sgpa.models.transformer import States, Transformer


@dataclass
class Expansion(noise.Recording):
    """A source of noise that is zero, at which every layer returns its posterior mean; the zeros are kept.

    A layer computes F = mean + variance^½ ε, so the derivative of the outputs with respect to these ε is
    their derivative with respect to F times the standard deviation of F.
    """

    zeros: list[Tensor] = field(default_factory=list)  # one of each layer, or two where it samples jointly

    def take(self, draw: noise.Draw) -> Tensor:
        """Zeros with respect to which the outputs can be differentiated."""
        self.zeros.append(torch.zeros(draw.shape, dtype=draw.dtype, device=draw.device, requires_grad=True))
        return self.zeros[-1]


def output_moments(
    model: "Transformer", inputs: Inputs, states: "States", *, layers: int | None = None
) -> tuple[Tensor, Tensor]:
    """Mean f(0) [B, C] and covariance Σ_l J_l J_l' [B, C, C] of outputs f(ε) with J_l = df / dε_l at ε = 0.

    ε_l ~ N(0, I) is the noise of layer l, from which it makes F^l = mean + variance^½ ε_l. The approximation
    is that f is linear in all ε over the width of their distribution: means pass through the layers as if
    they were values; W_o, residuals, MLPs, norms, pooling, the head and the attention of later layers are
    replaced by their tangents; the effect of a layer's noise on the variances of the next is left out. It is
    exact for one layer followed by a linear map. Covariances between tokens count where a layer samples
    jointly.

    `layers=n` counts the noise of the last n layers only. With `layers=1` the derivative ends at the last
    attention, which is cheap and leaves out the uncertainty of the layers before.
    """
    check_sampled(model)
    expansion = Expansion()
    with frozen(model), torch.enable_grad(), noise.source(expansion):
        f = model(inputs, states=states).f  # [B, C]
        per_layer = len(expansion.zeros) // len(model.gp_layers)
        counted = expansion.zeros[-per_layer * (layers or len(model.gp_layers)) :]
        rows = [torch.autograd.grad(f[:, c].sum(), counted, retain_graph=True) for c in range(f.shape[-1])]
    covariance = f.new_zeros(*f.shape, f.shape[-1])
    with full_precision(f):
        for parts in zip(*rows, strict=True):  # C gradients of one tensor of noise
            J = torch.stack(parts, 1).flatten(2)  # [B, C, H T V]
            covariance = covariance + J @ J.mT
    return f.detach(), covariance.detach()


def label_moments(model: "Transformer", inputs: Inputs, states: "States") -> tuple[Tensor, Tensor]:
    """Mean f(0) [B, C] and a covariance v I [B, C, C] that needs one derivative instead of C.

    d'f with d = e_k - Σ_{j≠k} e_j p_j / (1 - p_k) sets the most probable class k against the others, as they
    are likely; v is its variance to first order over |d|². Two classes get the exact variance of their
    difference. One output is what `output_moments` returns.
    """
    check_sampled(model)
    expansion = Expansion()
    with frozen(model), torch.enable_grad(), noise.source(expansion):
        f = model(inputs, states=states).f  # [B, C]
        direction = torch.ones_like(f) if f.shape[-1] == 1 else _against_others(f.detach())
        slopes = torch.autograd.grad((f * direction).sum(), expansion.zeros)
    B, C = f.shape
    with full_precision(f):
        v = sum((g.flatten(1).square().sum(1) for g in slopes), f.new_zeros(B)) / direction.square().sum(-1)
    return f.detach(), v.view(B, 1, 1) * torch.eye(C, dtype=f.dtype, device=f.device)


def _against_others(f: Tensor) -> Tensor:
    """Directions d [B, C] of `label_moments`."""
    top = torch.nn.functional.one_hot(f.argmax(-1), f.shape[-1]).to(f.dtype)
    return top - f.masked_fill(top.bool(), -torch.inf).softmax(-1)


def moments_of_rows(
    model: "Transformer",
    function: Callable[..., tuple[Tensor, Tensor]],
    inputs: Inputs,
    batch_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean [N, C] and covariance [N, C, C] of all rows, by `output_moments` or `label_moments`."""
    with torch.inference_mode(False), torch.no_grad():
        states = model.global_state()

        def both(rows: Inputs) -> Tensor:
            mean, covariance = function(model, rows, states)
            return torch.cat([mean.unsqueeze(-1), covariance], -1)  # [B, C, 1 + C]

        memory = 1 if model.device.type == "cpu" else 10  # of a pass that is differentiated, in samples
        moments = torch.cat(list(in_batches(model, both, inputs, samples=memory, rows=batch_size)))
    require_finite(lambda: NOT_FINITE, moments)
    return moments[..., 0], moments[..., 1:]


def check_sampled(model: "Transformer") -> None:
    """Raise unless attention, and nothing else, is what the model samples."""
    if noise.dropping(model) or bayesian_maps(model):
        random = "dropout is on" if noise.dropping(model) else "its weights are random"
        raise InputError(
            f"samples=0: {random} in this model, and only the variance of sampled attention has a closed "
            "form; ask for one sample or more"
        )
    if not all(layer.attention.stochastic for layer in model.gp_layers):
        raise InputError(
            "samples=0: nothing is sampled by this model, so there is no variance to add in closed form; "
            "leave `samples` out"
        )


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Inside the block no parameter requires a gradient."""
    asking = [p for p in model.parameters() if p.requires_grad]
    for p in asking:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in asking:
            p.requires_grad_(True)
