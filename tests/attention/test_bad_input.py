# Bad arguments: each raises an error of one line that says what was expected.

import pytest
import torch

from sgpa.attention import ChengBootsSgpa, DotProductAttention, KernelAttention, OrthogonalSgpa, StandardSgpa
from sgpa.core.errors import ConfigError, InputError
from sgpa.gp.kernels import ArdRbfKernel

E, H = 8, 2
LAYERS = [DotProductAttention, KernelAttention, OrthogonalSgpa, ChengBootsSgpa, StandardSgpa]
every_layer = pytest.mark.parametrize("layer_class", LAYERS)
kernel_layer = pytest.mark.parametrize("layer_class", LAYERS[1:])


def make(layer_class, embed_dim=E, num_heads=H, kernel=None, **options):
    if layer_class is StandardSgpa:
        options = {"max_tokens": 5} | options
    if layer_class is DotProductAttention:
        return layer_class(embed_dim, num_heads, **options)
    kernel = ArdRbfKernel(H, E // H) if kernel is None else kernel
    return layer_class(embed_dim, num_heads, kernel, **options)


def message(layer_class, x, mask=None):
    layer = make(layer_class)
    layer.name = "layer 3"
    with pytest.raises(InputError) as error:
        layer(x, mask)
    text = str(error.value)
    assert text.startswith("layer 3: ")
    assert "\n" not in text
    return text


@every_layer
@pytest.mark.parametrize("shape", [(2, 5, E + 1), (5, E), (1, 2, 5, E), (E,)])
def test_wrong_shape(layer_class, shape):
    assert f"expected x of shape [B, T, {E}], got {list(shape)}" in message(layer_class, torch.randn(shape))


@every_layer
def test_no_token(layer_class):
    assert "no token (T = 0)" in message(layer_class, torch.randn(2, 0, E))


@every_layer
@pytest.mark.parametrize("shape", [(2, 4), (5, 2), (2, 5, 1), (5,)])
def test_mask_of_wrong_shape(layer_class, shape):
    text = message(layer_class, torch.randn(2, 5, E), torch.zeros(shape, dtype=torch.bool))
    assert "key_padding_mask of shape [2, 5]" in text
    assert f"of shape {list(shape)}" in text


@every_layer
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_mask_of_wrong_type(layer_class, dtype):
    # an additive or integer mask would mean something else
    text = message(layer_class, torch.randn(2, 5, E), torch.zeros(2, 5, dtype=dtype))
    assert "bool key_padding_mask" in text
    assert "True at padding" in text
    assert str(dtype) in text


@every_layer
def test_sequence_that_is_all_padding(layer_class):
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[1] = True
    assert "sequence 1 of the batch is all padding" in message(layer_class, torch.randn(3, 5, E), mask)


def test_more_tokens_than_the_covariance_is_made_for():
    text = message(StandardSgpa, torch.randn(2, 6, E))
    assert "6 tokens" in text
    assert "max_tokens=5" in text


@every_layer
def test_heads_that_do_not_divide_the_width(layer_class):
    with pytest.raises(ConfigError, match=r"embed_dim=8 \(allowed: a multiple of num_heads=3\)"):
        make(layer_class, num_heads=3)


@every_layer
def test_bad_settings_are_named_together(layer_class):
    with pytest.raises(ConfigError) as error:
        make(layer_class, embed_dim=0, num_heads=0, dropout=1.0)
    text = str(error.value)
    assert text.startswith(layer_class.__name__)
    for field in ("embed_dim=0", "num_heads=0", "dropout=1.0"):
        assert field in text


@kernel_layer
@pytest.mark.parametrize("heads_width", [(4, 4), (1, 4), (2, 8)])
def test_kernel_made_for_another_layer(layer_class, heads_width):
    with pytest.raises(ConfigError) as error:
        make(layer_class, kernel=ArdRbfKernel(*heads_width))
    text = str(error.value)
    assert layer_class.__name__ in text
    assert f"(heads, width) = {heads_width}, this layer needs (2, 4)" in text


@pytest.mark.parametrize("layer_class", [OrthogonalSgpa, ChengBootsSgpa])
def test_bad_settings_of_the_global_points(layer_class):
    with pytest.raises(ConfigError) as error:
        make(layer_class, num_global=0, init="typo")
    text = str(error.value)
    assert "num_global=0 (allowed: 1 or more)" in text
    assert "init='typo' (allowed: paper, prior, small)" in text


def test_bad_max_tokens():
    with pytest.raises(ConfigError, match=r"max_tokens=0 \(allowed: 1 or more\)"):
        make(StandardSgpa, max_tokens=0)


def test_too_few_tokens_to_start_the_inducing_points_on():
    layer = make(OrthogonalSgpa, num_global=3)
    with pytest.raises(InputError, match="attention: 2 tokens are too few for 3 inducing points"):
        layer.init_on_data(torch.randn(2, E))
