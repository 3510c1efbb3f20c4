"""Sampled layers in float64, for inputs at which float32 loses their variance.

Squared distances are |x|² + |y|² - 2 x·y, with a rounding error of about ε |x|². The factor L^-1 of K_gg
amplifies it, and the variance K_qq - Q_qq is a difference of nearly equal terms. Inside a Transformer tokens
are normalised and the error is small. Far from the origin, for short length-scales or for inducing points
that nearly coincide it is not; such a pass is computed in float64, projections included.
"""

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sgpa.attention.global_state import GlobalState
from sgpa.attention.masks import Mask
from sgpa.attention.moments import MarginalMoments, Moments
from sgpa.core.counters import FLOAT64_PASSES, count
from sgpa.core.precision import recording
from sgpa.core.types import Kl

if TYPE_CHECKING:
    from sgpa.attention.base import Attention

LARGEST_ERROR = 2e-3  # of float32, relative to the prior variance
AMPLIFIED = 100.0  # how much a factor of near-duplicate keys amplifies the rounding of keys
Value = TypeVar("Value", Kl, GlobalState, MarginalMoments)


def loses_precision(state: GlobalState | None, *points: Tensor) -> bool:
    """Whether float32 is too coarse for points [..., H, T, D] in units of the length-scales.

    A layer without a state has its distances in float64: only the rounding of the points themselves counts.
    While a graph is compiled or captured nothing can depend on values, and the answer is no.
    """
    if points[0].dtype != torch.float32 or recording(points[0]):
        return False
    with torch.no_grad():
        length = torch.stack([torch.linalg.vector_norm(x, dim=-1).amax() for x in points]).amax()
        error = length * AMPLIFIED if state is None else length.square() * state.L_inv.abs().amax()
        return float(error) * torch.finfo(torch.float32).eps > LARGEST_ERROR


def moments_in_float64(
    layer: "Attention",
    x: Tensor,
    padding: Tensor | None,
    state: GlobalState | None,
    mask: Mask | None = None,
) -> MarginalMoments:
    """The moments of a layer computed in float64, in the type of x."""
    count(FLOAT64_PASSES)
    parameters = {f"layer.{name}": p.double() for name, p in layer.named_parameters()}
    exact = None if state is None else converted(state, torch.float64)
    moments: MarginalMoments = functional_call(
        _Moments(layer), parameters, (x.double(), padding, exact, mask)
    )
    return converted(moments, x.dtype)


def converted(value: Value, dtype: torch.dtype) -> Value:
    """The same with all tensors of another type."""
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    nested = {name: converted(part, dtype) for name, part in parts.items() if isinstance(part, Kl)}
    tensors = {name: part.to(dtype) for name, part in parts.items() if isinstance(part, Tensor)}
    changed: dict[str, Any] = {**nested, **tensors}
    return replace(value, **changed)


class _Moments(nn.Module):
    """Calls a layer's `moments`, since `functional_call` calls `forward`."""

    def __init__(self, layer: "Attention") -> None:
        super().__init__()
        self.layer = layer

    def forward(
        self, x: Tensor, padding: Tensor | None, state: GlobalState | None, mask: Mask | None
    ) -> Moments:
        """The layer's moments."""
        return self.layer.moments(x, padding, state, mask)
