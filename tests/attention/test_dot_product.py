"""Softmax attention: its weights, and the fused path that is used on a GPU."""

import pytest
import torch

from oracles.layers import DETERMINISTIC, SAMPLED, H, T, make, tokens
from sgpa.attention import DotProductAttention, OrthogonalSgpa, backend
from sgpa.attention.base import mask_tokens


@pytest.mark.parametrize("build", DETERMINISTIC + SAMPLED)
@pytest.mark.parametrize("lengths", [None, (5, 3, 1)])
def test_weights_times_values_are_the_mean(build, lengths):
    layer, padding = build(), None if lengths is None else torch.arange(T) >= torch.tensor(lengths)[:, None]
    x = mask_tokens(tokens(), padding)
    weights = layer.weights(x, padding)
    assert weights.shape == (3, H, T, T)
    if not isinstance(layer, OrthogonalSgpa):  # its mean has other parts too
        torch.testing.assert_close(weights @ layer.heads(x, layer.W_v), layer.moments(x, padding).mean)


@pytest.fixture
def fused(monkeypatch):
    """Uses torch's fused attention on a CPU too."""
    return lambda: monkeypatch.setattr(backend, "fuses_softmax", lambda _: True)


@pytest.mark.parametrize("lengths", [None, (5, 3, 1)])
def test_fused_attention_equals_the_plain_one(fused, lengths):
    layer, padding = make(DotProductAttention), None
    if lengths is not None:
        padding = torch.arange(T) >= torch.tensor(lengths)[:, None]
    x, results = tokens().requires_grad_(), []
    for switch in (lambda: None, fused):
        switch()
        out = layer(x, padding).value
        results.append([out, *torch.autograd.grad(out.square().sum(), [x, *layer.parameters()])])
    for plain, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, plain)


def test_fused_attention_keeps_no_weights_for_the_backward_pass(fused):
    fused()
    layer, x, saved = DotProductAttention(8, 2), torch.randn(2, 300, 8, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        layer(x)
    assert max(saved) < 300 * 300
