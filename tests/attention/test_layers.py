import math
from functools import partial
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional

from oracles.layers import (
    DECOUPLED,
    DETERMINISTIC,
    KERNELS,
    NO_YES,
    SAMPLED,
    SGPA,
    D,
    E,
    H,
    M,
    T,
    dense_algebra,
    full_covariance,
    make,
    position_aware,
    tokens,
    variants,
)
from sgpa.attention import (
    ChengBootsSgpa,
    DotProductAttention,
    KernelAttention,
    OrthogonalSgpa,
    StandardSgpa,
    global_states,
)
from sgpa.attention.base import mask_tokens
from sgpa.core.errors import InputError
from sgpa.gp.kernels import ArdRbfKernel
from sgpa.gp.linalg import JITTERS, cholesky

POSITION_AWARE = position_aware(OrthogonalSgpa, ChengBootsSgpa)
every_layer = pytest.mark.parametrize(
    "build", DETERMINISTIC + SAMPLED + position_aware(KernelAttention, StandardSgpa) + POSITION_AWARE
)
sampled_layer = pytest.mark.parametrize("build", SAMPLED + position_aware(StandardSgpa) + POSITION_AWARE)
decoupled_layer = pytest.mark.parametrize("build", DECOUPLED + POSITION_AWARE)
sampling_layer = pytest.mark.parametrize("build", list(variants(*SGPA, joint=NO_YES)))

close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


@every_layer
@pytest.mark.parametrize("length", [1, T])
def test_outputs_have_the_shape_and_type_of_the_input(build, length):
    layer, x = build(), tokens(T=length)
    for samples in (None, 1, 4):
        output = layer(x, samples=samples)
        assert output.value.shape == (() if samples is None else (samples,)) + x.shape
        assert output.value.dtype == x.dtype
        assert output.kl.g.shape == ()
        assert output.kl.a.shape == (3,)
        assert output.kl.g >= 0
        assert (output.kl.a >= 0).all()


@sampling_layer
def test_moments_have_one_variance_per_value_dimension(build):
    m = build().moments(tokens(), None)
    assert m.mean.shape == m.variance.shape == (3, H, T, D)


@every_layer
def test_every_parameter_gets_a_gradient(build):
    layer, x = build(), tokens().requires_grad_()
    output = layer(x, samples=2)
    (output.value.square().mean() + output.kl.g + output.kl.a.mean()).backward()
    for name, tensor in [("x", x), *layer.named_parameters()]:
        if tensor.requires_grad:
            assert tensor.grad.isfinite().all(), name
            assert tensor.grad.any(), name


@pytest.mark.parametrize("build", DETERMINISTIC + SAMPLED)
def test_layers_are_permutation_equivariant(build):
    layer, x, order = build(), tokens(), torch.tensor([3, 0, 4, 1, 2])
    one, other = layer.moments(x, None), layer.moments(x[:, order], None)
    close(other.mean, one.mean[:, :, order])
    if not isinstance(layer, StandardSgpa):  # its covariance has one column per position
        close(other.posterior.variance, one.posterior.variance[:, :, order])
        close(other.kl.a, one.kl.a)


@every_layer
def test_padded_batch_equals_its_sequences_one_by_one(build):
    layer, x, lengths = build(), tokens(), [5, 3, 1]
    mask = torch.arange(T) >= torch.tensor(lengths)[:, None]
    batch = layer.moments(mask_tokens(x, mask), mask)
    for b, n in enumerate(lengths):
        alone = layer.moments(x[b : b + 1, :n], None)
        close(batch.mean[b, :, :n], alone.mean[0])
        close(full_covariance(batch)[b, ..., :n, :n], full_covariance(alone)[0])
        close(batch.kl.a[b], alone.kl.a[0])


@every_layer
def test_contents_of_padding_do_not_change_the_output(build):
    layer, x, mask = build(), tokens(), torch.zeros(3, T, dtype=torch.bool)
    mask[0, 1], mask[2, 2:] = True, True  # padding may lie anywhere
    results = []
    for filling in (0.0, math.nan):
        filled = x.masked_fill(mask[..., None], filling).requires_grad_()
        torch.manual_seed(0)
        output = layer(filled, mask, samples=2)
        (output.value.sum() + output.kl.a.sum()).backward()
        assert not output.value[:, mask].any()
        assert not filled.grad[mask].any()
        results.append((output.value, output.kl.a, filled.grad))
    for zero, nan in zip(*results, strict=True):
        assert torch.equal(zero, nan)


