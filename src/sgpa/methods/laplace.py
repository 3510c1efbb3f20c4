"""Laplace approximation of the last layer with a Kronecker-factored curvature (Kristiadi et al. 2020)."""

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from scipy.optimize import brentq
from torch import Tensor, nn

from sgpa.core.arguments import checked
from sgpa.core.errors import ConfigError, InputError, check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.noise import samples_check
from sgpa.core.precision import require_finite
from sgpa.core.types import Classification, Predictor
from sgpa.gp.likelihoods import NOT_FINITE
from sgpa.methods.base import (
    NOTHING,
    Calibration,
    Method,
    PostHoc,
    Tensors,
    base_check,
    check_calibrated,
    check_classifier,
    check_finite,
)
from sgpa.methods.mle import Mle
from sgpa.models import Transformer
from sgpa.models.batches import in_batches
from sgpa.models.modes import evaluating

PRIORS = ("marginal-likelihood", "validation")
PREDICTIVES = ("probit", "monte-carlo")
BOUNDS = (1e-8, 1e8)  # of the prior precision chosen by marginal likelihood
GRID = tuple(10 ** (8 * i / 99 - 4) for i in range(100))  # of those chosen by validation: 1e-4 to 1e4

log = logging.getLogger(__name__)


@checked
@dataclass(frozen=True, kw_only=True)
class KfacLaplace(PostHoc):
    """A Gaussian posterior over the head's W and b around their trained values; other weights stay fixed.

    With φ the features, p = softmax(W φ + b) and means over the N training rows without augmentation,

        H_W = N Ḡ ⊗ A,  H_b = N Ḡ,  Ḡ = mean of diag(p) - p p',  A = mean of φ φ',

    the posterior precisions are H_W + δ I and H_b + δ I. The expected entropy is the entropy minus the
    mutual information of the draws, with both kinds of `predictive`.

    Adding one number to all outputs changes no probability, so no data reduces the variance of that
    direction, (‖φ‖² + 1) / (K δ). Draws are not affected by it; probit counts it and is less confident.

    Args:
        base: the method that trains; its model must predict by itself.
        prior: what chooses δ, "marginal-likelihood" of the training rows or NLL of the "validation" rows.
        predictive: "probit", softmax(f_k / √(1 + π Σ_kk / 8)), or "monte-carlo", the mean of draws.
        samples: number of draws.

    Example:
        >>> method = KfacLaplace(predictive="monte-carlo", samples=50)
        >>> calibration = method.calibrate(model, Calibration(train, validation))  # doctest: +SKIP
        >>> method.predictor(model, calibration).predict(images)  # doctest: +SKIP
    """

    base: Method = field(default_factory=Mle)
    prior: str = "marginal-likelihood"
    predictive: str = "probit"
    samples: int = 10

    id = "kflla"
    regression = False

    def __post_init__(self) -> None:
        check_fields(
            self.id,
            [
                base_check(self.base),
                ("prior", self.prior, self.prior in PRIORS, ", ".join(PRIORS)),
                ("predictive", self.predictive, self.predictive in PREDICTIVES, ", ".join(PREDICTIVES)),
                samples_check(self.samples),
            ],
        )

    @torch.no_grad()
    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """Eigenvalues g [K], a [E] and eigenvectors Q, R of the two factors, N, δ and the log evidence []."""
        head = linear_head(model, self.id)
        phi, f = head_inputs(model, data.train.inputs)
        targets = data.train.targets.to(f.device)
        model.likelihood.check(targets, head.out_features)
        check_finite(torch.cat([phi, f], -1), self.id, "features", "training")
        curvature = Curvature.of(phi, f.softmax(-1))
        theta2 = torch.cat([head.weight.flatten(), head.bias]).double().square().sum()  # ‖θ‖²  []
        if self.prior == "validation":
            delta = self._best_on_validation(model, data, curvature)
        else:
            delta = most_likely_precision(curvature.eigenvalues, float(theta2))
        log_likelihood = -model.likelihood.nll(f, targets).sum()
        evidence = log_evidence(log_likelihood, curvature.eigenvalues, theta2, delta)
        return curvature.tensors() | {"delta": f.new_tensor(delta), "log_evidence": evidence}

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The Gaussian over outputs, turned into probabilities."""
        head = linear_head(model, self.id)
        check_calibrated(calibration, SHAPES, self.id)
        if (
            not all(bool((calibration[name] >= 0).all()) for name in ("g", "a"))
            or not calibration["delta"] > 0
        ):
            raise InputError(f"{self.id}: g, a or delta of the calibration are negative; it was damaged")
        curvature = Curvature(*(calibration[name].to(model.device, torch.float64) for name in NAMES))
        given, needed = (len(curvature.g), len(curvature.a)), (head.out_features, head.in_features)
        if given != needed:
            raise InputError(
                f"{self.id}: calibrated for {given[0]} classes and {given[1]} features, the model has "
                f"{needed[0]} and {needed[1]}; call calibrate with this model"
            )
        return HeadLaplace(model, curvature, float(calibration["delta"]), self.predictive, self.samples)

    def _best_on_validation(self, model: Transformer, data: Calibration, curvature: "Curvature") -> float:
        """The δ of the grid with the smallest validation NLL."""
        phi, f = head_inputs(model, data.validation.inputs)
        targets = data.validation.targets.to(f.device)
        model.likelihood.check(targets, f.shape[-1])
        check_finite(torch.cat([phi, f], -1), self.id, "features", "validation")
        noise = [] if self.predictive == "probit" else list(normals(f, self.samples))

        def nll(delta: float) -> float:
            variance = curvature.variance(phi, delta)
            if self.predictive == "probit":
                p = probit(f, variance, curvature.Q)
            else:
                p, _ = monte_carlo(f, variance, curvature.Q, noise)
            p_y = p.gather(-1, targets.unsqueeze(-1))  # [N, 1]
            return -float(p_y.clamp_min(torch.finfo(p.dtype).tiny).log().mean())

        best = min(GRID, key=nll)
        _warn_at_ends(best, GRID[0], GRID[-1])
        return best


@dataclass(frozen=True)
class Curvature:
    """Ḡ = Q diag(g) Q' and A = R diag(a) R' of N rows, in float64.

    In the basis of Q and R the GGN is diagonal: N g_k a_j for the weights, and N g_k for the bias, which is
    a weight on a constant feature 1.
    """

    g: Tensor  # [K]
    Q: Tensor  # [K, K]
    a: Tensor  # [E]
    R: Tensor  # [E, E]
    rows: Tensor  # N, []

    @classmethod
    def of(cls, phi: Tensor, p: Tensor) -> "Curvature":
        """The curvature at features phi [N, E] and probabilities p [N, K], both float64."""
        G = p.mean(0).diag() - p.mT @ p / len(p)  # mean of diag(p) - p p'       [K, K]
        A = phi.mT @ phi / len(phi)  # [E, E]
        (g, Q), (a, R) = torch.linalg.eigh(G), torch.linalg.eigh(A)
        # both matrices are positive semi-definite; negative eigenvalues are rounding
        return cls(g.clamp_min(0), Q, a.clamp_min(0), R, phi.new_tensor(len(phi)))

    def tensors(self) -> dict[str, Tensor]:
        """The fields by name."""
        return {name: getattr(self, name).contiguous() for name in NAMES}

    @property
    def eigenvalues(self) -> Tensor:
        """λ of the GGN, the last column that of the bias, [K, E + 1]."""
        return self.rows * torch.outer(self.g, torch.cat([self.a, self.a.new_ones(1)]))

    def variance(self, phi: Tensor, delta: float) -> Tensor:
        """c [B, K] with Cov f = Q diag(c) Q' at features phi [B, E].

        c_k = Σ_j (R'φ)_j² / (N g_k a_j + δ) + 1 / (N g_k + δ).
        """
        psi = torch.cat([phi @ self.R, phi.new_ones(len(phi), 1)], -1)  # [B, E + 1]
        return psi.square() @ (self.eigenvalues + delta).reciprocal().mT


NAMES = tuple(Curvature.__dataclass_fields__)
SHAPES = {"g": "K", "Q": "KK", "a": "E", "R": "EE", "rows": "", "delta": ""}


@dataclass(frozen=True)
class HeadLaplace(Predictor):
    """Predicts with outputs f ~ N(W φ + b, Q diag(c) Q')."""

    model: Transformer
    curvature: Curvature
    delta: float
    predictive: str
    samples: int

    @torch.no_grad()
    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Classification:
        """Probabilities of all rows; the same seed gives the same answer."""
        phi, f = head_inputs(self.model, inputs, batch_size)
        require_finite(lambda: NOT_FINITE, phi, f)
        Q, variance = self.curvature.Q, self.curvature.variance(phi, self.delta)
        prediction = Classification(*monte_carlo(f, variance, Q, normals(f, self.samples, seed)))
        if self.predictive == "probit":
            p = probit(f, variance, Q)
            expected_entropy = torch.special.entr(p).sum(-1) - prediction.mutual_information
            prediction = Classification(p, expected_entropy.clamp_min(0))
        dtype = torch.promote_types(next(self.model.parameters()).dtype, torch.float32)
        return Classification(prediction.probabilities.to(dtype), prediction.expected_entropy.to(dtype))


def probit(f: Tensor, variance: Tensor, Q: Tensor) -> Tensor:
    """softmax(f_k / √(1 + π Σ_kk / 8)) with Σ = Q diag(variance) Q', [B, K]."""
    Sigma_kk = variance @ Q.square().mT  # [B, K]
    return (f / (1 + math.pi / 8 * Sigma_kk).sqrt()).softmax(-1)


def monte_carlo(f: Tensor, variance: Tensor, Q: Tensor, noise: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """Mean of softmax(f_s) [B, K] and of its entropy [B] over draws f_s = f + Σ^½ ε_s, one per ε_s [B, K].

    Σ^½ = Q diag(√variance) Q' is the symmetric root: unlike Q itself it is unique, so that the same noise
    gives the same draws on every machine.
    """
    p, entropy, samples = torch.zeros_like(f), f.new_zeros(len(f)), 0
    for epsilon in noise:
        p_s = (f + (variance.sqrt() * (epsilon @ Q)) @ Q.mT).softmax(-1)
        p, entropy, samples = p + p_s, entropy + torch.special.entr(p_s).sum(-1), samples + 1
    return p / samples, entropy / samples


def normals(like: Tensor, samples: int, seed: int = 0) -> Iterator[Tensor]:
    """Standard normal tensors, the same on every device; one is in memory at a time."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(samples):
        yield torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)


def log_evidence(log_likelihood: Tensor, eigenvalues: Tensor, theta2: Tensor, delta: float) -> Tensor:
    """Laplace's log p(y | δ) = log p(y | θ) - ½[log|H + δ I| - log|δ I| + δ ‖θ‖²], []."""
    occam = (eigenvalues / delta).log1p().sum()  # log|H + δ I| - log|δ I|
    return log_likelihood - 0.5 * (occam + delta * theta2)


def most_likely_precision(eigenvalues: Tensor, theta2: float) -> float:
    """The δ in BOUNDS with the largest evidence.

    d log p(y | δ) / d log δ = ½[Σ λ / (λ + δ) - δ ‖θ‖²]: the effective number of parameters, which falls with
    δ, minus a term that grows with it. The evidence is concave in log δ and its maximum the one root.
    """

    def slope(log_delta: float) -> float:
        delta = math.exp(log_delta)
        return float((eigenvalues / (eigenvalues + delta)).sum()) - delta * theta2

    low, high = math.log(BOUNDS[0]), math.log(BOUNDS[1])
    if slope(low) <= 0 or slope(high) >= 0:
        delta = BOUNDS[0] if slope(low) <= 0 else BOUNDS[1]
    else:
        delta = math.exp(brentq(slope, low, high, xtol=1e-12))
    _warn_at_ends(delta, *BOUNDS)
    return delta


def linear_head(model: Transformer, method: str) -> nn.Linear:
    """The head of a deterministic classifier, a linear map with a bias; raises for any other model."""
    check_classifier(model, method)
    head = model.head
    if type(head) is not nn.Linear or head.bias is None:
        raise ConfigError(
            f"{method}: the model's head is a {type(head).__name__}; Laplace needs a linear layer with one "
            "number per weight and a bias"
        )
    with evaluating(model):
        if model.stochastic:
            raise ConfigError(
                f"{method}: the model's features are random; Laplace needs a deterministic model: kernel or "
                "dot-product attention and one number per weight"
            )
    return head


@torch.no_grad()
def head_inputs(model: Transformer, inputs: Inputs, batch_size: int | None = None) -> tuple[Tensor, Tensor]:
    """Features φ [N, E] and outputs f = W φ + b [N, K] of all rows, in evaluation mode, as float64."""

    def both(rows: Inputs) -> Tensor:
        phi, _ = model.features(rows)
        return torch.cat([phi, model.head(phi)], -1)

    with evaluating(model):
        phi_and_f = torch.cat(list(in_batches(model, both, inputs, rows=batch_size))).double()  # [N, E + K]
    return phi_and_f[:, : model.config.width], phi_and_f[:, model.config.width :]


def _warn_at_ends(delta: float, low: float, high: float) -> None:
    if not low < delta < high:
        log.warning("the prior precision stops at its bound: δ = %g, allowed %g to %g", delta, low, high)
