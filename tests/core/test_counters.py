"""Numerical repairs are counted."""

import torch

from sgpa.attention import OrthogonalSgpa
from sgpa.core.counters import FLOAT64_PASSES, JITTER_RAISED, counting
from sgpa.gp.kernels import ArdRbfKernel
from sgpa.gp.linalg import cholesky


def test_raised_jitter_is_counted_by_matrix():
    near_singular = torch.ones(2, 2, dtype=torch.float64) - 1e-4 * torch.tensor([[0.0, -1.0], [-1.0, 0.0]])
    with counting() as counted:
        cholesky(torch.stack([torch.eye(2, dtype=torch.float64), near_singular]), "K")
    assert counted == {JITTER_RAISED: 1}


def test_float64_passes_are_counted():
    layer = OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3)
    with counting() as counted:
        layer(300 + torch.randn(2, 5, 8))
    assert counted == {FLOAT64_PASSES: 1}


def test_ordinary_passes_need_no_repair():
    torch.manual_seed(0)
    layer = OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3)
    with counting() as counted:
        layer(torch.randn(2, 5, 8))
    assert counted == {}
