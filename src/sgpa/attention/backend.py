"""The one place that chooses between the plain equations and the fast operators equal to them.

A layer finds out when it is built whether it has operators at all (`has_operators`), and once in a pass which
functions to use for tensors of this device and type (`choose`).
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from sgpa.gp.fused import TRITON, WIDTH, blocked_variance, fused_variance
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel, Kernel
from sgpa.gp.posteriors import marginal_variance, unexplained

log = logging.getLogger(__name__)

RBF: dict[type[nn.Module], bool] = {
    ArdRbfKernel: True,
    ExponentialKernel: False,
}  # kernels that the operators compute: their `rbf` argument


@dataclass(frozen=True)
class Backend:
    """How a layer computes its moments."""

    fused: bool  # mean, KL and sample by Triton operators that never form a Gram matrix
    variance: Callable[[Tensor, Tensor, Tensor], Tensor]  # `posteriors.marginal_variance` or its equal


def _fused(kqq: Tensor, A: Tensor, s: Tensor) -> Tensor:
    return fused_variance(unexplained(kqq, A), A, torch.einsum("hvmk,hvnk->hmnv", s, s))


PLAIN = Backend(fused=False, variance=marginal_variance)
BLOCKED = Backend(fused=False, variance=blocked_variance)  # on a CPU
FUSED_VARIANCE = Backend(fused=False, variance=_fused)  # on a GPU, for layers without operators of their own
FUSED = Backend(fused=True, variance=_fused)


def has_operators(kernel: Kernel, *sizes: int) -> bool:
    """Whether Triton operators exist for this kernel, this width of a head and number of inducing points."""
    return TRITON and type(kernel) in RBF and max(sizes) <= WIDTH


def choose(x: Tensor, operators: bool, *sizes: int, masked: bool = False) -> Backend:
    """The backend for tensors like x.

    Args:
        x: what the layer computes from; its device and type matter.
        operators: whether the layer has operators of its own on a GPU.
        sizes: width of a head and number of inducing points, for layers that have a variance.
        masked: some keys are hidden from some tokens, which the operators for mean and KL do not support.
    """
    operators = operators and not masked
    if TRITON and runs_triton(x):
        return FUSED if operators else FUSED_VARIANCE if max(sizes, default=1) <= WIDTH else PLAIN
    full = x.dtype in (torch.float32, torch.float64)
    return BLOCKED if x.is_cpu and full and not torch.is_autocast_enabled("cpu") else PLAIN


def runs_triton(x: Tensor) -> bool:
    """Whether the Triton operators take tensors like x: float32 on a GPU, outside autocast."""
    return x.is_cuda and x.dtype == torch.float32 and not torch.is_autocast_enabled("cuda")


def fuses_softmax(x: Tensor) -> bool:
    """Whether torch's fused softmax attention is used for x; see `DotProductAttention`."""
    return x.is_cuda


def check_triton(model: nn.Module, device: torch.device) -> None:
    """Warn, once in a process, if kernel attention is on a GPU without its operators; numbers are equal."""
    if device.type == "cuda" and not TRITON and any(type(module) in RBF for module in model.modules()):
        warn_without_triton()


@cache
def warn_without_triton() -> None:
    """The warning of `check_triton`."""
    log.warning("Triton is not installed: kernel attention runs slower; install the extra `fused`")
