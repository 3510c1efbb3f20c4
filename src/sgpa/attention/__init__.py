"""Attention layers that can replace `nn.MultiheadAttention` in any self-attention model."""

from sgpa.attention.base import Attention, Moments
from sgpa.attention.dot_product import DotProductAttention
from sgpa.attention.kernel import KernelAttention
from sgpa.attention.sgpa import ChengBootsSgpa, DecoupledSgpa, OrthogonalSgpa
from sgpa.attention.standard import StandardSgpa
from sgpa.attention.states import GlobalState, global_states

__all__ = [
    "Attention",
    "ChengBootsSgpa",
    "DecoupledSgpa",
    "DotProductAttention",
    "GlobalState",
    "KernelAttention",
    "Moments",
    "OrthogonalSgpa",
    "StandardSgpa",
    "global_states",
]
