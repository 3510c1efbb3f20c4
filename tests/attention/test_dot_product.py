"""Fused softmax attention: its weights for those who want to look, and several models side by side."""

import warnings

import pytest
import torch

from oracles.layers import DETERMINISTIC, SAMPLED, H, T, tokens
from sgpa.attention import OrthogonalSgpa
from sgpa.attention.base import mask_tokens
from sgpa.attention.dot_product import attend


@pytest.mark.parametrize("build", DETERMINISTIC + SAMPLED)
@pytest.mark.parametrize("lengths", [None, (5, 3, 1)])
def test_weights_times_values_are_the_mean(build, lengths):
    layer, padding = build(), None if lengths is None else torch.arange(T) >= torch.tensor(lengths)[:, None]
    x = mask_tokens(tokens(), padding)
    weights = layer.weights(x, padding)
    assert weights.shape == (3, H, T, T)
    if not isinstance(layer, OrthogonalSgpa):  # its mean has other parts too
        torch.testing.assert_close(weights @ layer.heads(x, layer.W_v), layer.moments(x, padding).mean)


def plain(q, k, v, real):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if real is not None:
        scores = scores.masked_fill(~real, -float("inf"))
    return scores.softmax(-1) @ v


@pytest.mark.parametrize("masked", [False, True])
def test_fused_attention_is_attention(masked):
    torch.manual_seed(0)
    leaves = [torch.randn(2, 4, 6, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    real = torch.arange(6) < torch.tensor([[4], [6]])
    results = []
    for function in (attend, plain):
        out = function(*leaves, real[:, None, None, :] if masked else None)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_models_side_by_side(masked, nested):
    torch.manual_seed(0)
    lead = (2, 3) if nested else (3,)
    q, k = (torch.randn(*lead, 2, 4, 6, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.randn(2, 4, 6, 8, dtype=torch.float64, requires_grad=True)  # shared by all models
    real = torch.ones(*lead, 2, 1, 1, 6, dtype=torch.bool)
    real[..., 4:] = False
    results = []
    for function in (attend, plain):

        def one(q, k, real, function=function):
            return function(q, k, v, real if masked else None)

        stacked = torch.vmap(torch.vmap(one)) if nested else torch.vmap(one)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # torch warns where it has to loop
            out = stacked(q, k, real)
        results.append([out, *torch.autograd.grad(out.square().sum(), (q, k, v))])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_weights_are_not_kept_for_the_backward_pass():
    q, kept = torch.randn(2, 2, 300, 4, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        attend(q, q, q, None)
    assert max(kept) < 300 * 300
