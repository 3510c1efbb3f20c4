"""Numbers about each layer, such as its KL, that show a collapse of the posterior."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.attention import Moments
from sgpa.attention.base import mask_tokens
from sgpa.attention.kernel import KernelProjections
from sgpa.core.inputs import Inputs
from sgpa.models import Transformer
from sgpa.models.layer import NoDropout


@dataclass(frozen=True)
class LayerDiagnostics:
    """Numbers of one layer on one batch; None where they are not defined."""

    kl_g: float | None  # nats, global part: 0 means q(u_g) is the prior
    kl_a: float | None  # nats per sequence, amortised part: 0 means q(u_a) is the prior
    variance: float | None  # σ_f², mean over heads
    snr: float | None  # root mean square of the mean over that of the noise
    off_diagonal: float  # share of attention weight that goes to other tokens, 0 to 1


@torch.no_grad()
def diagnose(model: Transformer, inputs: Inputs) -> list[LayerDiagnostics]:
    """Numbers of every layer, from one pass over `inputs` that changes nothing."""
    layers = []
    with NoDropout(model):
        states = model.global_state()
        for (layer, f, padding, out), state in zip(model.run_layers(inputs, states), states, strict=True):
            s = mask_tokens(layer.features(f)[1], padding)
            moments = layer.attention.moments(s, padding, state)
            kernel = layer.attention.kernel if isinstance(layer.attention, KernelProjections) else None
            layers.append(
                LayerDiagnostics(
                    kl_g=out.kl.g.item() if layer.attention.stochastic else None,
                    kl_a=out.kl.a.mean().item() if layer.attention.stochastic else None,
                    variance=None if kernel is None else kernel.log_variance.exp().mean().item(),
                    snr=_signal_to_noise(moments, padding),
                    off_diagonal=_off_diagonal(layer.attention.weights(s, padding), padding),
                )
            )
    return layers


def _real(padding: Tensor | None, shape: torch.Size, like: Tensor) -> Tensor:
    """1 at real tokens, [B, 1, T, 1]."""
    return (
        like.new_ones(shape[0], 1, shape[2], 1) if padding is None else (~padding)[:, None, :, None].to(like)
    )


def _signal_to_noise(moments: Moments, padding: Tensor | None) -> float | None:
    if moments.variance is None:
        return None
    real = _real(padding, moments.mean.shape, moments.mean)
    signal, noise = (moments.mean.square() * real).sum(), (moments.variance * real).sum()
    return (signal / noise).sqrt().item()


def _off_diagonal(weights: Tensor, padding: Tensor | None) -> float:
    real = _real(padding, weights.shape, weights)
    weights = weights.abs() * real * real.mT  # [B, H, T, T]
    diagonal = weights.diagonal(dim1=-2, dim2=-1).sum()
    return (1 - diagonal / weights.sum()).item()
