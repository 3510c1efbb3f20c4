"""A sparse GP over the queries of every head of one attention module.

A head maps a query q to a value f(q). Around the trained value, which stays the mean, f has a Gaussian
process prior with the kernel k(q, q') = exp(-½ |q - q'|² / ℓ²), in units of the head's own spread. It is
known at inducing queries Z that cover the training data (S_g = 0 in eq:naivedsvgp). The variance is

    1 - k_qz K_zz^-1 k_zq   in [0, 1]:   0 at a familiar query, 1 far from all of them.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError
from sgpa.core.precision import full_precision, matrix_units, recording
from sgpa.core.saved_tensors import check_tensors
from sgpa.gp.kernels import ArdRbfKernel
from sgpa.gp.linalg import cholesky, triangular_inverse
from sgpa.gp.posteriors import unexplained, whiten

ROUNDS = 10  # of k-means
SAVED, SHAPES = ("Z", "lengthscale", "spread", "gain"), ("HMD", "H", "HV", "H")


@dataclass(frozen=True)
class HeadGps:
    """Inducing queries of one attention module in units of the length-scale, and what follows from them."""

    Z: Tensor  # inducing queries / ℓ                                            [H, M, D]
    lengthscale: Tensor  # ℓ                                                     [H]
    spread: Tensor  # standard deviation of the heads' outputs over tokens       [H, V]
    gain: Tensor  # squared derivative of the outputs by a unit of spread        [H]
    L_inv: Tensor  # L^-1 with L L' = K_zz, in float64 where the device has it   [H, M, M]

    @staticmethod
    def make(
        Z: Tensor, lengthscale: Tensor, spread: Tensor, gain: Tensor, name: str = "attention"
    ) -> "HeadGps":
        """Factorise K_zz in float64."""
        K_zz = ArdRbfKernel.exponent(Z.double(), Z.double()).exp()  # [H, M, M]
        K_zz = 0.5 * (K_zz + K_zz.mT)
        L = cholesky(K_zz, "K_zz", lambda index: f"{name}, head {index[0] + 1}")
        return HeadGps(Z, lengthscale, spread, gain, triangular_inverse(L))

    @staticmethod
    def fit(
        queries: Tensor, spread: Tensor, gain: Tensor, *, points: int, share: float, name: str
    ) -> "HeadGps":
        """Inducing points by k-means on queries [N, H, D]; ℓ is a share of their median distance."""
        q = queries.transpose(0, 1).float()  # [H, N, D]
        some = q[:, :: max(1, q.shape[1] // 512)]
        distances = torch.cdist(some, some).flatten(1)  # [H, n²]
        lengthscale = share * distances.median(-1).values.clamp_min(1e-6)  # [H]
        scaled = q / lengthscale[:, None, None]
        return HeadGps.make(k_means(scaled, points), lengthscale, spread, gain, name)

    @staticmethod
    def joined(parts: Sequence["HeadGps"]) -> "HeadGps":
        """The heads of several modules of one shape, side by side."""
        names = HeadGps.__dataclass_fields__
        return (
            parts[0]
            if len(parts) == 1
            else HeadGps(*(torch.cat([getattr(p, n) for p in parts]) for n in names))
        )

    def variance(self, q: Tensor) -> Tensor:
        """Prior variance that the inducing queries leave at q [B, T, H, D], in [0, 1]: [B, T, H].

        It is computed in float64 where q is, otherwise in float32.
        """
        q = q if q.dtype == torch.float64 else q.float()
        with full_precision(q), nullcontext() if recording(q) else matrix_units(False):
            scaled = q.transpose(-3, -2) / self.lengthscale[:, None, None].to(q)  # [B, H, T, D]
            K_zq = ArdRbfKernel.exponent(self.Z.to(q), scaled).exp()  # [B, H, M, T]
            A = whiten(self.L_inv.to(q), K_zq)
            return unexplained(torch.ones((), dtype=q.dtype, device=q.device), A).transpose(-2, -1)

    def to(self, device: torch.device) -> "HeadGps":
        """The same on another device."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if device.type == "mps":  # which has no float64
            named["L_inv"] = self.L_inv.float()
        return HeadGps(**{name: x.to(device) for name, x in named.items()})

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """All but the factor, to be saved."""
        return {f"{prefix}.{name}": getattr(self, name) for name in SAVED}

    @staticmethod
    def from_tensors(named: Mapping[str, Tensor], prefix: str, source: object) -> "HeadGps":
        """What `tensors` returned."""
        shapes = {f"{prefix}.{name}": shape for name, shape in zip(SAVED, SHAPES, strict=True)}
        check_tensors(named, shapes, source)
        if not (named[f"{prefix}.lengthscale"] > 0).all():
            raise CheckpointError(f"{source}: {prefix}.lengthscale is not positive; it was damaged")
        Z, lengthscale, spread, gain = (named[f"{prefix}.{name}"].float() for name in SAVED)
        return HeadGps.make(Z, lengthscale, spread, gain, prefix)


def k_means(x: Tensor, points: int) -> Tensor:
    """Centres of x [H, N, D] for every head, [H, M, D]: farthest-point seeds, then Lloyd's rounds.

    Deterministic. A centre that no point is nearest to keeps its place. With fewer distinct points than
    `points`, centres repeat; the jitter of the factorisation allows that.
    """
    points = min(points, x.shape[1])
    centre = x.mean(1, keepdim=True)  # [H, 1, D]
    nearest = torch.cdist(x, centre).squeeze(-1)  # [H, N]
    seeds: list[Tensor] = []
    for _ in range(points):
        chosen = nearest.argmin(-1) if not seeds else nearest.argmax(-1)  # [H]
        seeds.append(x[torch.arange(len(x), device=x.device), chosen])
        distance = torch.cdist(x, seeds[-1].unsqueeze(1)).squeeze(-1)
        nearest = distance if len(seeds) == 1 else torch.minimum(nearest, distance)
    Z = torch.stack(seeds, 1)  # [H, M, D]
    for _ in range(ROUNDS):
        label = torch.cdist(x, Z).argmin(-1)  # [H, N]
        index = label.unsqueeze(-1).expand_as(x)
        total = torch.zeros_like(Z).scatter_add_(1, index, x)
        count = x.new_zeros(Z.shape[:2]).scatter_add_(1, label, torch.ones_like(label, dtype=x.dtype))
        Z = torch.where(count.unsqueeze(-1) > 0, total / count.clamp_min(1).unsqueeze(-1), Z)
    return Z
