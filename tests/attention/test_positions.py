"""Position-aware keys."""

from dataclasses import replace

import pytest
import torch

from oracles.layers import D, E, H, M, T, make, tokens
from sgpa.attention import KernelAttention, OrthogonalSgpa
from sgpa.attention.positions import grid_positions
from sgpa.core.errors import ConfigError, InputError
from sgpa.gp.kernels import ArdRbfKernel
from sgpa.methods import Mle, Sgpa
from sgpa.models import (
    GraphConfig,
    KernelAttentionConfig,
    KernelConfig,
    ModelConfig,
    PatchConfig,
    SgpaConfig,
    Transformer,
    WordsConfig,
    from_json,
    to_json,
)
from sgpa.models.saving import warm_start

PATCHES = PatchConfig(image_size=6, channels=1, patch_size=2)
KERNEL = KernelConfig(locality=(1.0, 2.0))
CONFIG = ModelConfig(
    embedding=PATCHES, attention=KernelAttentionConfig(kernel=KERNEL), depth=2, heads=2, width=8, outputs=3
)
SGPA = Sgpa(attention=SgpaConfig(kernel=KERNEL, num_global=3))


@pytest.mark.parametrize("grid", [(5,), (3, 4), (2, 3, 2)])
def test_kernels_of_positions_decrease_with_the_distance_of_cells(grid):
    locality = (0.5, 1.0, 3.0)
    p = grid_positions(grid, locality, 4)  # [T, H, D]
    cells = torch.cartesian_prod(*(torch.arange(float(n)) for n in grid)).view(len(p), -1)
    distance = torch.cdist(cells, cells)
    kernel = ArdRbfKernel(3, 4)
    for h, r in enumerate(locality):
        K = kernel.between(p.transpose(0, 1), p.transpose(0, 1))[h]
        torch.testing.assert_close(K, torch.exp(-0.5 * (distance / r) ** 2))


def test_a_head_starts_out_attending_around_every_token():
    near = KernelAttention(4, 1, ArdRbfKernel(1, 4), positions=grid_positions((5, 5), (1.0,), 4))
    weights = near.weights(torch.zeros(1, 25, 4), None)[0, 0]  # tokens that all look alike
    middle = weights[12].view(5, 5)
    assert middle[2, 2].item() == 1
    torch.testing.assert_close(middle[2, 1], torch.tensor(0.5).neg().exp())
    assert torch.equal(middle, middle.mT)
    assert middle[0, 0].item() < 0.02


def test_equal_tokens_at_different_positions_are_different_points():
    x = tokens(B=1)[:, :1].expand(1, T, E)
    blind, seeing = make(KernelAttention, ArdRbfKernel), make(KernelAttention, ArdRbfKernel, positions=WHERE)
    assert torch.allclose(blind.weights(x, None), blind.kernel.at(blind.points(x, blind.W_qk))[..., None])
    assert not torch.allclose(seeing.weights(x, None), blind.weights(x, None))


WHERE = torch.randn(T, H, D, generator=torch.Generator().manual_seed(3))


def test_inducing_points_get_the_positions_of_their_tokens():
    layer, x = make(OrthogonalSgpa, ArdRbfKernel, positions=WHERE), tokens(B=4).flatten(0, 1)
    cells = torch.arange(T).repeat(4)
    layer.init_on_data(x, cells)
    token = (layer.Z_g[:, :, None] == x).all(-1).long().argmax(-1)  # [H, M]: which token
    for h in range(H):
        assert torch.equal(layer.places_g[h], layer.places[cells[token[h]], h])
        keys = layer.points(x.view(4, T, E), layer.W_qk)[:, h].flatten(0, 1)[token[h]]  # [M, D]
        torch.testing.assert_close(layer.global_state().k_g[h], keys)
    with pytest.raises(InputError, match="cells=None"):
        layer.init_on_data(x)


def test_a_model_starts_its_inducing_points_at_cells():
    torch.manual_seed(0)
    model = SGPA.build(CONFIG)
    model.place_inducing_points(torch.randn(5, 1, 6, 6))
    for layer in model.gp_layers:
        a = layer.attention
        same = (a.places_g[:, :, None] == a.places.transpose(0, 1)[:, None]).all(-1)  # [H, M, T]
        assert same.any(-1).all()


def test_a_warm_start_copies_positions():
    torch.manual_seed(0)
    point, sgpa = Mle(attention=CONFIG.attention).build(CONFIG), SGPA.build(CONFIG)
    with torch.no_grad():
        for layer in point.gp_layers:
            layer.attention.places.add_(torch.randn_like(layer.attention.places))
    warm_start(sgpa, point.state_dict())
    for one, other in zip(point.gp_layers, sgpa.gp_layers, strict=True):
        assert torch.equal(one.attention.places, other.attention.places)


def test_positions_are_saved_with_the_model(tmp_path):
    torch.manual_seed(0)
    model, x = SGPA.build(CONFIG), torch.randn(4, 1, 6, 6)
    model.place_inducing_points(x)
    model.save_pretrained(tmp_path)
    again = Transformer.from_pretrained(tmp_path)
    assert again.config.attention.kernel.locality == (1.0, 2.0)
    assert torch.equal(again.predict(x).probabilities, model.predict(x).probabilities)
    assert from_json(to_json(CONFIG)) == CONFIG


def test_a_saved_config_without_locality_has_none():
    saved = to_json(replace(CONFIG, attention=KernelAttentionConfig()))
    del saved["attention"]["kernel"]["locality"]
    assert from_json(saved).attention.kernel.locality == ()


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_heads_take_localities_in_turn(heads):
    model = Transformer(replace(CONFIG, heads=heads))
    corner = model.gp_layers[0].attention.places[0]  # [H, D]
    assert corner[:, 0].tolist() == [-1.0, -0.5, -1.0, -0.5][:heads]


def test_words_have_positions_and_graphs_have_none():
    words = WordsConfig(vocabulary=9, features=4, max_tokens=7)
    model = Transformer(replace(CONFIG, embedding=words))
    assert model.gp_layers[0].attention.places.shape == (7, 2, 4)
    with pytest.raises(ConfigError, match=r"locality=.*graphs have no positions"):
        Transformer(replace(CONFIG, embedding=GraphConfig(node_types=3, edge_types=2)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"locality": (1.0, -2.0)}, r"locality=\(1.0, -2.0\) \(allowed: positive numbers"),
        ({"locality": (1.0,), "name": "exponential"}, "position-aware keys need ard-rbf"),
    ],
)
def test_a_bad_locality_is_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        KernelConfig(**options)


def test_positions_must_fit_the_layer_and_its_tokens():
    with pytest.raises(ConfigError, match=r"positions are for \(heads, width\) = \(1, 4\)"):
        make(KernelAttention, ArdRbfKernel, positions=WHERE[:, :1])
    with pytest.raises(ConfigError, match="1 to 2 sides"):
        grid_positions((2, 2, 2), (1.0,), 2)
    layer = make(KernelAttention, ArdRbfKernel, positions=WHERE)
    with pytest.raises(InputError, match="6 tokens, but there are positions for 5 only"):
        layer(tokens(T=T + 1))


def test_every_inducing_point_has_a_position():
    assert make(OrthogonalSgpa, ArdRbfKernel, positions=WHERE).places_g.shape == (H, M, D)
