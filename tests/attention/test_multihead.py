# MultiheadSgpa: the arguments and results of nn.MultiheadAttention, alone and inside torch's Transformers.

import copy
import inspect
import math
from functools import partial

import pytest
import torch
from torch import nn

import sgpa
from oracles import dense
from sgpa.attention import MultiheadSgpa
from sgpa.attention.masks import Mask
from sgpa.core.errors import ConfigError, InputError
from sgpa.gp.kernels import ArdRbfKernel, ExponentialKernel
from sgpa.gp.linalg import JITTERS

B, T, U, E, H, D, M = 3, 5, 4, 8, 2, 4, 3
FORMS = ("cheng-boots", "orthogonal")
every_form = pytest.mark.parametrize("form", FORMS)
close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
LATER = torch.ones(T, T, dtype=torch.bool).triu(1)


def make(form="cheng-boots", **options):
    torch.manual_seed(0)
    options = {"batch_first": True, "num_global": M} | options
    layer = MultiheadSgpa(E, H, form=form, dtype=torch.float64, **options)
    nn.init.normal_(layer.attention.kernel.log_lengthscale, mean=0.2, std=0.2)
    return layer


def tokens(*shape):
    return torch.randn(*shape, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def encoder_layer(**options):
    block = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    block.self_attn = make(**options)
    return block


def names(function):
    return list(inspect.signature(function).parameters)


def test_arguments_are_those_of_torch():
    ours, torchs = names(MultiheadSgpa), names(nn.MultiheadAttention)
    assert ours[: len(torchs)] == torchs
    assert names(MultiheadSgpa.forward) == names(nn.MultiheadAttention.forward)
    for name in torchs:
        default = inspect.signature(nn.MultiheadAttention).parameters[name].default
        assert inspect.signature(MultiheadSgpa).parameters[name].default == default


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_shapes_are_those_of_torch(batch_first, average, batched):
    ours = make(batch_first=batch_first)
    torchs = nn.MultiheadAttention(E, H, batch_first=batch_first, dtype=torch.float64)
    lead = ((B,), ()) if batch_first and batched else ((), (B,) if batched else ())
    query, key = (tokens(*lead[0], n, *lead[1]) for n in (T, U))
    for inputs in ((query, query, query), (query, key, key)):
        results = [layer(*inputs, average_attn_weights=average) for layer in (ours, torchs)]
        for one, other in zip(*results, strict=True):
            assert one.shape == other.shape
        assert ours(*inputs, need_weights=False)[1] is None


@every_form
def test_layouts_agree(form):
    layer, x = make(form).eval(), tokens(B, T)
    first, weights = layer(x, x, x)
    layer.batch_first = False
    y = x.transpose(0, 1)
    close(layer(y, y, y)[0].transpose(0, 1), first)
    close(layer(x[1], x[1], x[1])[0], first[1])
    close(layer(x[1], x[1], x[1])[1], weights[1])


@every_form
def test_mean_and_kl_are_those_of_the_bare_layer(form):
    layer, x = make(form).eval(), tokens(B, T)
    padding = torch.arange(T) >= torch.tensor([5, 3, 1])[:, None]
    additive = torch.zeros(B, T, dtype=torch.float64).masked_fill(padding, -math.inf)
    for given in (padding, additive):
        out, _ = layer(x, x, x, key_padding_mask=given)
        x_0 = x.masked_fill(padding.unsqueeze(-1), 0.0)
        moments = layer.attention.moments(x_0, padding)
        close(out[~padding], layer.attention.merge_heads(moments.mean)[~padding])
        assert not out[padding].any()
        close(layer.kl.a, moments.kl.a)
        close(layer.kl.g, moments.kl.g)


@every_form
def test_weights_are_what_the_values_are_multiplied_with(form):
    layer, x = make(form).eval(), tokens(B, T)
    with torch.no_grad():
        layer.attention.v_g.zero_()
    for hidden in (None, LATER):
        weights = layer(x, x, x, attn_mask=hidden, average_attn_weights=False)[1]
        mask = {} if hidden is None else {"mask": Mask(hidden, causal=True)}
        v = layer.attention.heads(x, layer.attention.W_v)
        close(weights @ v, layer.attention.moments(x, None, **mask).mean)
        assert hidden is None or not weights[..., hidden].any()


@every_form
def test_attention_from_a_copy_of_the_tokens_is_self_attention(form):
    layer, x = make(form).eval(), tokens(B, T)
    for options in ({}, {"is_causal": True}, {"attn_mask": LATER.roll(1, 0)}):
        one = layer(x, x, x, **options)[0]
        kl = layer.kl.a
        close(layer(x, x.clone(), x.clone(), **options)[0], one)
        close(layer.kl.a, kl)


@every_form
@pytest.mark.parametrize("kernel_class", [ArdRbfKernel, ExponentialKernel])
def test_cross_attention_equals_dense_algebra(form, kernel_class):
    layer = make(form, kernel=kernel_class(H, D, lengthscale=1.5))
    query, key = tokens(B, T), tokens(B, T + U)[:, T:]
    m, inner, kl = layer.attention.cross_moments(query, key, key), layer.attention, 0.0
    for h in range(H):
        rows = slice(h * D, (h + 1) * D)
        q, k, g = ((x @ inner.W_qk.weight[rows].mT).detach() for x in (query[0], key[0], inner.Z_g[h]))
        K = dense.grams(inner.kernel, h, q, k, g, jitter=JITTERS[0])
        for d in range(D):
            v = (key[0] @ inner.W_v.weight[rows].mT).detach()[:, d]
            s = torch.linalg.cholesky(K.gg) @ inner.s_factor()[h, d].detach()
            if form == "orthogonal":
                u = dense.orthogonal(K, v, inner.v_g[h, :, d].detach(), s @ s.mT)
            else:
                u = dense.cheng_boots(K, v, s @ s.mT)
            f = dense.svgp(K.qq, K.qz, K.zz, u)
            kl = kl + f.kl
            torch.testing.assert_close(m.mean[0, h, :, d], f.mean, rtol=1e-7, atol=1e-7)
            variance = f.covariance.diagonal()
            torch.testing.assert_close(m.variance[0, h, :, d], variance, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(m.kl.g + m.kl.a[0], kl, rtol=1e-7, atol=1e-7)


@every_form
def test_padded_keys_of_cross_attention_do_not_contribute(form):
    layer, query, key = make(form).eval(), tokens(B, T), tokens(B, U)
    padding = torch.zeros(B, U, dtype=torch.bool)
    padding[:, 2:] = True
    short = layer(query, key[:, :2], key[:, :2])[0]
    kl = layer.kl.a
    filled = key.masked_fill(padding.unsqueeze(-1), math.nan)
    close(layer(query, filled, filled, key_padding_mask=padding)[0], short)
    close(layer.kl.a, kl)


def test_training_draws_and_evaluation_gives_the_mean():
    layer, x = make(), tokens(B, T)

    def call():
        return layer(x, x, x, need_weights=False)[0]

    assert not torch.equal(call(), call())
    with sgpa.posterior_mean(layer):
        assert torch.equal(call(), call())
    layer.eval()
    mean = call()
    assert torch.equal(mean, call())
    with sgpa.sampling(layer):
        assert not torch.equal(call(), call())
    assert torch.equal(mean, call())


def test_the_mean_of_samples_is_the_posterior_mean():
    block, x = encoder_layer().eval(), tokens(1, T)
    attention = block.self_attn
    with sgpa.sampling(block):
        draws = torch.stack([attention(x, x, x)[0] for _ in range(600)])
    gap = (draws.mean(0) - attention(x, x, x)[0]).abs() / draws.std(0)
    assert (gap < 5 / 600**0.5).all()
    torch.manual_seed(0)
    assert sgpa.sample(block, x, samples=4).shape == (4, 1, T, E)


@pytest.mark.parametrize(
    "options", [{}, {"padding": True}, {"causal": True}, {"padding": True, "causal": True}]
)
@pytest.mark.parametrize("built_with_torchs", [False, True])
def test_torchs_encoder_uses_the_layer_in_training_and_evaluation(options, built_with_torchs):
    block = encoder_layer()
    ours = block.self_attn
    if built_with_torchs:  # the encoder then decided on nested tensors before the layer was replaced
        block.self_attn = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    encoder = nn.TransformerEncoder(block, 2, enable_nested_tensor=built_with_torchs)
    for each in encoder.layers:
        each.self_attn = copy.deepcopy(ours)
    x, padding = tokens(B, T), torch.arange(T) >= torch.tensor([5, 3, 2])[:, None]
    arguments = {"src_key_padding_mask": padding} if "padding" in options else {}
    if "causal" in options:
        arguments |= {
            "mask": nn.Transformer.generate_square_subsequent_mask(T, dtype=x.dtype),
            "is_causal": True,
        }
        padding_mask = arguments.get("src_key_padding_mask")
        if padding_mask is not None:  # torch warns about masks of different types
            arguments["src_key_padding_mask"] = torch.zeros(B, T).to(x).masked_fill(padding_mask, -math.inf)
    with sgpa.posterior_mean(encoder):
        trained = encoder(x, **arguments)
    encoder.eval()
    with torch.no_grad():
        for each in encoder.layers:
            each.self_attn.kl = None
        evaluated = encoder(x, **arguments)
    real = ~padding if "padding" in options else torch.ones(B, T, dtype=torch.bool)
    close(evaluated[real], trained[real])
    assert all(each.self_attn.kl is not None for each in encoder.layers)
    if "causal" in options:
        changed = x.clone()
        changed[:, 3:] += 1
        assert torch.equal(encoder(changed, **arguments)[:, :2], encoder(x, **arguments)[:, :2])


def test_torchs_decoder_uses_the_layer_for_both_attentions():
    block = nn.TransformerDecoderLayer(E, H, 16, dropout=0.0, batch_first=True, dtype=torch.float64)
    block.self_attn, block.multihead_attn = make(), make("orthogonal")
    decoder = nn.TransformerDecoder(block, 2)
    x, memory, causal = tokens(B, T), tokens(B, U), nn.Transformer.generate_square_subsequent_mask(T).double()
    out = decoder(x, memory, tgt_mask=causal, tgt_is_causal=True)
    (out.square().mean() + sgpa.total_kl(decoder, dataset_size=100)).backward()
    for name, p in decoder.named_parameters():
        assert not p.requires_grad or p.grad.isfinite().all(), name
    decoder.eval()
    with torch.no_grad():
        changed = x.clone()
        changed[:, 3:] += 1
        one, other = (decoder(y, memory, tgt_mask=causal)[:, :3] for y in (x, changed))
        assert torch.equal(one, other)
        assert not torch.allclose(decoder(x, memory + 1, tgt_mask=causal)[:, :3], one)


def test_layers_can_be_copied_and_saved_after_a_pass():
    layer, x = make(), tokens(B, T)
    layer(x, x, x)
    twin = copy.deepcopy(layer)
    assert twin.kl is None
    other = make("cheng-boots")
    nn.init.zeros_(other.attention.W_v.weight)
    other.load_state_dict(layer.state_dict())
    for each in (twin, other):
        close(each.eval()(x, x, x)[0], layer.eval()(x, x, x)[0])


def test_a_layer_without_bias_has_none():
    assert make(bias=False).out_proj.bias is None
    assert make().out_proj.bias is not None


def test_initial_variance_is_scaled_around_the_same_mean():
    x, (whole, tenth) = tokens(B, T), (make(initial_variance_scale=share) for share in (1.0, 0.1))
    one, other = (layer.attention.moments(x, None) for layer in (whole, tenth))
    close(other.mean, one.mean)
    close(other.variance, 0.1 * one.variance)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"add_bias_kv": True}, "add_bias_kv=True"),
        ({"add_zero_attn": True}, "add_zero_attn=True"),
        ({"kdim": 4}, r"kdim=4 \(allowed: embed_dim=8\)"),
        ({"vdim": 4}, r"vdim=4 \(allowed: embed_dim=8\)"),
        ({"form": "standard"}, r"form='standard' \(allowed: cheng-boots, orthogonal\)"),
        ({"num_heads": 3}, r"MultiheadSgpa: embed_dim=8 \(allowed: a multiple of num_heads=3\)"),
        ({"dropout": 1.0}, r"MultiheadSgpa: dropout=1.0 \(allowed: 0 up to, but not, 1\)"),
        ({"initial_variance_scale": 0.0}, "initial_variance_scale=0.0"),
        ({"num_global": 0}, r"num_global=0 \(allowed: 1 or more\)"),
    ],
)
def test_what_is_not_supported_is_refused(options, words):
    with pytest.raises(ConfigError, match=words) as error:
        MultiheadSgpa(**{"embed_dim": E, "num_heads": H} | options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((tokens(B, T), tokens(B, U), tokens(B, T)), {}, "query, key and value of shapes"),
        ((tokens(B, T), tokens(2, U), tokens(2, U)), {}, "query, key and value of shapes"),
        ((tokens(B, T)[..., :4],) * 3, {}, r"query: expected x of shape \[B, T, 8\], got \[3, 5, 4\]"),
        ((tokens(B, T),) * 3, {"attn_mask": torch.full((T, T), 0.5)}, "attn_mask of torch.float32"),
        (
            (tokens(B, T),) * 3,
            {"key_padding_mask": torch.full((B, T), 0.5)},
            "key_padding_mask of torch.float",
        ),
        (
            (tokens(B, T), tokens(B, U), tokens(B, U)),
            {"is_causal": True},
            "is_causal=True with 5 queries and 4",
        ),
    ],
)
def test_bad_inputs_are_refused(arguments, options, words):
    with pytest.raises(InputError, match=words) as error:
        make()(*arguments, **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("wrong", [{"device": "bogus"}, {"device": "\ud800"}, {"dtype": torch.int64}])
def test_a_device_or_type_that_cannot_be_used_is_one_line(wrong):
    with pytest.raises(InputError, match=r"^MultiheadSgpa: device=.* cannot be used \([^\n]+\)$"):
        MultiheadSgpa(8, 2, **wrong)
