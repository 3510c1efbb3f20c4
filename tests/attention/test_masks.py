# Layers with an attention mask: each token's output is that of a layer that has only the keys it sees.

import math
from functools import partial
from itertools import product

import pytest
import torch

from oracles.layers import DECOUPLED, DETERMINISTIC, D, H, T, dense_algebra, make, position_aware, tokens
from sgpa.attention import ChengBootsSgpa, KernelAttention, OrthogonalSgpa, StandardSgpa
from sgpa.attention.base import mask_tokens
from sgpa.attention.masks import Mask, read_mask
from sgpa.core.errors import InputError
from sgpa.gp.kernels import ArdRbfKernel
from sgpa.gp.posteriors import masked_kl_a, prefix_kl_a

SOME = position_aware(OrthogonalSgpa, ChengBootsSgpa)
decoupled_layer = pytest.mark.parametrize("build", DECOUPLED + SOME)
masked_layer = pytest.mark.parametrize("build", DETERMINISTIC + DECOUPLED + SOME)

close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
LATER = torch.ones(T, T, dtype=torch.bool).triu(1)
CAUSAL = Mask(LATER, causal=True)
SCATTERED = torch.tensor(
    [[0, 1, 0, 1, 1], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 0], [0, 1, 1, 0, 1]], dtype=torch.bool
)


@masked_layer
def test_causal_moments_equal_those_of_truncated_sequences(build):
    layer, x = build(), tokens()
    whole, kl = layer.moments(x, None, None, CAUSAL), 0.0
    for t in range(T):
        prefix = layer.moments(x[:, : t + 1], None)
        close(whole.mean[:, :, t], prefix.mean[:, :, t])
        close(whole.posterior.variance[:, :, t], prefix.posterior.variance[:, :, t])
        kl = kl + prefix.kl.a / T
    close(whole.kl.a, kl)
    close(whole.kl.g, layer.moments(x, None).kl.g)


@masked_layer
def test_later_tokens_change_no_earlier_output(build):
    layer, x, results = build(), tokens(), []
    for filling in (0.0, 2.0):
        changed = x.clone()
        changed[:, 3:] = filling
        torch.manual_seed(0)
        results.append(layer(changed, is_causal=True, samples=2).value[:, :, :3])
    assert torch.equal(*results)


