"""The temperature of logits that minimises the NLL of held-out rows (Guo et al. 2017)."""

import logging
import math

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

BOUND = 20.0  # temperatures are between 1 / BOUND and BOUND
STARTS = (0.0, -0.25, 0.25, -0.5, 0.5, -0.75, 0.75, -0.95, 0.95)  # log T / log BOUND; T = 1 is tried first
PRIOR = 0.25  # standard deviation of log T below 1

log = logging.getLogger(__name__)


def mixture_nll(f: Tensor, targets: Tensor) -> Tensor:
    """Mean over rows of -log(1/S Σ_s softmax(f_s)_y), []; f is [S, N, K]."""
    index = targets.expand(f.shape[:-1]).unsqueeze(-1)  # [S, N, 1]
    log_p = f.log_softmax(-1).gather(-1, index).squeeze(-1)  # [S, N]
    return (math.log(len(f)) - log_p.logsumexp(0)).mean()


def best_temperature(f: Tensor, targets: Tensor) -> Tensor:
    """The T in [1 / BOUND, BOUND] that minimises the NLL of softmax(f / T), [], in float64.

    T = BOUND^tanh(u) with u unconstrained. LBFGS minimises over u from the best of a few starts: the NLL of
    one sample has a single minimum, that of a mixture may have several. T = 1 is one of the starts, so the
    result is never worse. The bounds are tried as well, because an NLL that falls towards a bound becomes
    too flat for a gradient.
    """
    return _warned(_minimum(f, targets))


def _warned(T: Tensor) -> Tensor:
    """T, after a warning where it is at a bound."""
    if not 1.01 / BOUND < T < BOUND / 1.01:
        log.warning("the temperature stops at its bound: T = %.3g, allowed %.3g to %g", T, 1 / BOUND, BOUND)
    return T


def _minimum(f: Tensor, targets: Tensor) -> Tensor:
    f = f.detach().double()

    def temperature(u: Tensor) -> Tensor:
        return (math.log(BOUND) * u.tanh()).exp()

    def nll(u: Tensor) -> Tensor:
        return mixture_nll(f / temperature(u), targets)

    starts = torch.tensor(STARTS, dtype=f.dtype, device=f.device).atanh()
    start = min(starts, key=lambda u: float(nll(u)))
    u = start.clone().requires_grad_()
    search = torch.optim.LBFGS(
        [u], max_iter=200, tolerance_grad=1e-10, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        u.grad = None
        loss = nll(u)
        loss.backward()
        return float(loss.detach())

    search.step(closure)
    one, *ends = (u.new_tensor(x) for x in (0.0, -math.inf, math.inf))
    better_ends = [end for end in ends if nll(end) < nll(one)]
    return temperature(min([*better_ends, start, u.detach()], key=lambda u: float(nll(u))))


def careful_temperature(f: Tensor, targets: Tensor) -> Tensor:
    """`best_temperature`, but few rows do not make a model much surer than it is.

    Where all rows are right, the NLL falls until T reaches its bound, and the first wrong answer to another
    row then costs everything. So below 1, log T has a normal prior with deviation `PRIOR`, which N rows
    outweigh as N grows. T above 1 is that of `best_temperature`.
    """
    return _warned(fold_temperature(f, targets))


def fold_temperature(f: Tensor, targets: Tensor) -> Tensor:
    """`careful_temperature` of the rows of a fold, without a warning where it is at a bound."""
    best = _minimum(f, targets)
    if best >= 1:
        return best
    f = f.detach().double()

    def cost(log_t: float) -> float:
        nll = mixture_nll(f / math.exp(log_t), targets)
        return float(len(targets) * nll + 0.5 * (log_t / PRIOR) ** 2)

    log_t = minimize_scalar(cost, bounds=(float(best.log()), 0.0), method="bounded").x
    return best.new_tensor(log_t).exp()
