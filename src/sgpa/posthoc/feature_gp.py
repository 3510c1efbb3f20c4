"""A sparse GP over features of a model, such as what its head reads.

Its inputs are whitened, so that the kernel exp(-½ |x - x'|² / ℓ²) weighs all directions of training rows
alike. It is known at inducing points, as the GPs of the heads are (`head_gps.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.precision import full_precision
from sgpa.core.saved_tensors import check_tensors
from sgpa.posthoc.head_gps import HeadGps

POINTS = 256  # inducing points of the GP over what the head reads
SHRINKAGE = 0.01  # of the covariance towards a multiple of I


@dataclass(frozen=True)
class FeatureGp:
    """Whitening and inducing points."""

    centre: Tensor  # mean of training rows                                  [E]
    root: Tensor  # W with W W' = covariance^-1                              [E, E]
    gp: HeadGps  # one head of width E

    @staticmethod
    def fit(x: Tensor, points: int = POINTS) -> "FeatureGp":
        """To rows [N, E]; the length-scale is their median distance; a point for at least four rows."""
        centre = x.double().mean(0)
        centred = x.double() - centre
        C = centred.T @ centred / len(x)
        eye = torch.eye(C.shape[0], dtype=C.dtype, device=C.device)
        shrunk = (1 - SHRINKAGE) * C + SHRINKAGE * C.diagonal().mean().clamp_min(1e-12) * eye
        root = torch.linalg.solve_triangular(torch.linalg.cholesky(shrunk), eye, upper=False).T
        whitened, one = (centred @ root).float().unsqueeze(1), torch.ones(1, device=x.device)
        points = min(points, max(1, len(x) // 4))
        gp = HeadGps.fit(whitened, one.view(1, 1).clone(), one, points=points, share=1.0, name="features")
        return FeatureGp(centre.float(), root.float().contiguous(), gp)

    def variance(self, x: Tensor) -> Tensor:
        """Prior variance that the inducing points leave at rows x [..., E], in [0, 1]: [...] in float32.

        Near the inducing points it is as small as 1e-5, and scales that are fitted to it are large. float32
        would leave rounding errors of 4e-6, so it is computed in float64 where the device has it.
        """
        return self._variance(x.float() if x.device.type == "mps" else x.double()).float()

    def token_variance(self, x: Tensor) -> Tensor:
        """The same at tokens x [B, T, E] in float32: their average needs no more."""
        return self._variance(x.float())

    def _variance(self, x: Tensor) -> Tensor:
        if x.shape[-1] != len(self.centre):
            raise InputError(f"head: its input has width {x.shape[-1]}, in training {len(self.centre)}")
        with full_precision(x):
            whitened = (x - self.centre.to(x)) @ self.root.to(x)
        return self.gp.variance(whitened.unsqueeze(-2)).squeeze(-1)

    def to(self, device: torch.device) -> "FeatureGp":
        """The same on another device."""
        return FeatureGp(self.centre.to(device), self.root.to(device), self.gp.to(device))

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """All of it, to be saved."""
        return {f"{prefix}.centre": self.centre, f"{prefix}.root": self.root} | self.gp.tensors(prefix)

    @staticmethod
    def from_tensors(named: Mapping[str, Tensor], prefix: str, source: object) -> "FeatureGp":
        """What `tensors` returned."""
        check_tensors(named, {f"{prefix}.centre": ("E",), f"{prefix}.root": ("E", "E")}, source)
        gp = HeadGps.from_tensors(named, prefix, source)
        return FeatureGp(named[f"{prefix}.centre"].float(), named[f"{prefix}.root"].float(), gp)