@decoupled_layer
def test_moments_under_any_mask_equal_dense_algebra_of_each_row(build):
    layer, x = build(), tokens(B=2)
    m, kl = layer.moments(x, None, None, Mask(SCATTERED, causal=False)), torch.zeros(2, dtype=torch.float64)
    for b, h, d, t in product(range(2), range(H), range(D), range(T)):
        keys = (~SCATTERED[t]).nonzero().squeeze(-1)
        f = dense_algebra(layer, x, b=b, h=h, d=d, queries=torch.tensor([t]), keys=keys)
        kl[b] += f.kl / T
        torch.testing.assert_close(m.mean[b, h, t, d], f.mean[0], rtol=1e-7, atol=1e-7)
        torch.testing.assert_close(m.variance[b, h, t, d], f.covariance[0, 0], rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(m.kl.g + m.kl.a, kl, rtol=1e-7, atol=1e-7)


@masked_layer
def test_causal_padded_batch_equals_its_sequences_one_by_one(build):
    layer, x, lengths = build(), tokens(), [5, 3, 1]
    padding = torch.arange(T) >= torch.tensor(lengths)[:, None]
    batch = layer.moments(mask_tokens(x, padding), padding, None, CAUSAL)
    for b, n in enumerate(lengths):
        alone = layer.moments(x[b : b + 1, :n], None, None, Mask(LATER[:n, :n], causal=True))
        close(batch.mean[b, :, :n], alone.mean[0])
        close(batch.posterior.variance[b, :, :n], alone.posterior.variance[0])
        close(batch.kl.a[b], alone.kl.a[0])


@masked_layer
def test_a_mask_that_hides_nothing_changes_nothing(build):
    layer, x = build(), tokens()
    one = layer.moments(x, None)
    other = layer.moments(x, None, None, Mask(torch.zeros(T, T, dtype=torch.bool), causal=False))
    close(other.mean, one.mean)
    close(other.kl.a, one.kl.a)


@masked_layer
def test_tokens_that_see_no_key_have_finite_outputs_and_gradients(build):
    layer, x = build(), tokens().requires_grad_()
    hidden = SCATTERED.clone()
    hidden[2] = True
    output = layer(x, attn_mask=hidden)
    (output.value.square().mean() + output.kl.g + output.kl.a.mean()).backward()
    for name, tensor in [("x", x), *layer.named_parameters()]:
        if tensor.requires_grad:
            assert tensor.grad.isfinite().all(), name
            assert tensor.grad.any(), name


@masked_layer
def test_all_forms_of_one_mask_give_one_output(build):
    layer, x, values = build(), tokens(), []
    additive = torch.zeros(T, T, dtype=torch.float64).masked_fill(LATER, -math.inf)
    for options in (
        {"is_causal": True},
        {"attn_mask": LATER},
        {"attn_mask": additive},
        {"attn_mask": additive, "is_causal": True},
        {"attn_mask": LATER.expand(3 * H, T, T)},
    ):
        torch.manual_seed(0)
        values.append(layer(x, **options))
    for value in values[1:]:
        close(value.value, values[0].value)
        close(value.kl.a, values[0].kl.a)


def test_masks_of_sequences_and_heads_are_applied_to_them():
    layer, x = make(OrthogonalSgpa, ArdRbfKernel), tokens()
    hidden = torch.zeros(3, H, T, T, dtype=torch.bool)
    hidden[1, 0] = LATER
    mask = read_mask(hidden.flatten(0, 1), False, sizes=(3, H, T, T), like=x, name="layer")
    masked, causal, free = (layer.moments(x, None, None, m).mean for m in (mask, CAUSAL, None))
    close(masked[1, 0], causal[1, 0])
    close(masked[1, 1], free[1, 1])
    close(masked[0], free[0])


def test_prefix_kl_is_the_masked_kl_of_a_causal_mask():
    C, v = torch.randn(2, H, T, T, dtype=torch.float64), torch.randn(2, H, T, D, dtype=torch.float64)
    close(prefix_kl_a(C @ C.mT, v), masked_kl_a(C @ C.mT, v, LATER))


def test_causal_masks_are_recognised():
    x = tokens()
    read = partial(read_mask, sizes=(3, H, T, T), like=x, name="layer")
    assert read(None, False) is None
    assert read(LATER, False).causal
    assert read(torch.zeros(T, T, dtype=torch.bool), True).causal
    assert not read(SCATTERED, False).causal
    both = read(SCATTERED, True)
    assert torch.equal(both.hidden, SCATTERED | LATER)
    assert not both.causal


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (torch.full((T, T), 0.5), "attn_mask of torch.float32 with values other than 0 and -inf"),
        (torch.zeros(T, T, dtype=torch.int64), "attn_mask of torch.int64"),
        (torch.zeros(T, T + 1, dtype=torch.bool), r"attn_mask of shape \[5, 6\] \(allowed: \[5, 5\] or"),
        (torch.zeros(3, T, T, dtype=torch.bool), r"attn_mask of shape \[3, 5, 5\]"),
    ],
)
def test_other_masks_are_refused(mask, words):
    with pytest.raises(InputError, match=words):
        make(KernelAttention, ArdRbfKernel)(tokens(), attn_mask=mask)


def test_standard_sgpa_refuses_masks():
    with pytest.raises(InputError, match="attn_mask or is_causal in StandardSgpa"):
        make(StandardSgpa, ArdRbfKernel)(tokens(), is_causal=True)