@sampled_layer
def test_moments_equal_dense_algebra(build):
    # untied layers show here whether the KL uses the keys' own Gram matrix
    layer, x = build(), tokens(B=2)
    m, kl = layer.moments(x, None), torch.zeros(2, dtype=torch.float64)
    diagonal = layer.kernel.at(layer.queries_keys(x)[0])  # [B, H, T]
    jitter = JITTERS[0] * torch.diag_embed(diagonal)  # of the factor of K_qq - Q_qq
    for b, h, d in product(range(2), range(H), range(D)):
        f = dense_algebra(layer, x, b=b, h=h, d=d)
        kl[b] += f.kl
        torch.testing.assert_close(m.mean[b, h, :, d], f.mean, rtol=1e-7, atol=1e-7)
        variance = m.variance.expand_as(m.mean)[b, h, :, d]
        torch.testing.assert_close(variance, f.covariance.diagonal(), rtol=1e-7, atol=1e-7)
        if layer.joint:
            expected = f.covariance + jitter[b, h]
            torch.testing.assert_close(full_covariance(m)[b, h, d], expected, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(m.kl.g + m.kl.a, kl, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("tied", NO_YES)
def test_kernel_attention_is_the_mean_far_from_all_global_keys(tied):
    sgpa = make(OrthogonalSgpa, ArdRbfKernel, tied=tied)
    kernel = make(KernelAttention, ArdRbfKernel, tied=tied)
    kernel.load_state_dict(sgpa.state_dict(), strict=False)
    with torch.no_grad():
        sgpa.v_g.zero_()
        sgpa.Z_g.mul_(1e4)
    close(sgpa.moments(tokens(), None).mean, kernel.moments(tokens(), None).mean)


@pytest.mark.parametrize("kernel_class", KERNELS)
@pytest.mark.parametrize("layer_class", [OrthogonalSgpa, ChengBootsSgpa, StandardSgpa])
def test_a_smaller_initial_variance_keeps_the_mean(layer_class, kernel_class):
    layer, x = make(layer_class, kernel_class), tokens()
    with torch.no_grad():
        if layer_class is OrthogonalSgpa:
            layer.v_g.zero_()
    before = layer.moments(x, None)
    layer.scale_initial_variance(0.1)
    after = layer.moments(x, None)
    close(after.mean, before.mean)
    if layer_class is StandardSgpa:  # S_a is free, the rest of the variance is the prior's
        assert (after.variance < before.variance).all()
    else:
        close(after.variance, 0.1 * before.variance)
        close(after.kl.a, 10 * before.kl.a)


@sampling_layer
def test_draws_are_independent_over_samples_sequences_and_value_dimensions(build):
    N, layer, x = 4000, build(), tokens(B=1).expand(2, -1, -1)
    for draws in (layer(x, samples=N).value, layer.moments(x, None).draw((N,))):
        z = (draws - draws.mean(0)) / draws.std(0)  # [N, 2, ...]
        assert ((z[: N // 2] * z[N // 2 :]).mean(0).abs() < 5 / (N / 2) ** 0.5).all()
        assert ((z[:, 0] * z[:, 1]).mean(0).abs() < 5 / N**0.5).all()
    assert ((z[..., 0] * z[..., 1]).mean(0).abs() < 5 / N**0.5).all()  # z [N, 2, H, T, V]


@sampled_layer
def test_the_same_seed_gives_the_same_draws(build):
    def draw(seed):
        layer = build()
        torch.manual_seed(seed)
        return layer(tokens(), samples=2).value

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


@pytest.mark.parametrize("build", DETERMINISTIC)
def test_samples_of_deterministic_layers_are_equal(build):
    layer, x = build(), tokens()
    once, often = layer(x), layer(x, samples=3)
    assert not layer.stochastic
    assert torch.equal(often.value, once.value.expand(3, *x.shape))
    assert not often.kl.g.any()
    assert not often.kl.a.any()


@pytest.mark.parametrize("lengths", [(5, 5, 5), (5, 3, 1)])
def test_dot_product_attention_equals_torchs(lengths):
    ours, torchs = make(DotProductAttention), nn.MultiheadAttention(E, H, batch_first=True).double()
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight]))
        torchs.in_proj_bias.zero_()
        torchs.out_proj.load_state_dict(ours.W_o.state_dict())
    mask = torch.arange(T) >= torch.tensor(lengths)[:, None]
    x = mask_tokens(tokens(), mask)
    close(ours(x, mask).value[~mask], torchs(x, x, x, key_padding_mask=mask)[0][~mask])
    q, k, v = (ours.heads(x, W) for W in (ours.W_q, ours.W_k, ours.W_v))
    expected = functional.scaled_dot_product_attention(q, k, v, attn_mask=~mask[:, None, None, :])
    close(ours.moments(x, mask).mean, expected)


@decoupled_layer
def test_a_given_state_and_the_layers_own_give_the_same_output(build):
    layer, outputs = build(), []
    for state in (None, layer.global_state()):
        torch.manual_seed(2)
        outputs.append(layer(tokens(), state=state, samples=2))
    assert torch.equal(outputs[0].value, outputs[1].value)
    assert torch.equal(outputs[0].kl.g, outputs[1].kl.g)


def test_a_state_of_another_layer_is_refused():
    layer, other = (make(OrthogonalSgpa, ArdRbfKernel, num_global=n) for n in (M, M + 1))
    for state in (other.global_state(), "a state"):
        with pytest.raises(
            InputError, match=r"state given is not one of this layer's \(global keys \(2, 3, 4\)\)"
        ):
            layer(tokens(), state=state)


@decoupled_layer
def test_states_batched_over_layers_are_those_of_each_layer(build):
    layers = [build(seed=seed) for seed in range(3)]
    for layer, state in zip(
        layers, global_states(layers, torch.stack([layer.Z_g for layer in layers])), strict=True
    ):
        for name, value in vars(layer.global_state()).items():
            close(getattr(state, name), value, msg=name)


def test_states_of_layers_with_whitened_and_free_factors_are_those_of_each_layer():
    layers = [make(OrthogonalSgpa, ArdRbfKernel, whitened=whitened) for whitened in (True, False)]
    states = global_states(layers, torch.stack([layer.Z_g for layer in layers]))
    for layer, state in zip(layers, states, strict=True):
        for name, value in vars(layer.global_state()).items():
            close(getattr(state, name), value, msg=name)
    assert not torch.allclose(states[0].s_g, states[1].s_g)


@pytest.mark.parametrize("layer_class", [OrthogonalSgpa, ChengBootsSgpa])
@pytest.mark.parametrize("kernel_class", KERNELS)
def test_whitened_and_free_factors_agree(layer_class, kernel_class):
    whitened, free = (make(layer_class, kernel_class, whitened=w) for w in (True, False))
    k_g = whitened.global_state().k_g
    factor = (
        cholesky(whitened.kernel.between(k_g, k_g), "K_gg").unsqueeze(1) @ whitened.s_factor()
    )  # [H, V, M, M]
    with torch.no_grad():
        free.raw_s_g.copy_(factor.tril(-1) + torch.diag_embed(factor.diagonal(dim1=-2, dim2=-1).log()))
    one, other = (layer.moments(tokens(), None) for layer in (whitened, free))
    close(other.variance, one.variance)
    close(other.kl.g, one.kl.g)


@pytest.mark.parametrize("N", [M, M + 1, H * M, 20])
def test_inducing_points_start_on_different_tokens(N):
    layer, x = make(OrthogonalSgpa, ArdRbfKernel), tokens(B=1, T=N)[0]
    layer.init_on_data(x)
    same = (layer.Z_g[:, :, None] == x).all(-1)  # [H, M, N]
    assert (same.sum(-1) == 1).all()
    assert (same.sum(1) <= 1).all()  # a location that a head holds twice makes its K_gg singular


def test_cheng_boots_has_no_global_mean():
    layer = make(ChengBootsSgpa, ArdRbfKernel)
    assert not layer.v_g.any()
    assert not layer.v_g.requires_grad
