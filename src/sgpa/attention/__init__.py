"""Attention layers; `MultiheadSgpa` replaces `nn.MultiheadAttention` in any model."""

from sgpa.attention.base import Attention
from sgpa.attention.decoupled import ChengBootsSgpa, DecoupledSgpa, OrthogonalSgpa
from sgpa.attention.dot_product import DotProductAttention
from sgpa.attention.global_state import GlobalState, global_states
from sgpa.attention.in_modules import posterior_mean, prepare, sample, sampling, total_kl
from sgpa.attention.kernel import KernelAttention
from sgpa.attention.moments import Moments
from sgpa.attention.multihead import MultiheadSgpa
from sgpa.attention.standard import StandardSgpa

__all__ = [
    "Attention",
    "ChengBootsSgpa",
    "DecoupledSgpa",
    "DotProductAttention",
    "GlobalState",
    "KernelAttention",
    "Moments",
    "MultiheadSgpa",
    "OrthogonalSgpa",
    "StandardSgpa",
    "global_states",
    "posterior_mean",
    "prepare",
    "sample",
    "sampling",
    "total_kl",
]
