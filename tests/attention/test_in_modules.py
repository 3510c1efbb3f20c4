# What a user's module with MultiheadSgpa layers needs: total_kl, sampling and prepare.

import pytest
import torch
from torch import nn

import sgpa
from sgpa.core.errors import ConfigError, InputError

B, T, E, H, M = 4, 5, 8, 2, 3


def make(form="cheng-boots", dropout=0.0):
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(E, H, 16, dropout=dropout, batch_first=True, dtype=torch.float64)
    block.self_attn = sgpa.MultiheadSgpa(E, H, batch_first=True, num_global=M, form=form, dtype=torch.float64)
    return nn.TransformerEncoder(block, 2, enable_nested_tensor=False)


def tokens():
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_total_kl_adds_up_layers():
    model = make()
    model(tokens())
    g, a = (sum(getattr(block.self_attn.kl, part).mean() for block in model.layers) for part in "ga")
    close = torch.testing.assert_close
    close(sgpa.total_kl(model), g + a)
    close(sgpa.total_kl(model, dataset_size=50), (g + a) / 50)
    close(sgpa.total_kl(model, dataset_size=50, amortised_weight=0.25), g / 50 + 0.25 * a)
    close(sgpa.total_kl(model, amortised_weight=0.0), g)
    sgpa.total_kl(model).backward()
    assert model.layers[0].self_attn.attention.raw_s_g.grad.any()


def test_total_kl_needs_a_forward_pass_and_layers():
    model = make()
    with pytest.raises(InputError, match="2 of 2 MultiheadSgpa layers had no forward pass yet"):
        sgpa.total_kl(model)
    with pytest.raises(InputError, match="Linear has no MultiheadSgpa layer"):
        sgpa.total_kl(nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"dataset_size=0 \(allowed: 1 or more\); amortised_weight=-1"):
        sgpa.total_kl(model, dataset_size=0, amortised_weight=-1)


@pytest.mark.parametrize("training", [True, False])
def test_prepare_puts_inducing_points_on_real_tokens_and_keeps_the_mean(training):
    model, x = make(dropout=0.5).train(training), tokens()
    padding = torch.arange(T) >= torch.tensor([5, 3, 2, 4])[:, None]
    before = model.eval()(x, src_key_padding_mask=padding)
    model.train(training)
    variance = model.layers[0].self_attn.attention.kernel.log_variance.exp()
    sgpa.prepare(model, (x, None, padding))
    assert all(module.training == training for module in model.modules())
    torch.testing.assert_close(model.eval()(x, src_key_padding_mask=padding), before)
    first = model.layers[0].self_attn.attention
    torch.testing.assert_close(first.kernel.log_variance.exp(), 0.1 * variance)
    on_tokens = (first.Z_g.flatten(0, 1)[:, None] == x[~padding]).all(-1)  # [H M, N]
    assert (on_tokens.sum(-1) == 1).all()
    assert not model.layers[0].self_attn._forward_pre_hooks


def test_prepare_refuses_what_it_cannot_use():
    model = make()
    with pytest.raises(InputError, match="1 tokens are too few for 3 inducing points"):
        sgpa.prepare(model, tokens()[:1, :1])
    with pytest.raises(ConfigError, match=r"initial_variance_scale=2 \(allowed: 1e-09 to 1\)"):
        sgpa.prepare(model, tokens(), initial_variance_scale=2)
    unused = nn.Sequential(nn.Linear(E, E, dtype=torch.float64))
    unused.attention = model.layers[0].self_attn
    unused.forward = unused[0].forward
    with pytest.raises(InputError, match="did not call all its MultiheadSgpa layers"):
        sgpa.prepare(unused, tokens())


def test_blocks_restore_the_mode_after_an_error():
    model = make()
    for block in (sgpa.sampling, sgpa.posterior_mean):
        with pytest.raises(KeyError), block(model):
            raise KeyError
        assert all(layer.self_attn.draws is None for layer in model.layers)


def test_samples_differ_and_their_number_is_checked():
    model, x = make().eval(), tokens()
    draws = sgpa.sample(model, x, samples=3)
    assert draws.shape == (3, B, T, E)
    assert not torch.equal(draws[0], draws[1])
    assert not draws.requires_grad
    with pytest.raises(ConfigError, match=r"samples=0 \(allowed: 1 to 1000000\)"):
        sgpa.sample(model, x, samples=0)


def test_samples_of_a_bare_layer_are_its_values():
    layer, x = sgpa.MultiheadSgpa(8, 2, batch_first=True, num_global=3), torch.randn(2, 5, 8)
    assert sgpa.sample(layer.eval(), x, x, x, samples=4).shape == (4, 2, 5, 8)


def test_outputs_that_are_no_tensors_are_refused():
    class Named(nn.Sequential):
        def forward(self, x):
            return {"logits": super().forward(x)}

    with pytest.raises(InputError, match="sample: the module returns dict"):
        sgpa.sample(Named(make()), tokens())
