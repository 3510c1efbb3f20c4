"""Sampled layers in float64, for inputs at which float32 loses their variance.

Squared distances are |x|² + |y|² - 2 x·y, with a rounding error of about ε |x|². The factor L^-1 of K_gg
amplifies it, and the variance K_qq - Q_qq is a difference of nearly equal terms. Inside a Transformer tokens
are normalised and the error is small. Far from the origin, for short length-scales or for inducing points
that nearly coincide it is not; such a pass is computed in float64, projections included.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sgpa.attention.global_state import GlobalState
from sgpa.attention.masks import Mask
from sgpa.attention.moments import MarginalMoments, Moments
from sgpa.core.counters import FLOAT64_PASSES, STEPS_NEED_FLOAT64, VARIANCE_CLAMPED, count
from sgpa.core.precision import full_precision, matrix_units, recording
from sgpa.core.types import Kl
from sgpa.gp.kernels import Kernel
from sgpa.gp.posteriors import whiten

if TYPE_CHECKING:
    from sgpa.attention.base import Attention

EPS = torch.finfo(torch.float32).eps
LARGEST_ERROR = 2e-3  # of float32, relative to the prior variance
LARGEST_STEP_ERROR = 0.05  # the same for a training step, whose gradient is noisy anyway
SAFETY = 4.0  # the error of all points over that of the measured ones
MEASURED = 64  # points of a head, twice: the farthest ones and others
CLAMPED = 1e-4  # of the prior variance: less is rounding
ENTRIES = 2**27  # of the largest array [B, H, V, M, T] of a float64 pass without gradients: 1 GiB
AMPLIFIED = 400.0  # how much a factor of near-duplicate keys amplifies the rounding of keys
Value = TypeVar("Value", Kl, GlobalState, Moments)


def loses_precision(kernel: Kernel, state: GlobalState, *points: Tensor) -> bool:
    """Whether float32 loses a layer's variance at points [..., H, T, D] in units of the length-scales.

    A bound of the error decides most layers. It is a worst case: where it is exceeded, the explained variance
    of some points is computed in both types and compared.
    While a graph is compiled or captured nothing can depend on values, and the answer is no.
    """
    if not _may_lose(points[0]):
        return False
    with torch.no_grad():
        distances = _distance_error(state.k_g, *points)  # also of tokens among each other
        if not distances * float(state.L_inv.abs().amax()) > LARGEST_ERROR:
            return False
        measured = max(_measured_error(kernel, state, x) for x in points)
        return _too_large(max(distances, SAFETY * measured))


def loses_points(*points: Tensor) -> bool:
    """Whether the rounding of points [..., H, T, D] themselves is too coarse; distances are in float64."""
    if not _may_lose(points[0]):
        return False
    with torch.no_grad():
        largest = torch.stack([_norms(x).amax() for x in points]).amax()
        return _too_large(float(largest) * AMPLIFIED * EPS)


def _measured_error(kernel: Kernel, state: GlobalState, x: Tensor) -> float:
    """The largest error of A = L^-1 k_gx and of |A|² in float32, relative to K_xx, of some points of x.

    These are the points farthest from the origin, and others at regular intervals. The exact ones are moved
    by one unit in the last place, as the rounding of the projections moves them.
    """
    x = x.movedim(-3, 0).flatten(1, -2) if x.ndim > 3 else x  # [H, N, D]
    far = _norms(x).topk(min(MEASURED, x.shape[1]), dim=1).indices  # [H, n]
    spread = torch.arange(0, x.shape[1], -(-x.shape[1] // MEASURED), device=x.device)
    chosen = torch.cat([far, spread.expand(len(x), -1)], 1)
    x = x.gather(1, chosen.unsqueeze(-1).expand(-1, -1, x.shape[-1]))  # [H, n, D]
    moved = x.double()
    moved[..., ::2] *= 1 + EPS
    with full_precision(x), matrix_units(False):
        A = whiten(state.L_inv.to(x.dtype), kernel.between(state.k_g, x))  # [H, M, n]
        exact = whiten(state.L_inv.double(), kernel.between(state.k_g.double(), moved))
    explained = A.double().square().sum(-2) - exact.square().sum(-2)  # [H, n]
    whitened = torch.linalg.vector_norm(A.double() - exact, dim=-2)  # [H, n]
    kxx = kernel.at(moved)  # [H, n]
    return float(torch.maximum(explained.abs() / kxx, whitened / kxx.sqrt()).amax())


def _distance_error(*points: Tensor) -> float:
    """The rounding error of squared distances between points in float32, about ε |x|²."""
    return float(torch.stack([x.square().sum(-1).amax() for x in points]).amax()) * EPS


def _too_large(error: float) -> bool:
    """Whether an error of float32 calls for float64; counted where it would spoil a training step too."""
    if not error <= LARGEST_STEP_ERROR:
        count(STEPS_NEED_FLOAT64)
    return not error <= LARGEST_ERROR


def _norms(x: Tensor) -> Tensor:
    return torch.linalg.vector_norm(x, dim=-1)


def _may_lose(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.numel() > 0 and not recording(x)


def loses_distances(*points: Tensor) -> bool:
    """Whether float32 is too coarse for squared distances of points alone, in units of the length-scales."""
    if not _may_lose(points[0]):
        return False
    with torch.no_grad():
        return _too_large(_distance_error(*points))


@torch.no_grad()
def count_clamped(kqq: Tensor, A: Tensor) -> None:
    """Count variances diag(K_qq - A'A) [..., H, T] that are negative beyond rounding; they become zero."""
    if not recording(A) and (n := int((A.square().sum(-2) > (1 + CLAMPED) * kqq).sum())):
        count(VARIANCE_CLAMPED, n)


def moments_in_float64(
    layer: "Attention",
    x: Tensor,
    padding: Tensor | None,
    state: GlobalState | None,
    mask: Mask | None = None,
) -> Any:
    """The moments of a layer computed in float64, in the type of x."""
    exact = None if state is None else converted(state, torch.float64)

    def moments_of(rows: slice) -> Any:
        given = (x[rows].double(), None if padding is None else padding[rows], exact, mask)
        return in_float64(layer, layer.moments, x.dtype, *given)

    at_once = _rows_at_once(layer, x, mask)
    parts = [moments_of(slice(i, i + at_once)) for i in range(0, len(x), at_once)]
    return parts[0] if len(parts) == 1 else _joined(parts)


def in_float64(
    layer: "Attention", moments: Callable[..., Moments], dtype: torch.dtype, *arguments: Any
) -> Any:
    """What a method of the layer returns with its parameters in float64, as numbers of another type."""
    count(FLOAT64_PASSES)
    parameters = {f"layer.{name}": p.double() for name, p in layer.named_parameters()}
    return converted(functional_call(_Moments(layer, moments), parameters, arguments), dtype)


def _rows_at_once(layer: "Attention", x: Tensor, mask: Mask | None) -> int:
    """Rows of x whose float64 variance stays below `ENTRIES`; all of them where gradients are needed.

    Predictions pass thousands of rows at once, which the fused operators of float32 need no memory for.
    """
    if torch.is_grad_enabled() or mask is not None or not layer.stochastic or getattr(layer, "joint", False):
        return len(x)
    T, E = x.shape[1:]
    return max(1, ENTRIES // (T * E * getattr(layer, "num_global", T)))


def _joined(parts: list[MarginalMoments]) -> MarginalMoments:
    """The moments of all rows from those of some rows each."""
    mean, variance, kl_a = (
        torch.cat(tensors)
        for tensors in zip(*((part.mean, part.variance, part.kl.a) for part in parts), strict=True)
    )
    return MarginalMoments(mean, Kl(parts[0].kl.g, kl_a), variance)


def converted(value: Value, dtype: torch.dtype) -> Value:
    """The same with all tensors of another type."""
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    nested = {name: converted(part, dtype) for name, part in parts.items() if isinstance(part, Kl)}
    tensors = {name: part.to(dtype) for name, part in parts.items() if isinstance(part, Tensor)}
    changed: dict[str, Any] = {**nested, **tensors}
    return replace(value, **changed)


class _Moments(nn.Module):
    """Calls a method of a layer, since `functional_call` calls `forward`."""

    def __init__(self, layer: "Attention", moments: Callable[..., Moments]) -> None:
        super().__init__()
        self.layer, self.moments = layer, moments

    def forward(self, *arguments: Any) -> Moments:
        """The layer's moments."""
        return self.moments(*arguments)
