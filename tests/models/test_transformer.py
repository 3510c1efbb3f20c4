import json
import math
from dataclasses import replace

import pytest
import torch

import sgpa
from sgpa.attention import DecoupledSgpa
from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.core.inputs import Batch, Graphs
from sgpa.methods import Sgpa
from sgpa.models import (
    DotProductConfig,
    KernelAttentionConfig,
    KernelConfig,
    MeanFieldConfig,
    ModelConfig,
    PatchConfig,
    SgpaConfig,
    TokenConfig,
    Transformer,
    from_json,
    to_json,
)
from sgpa.models.embeddings.tokens import TokenEmbedding
from sgpa.models.modes import NoDropout
from sgpa.models.saving import warm_start
from support.small_models import ATTENTIONS, GRAPHS, INPUTS, PATCHES, TOKENS, graphs, images, small, texts


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("depth", [1, 2])
def test_every_model_runs_trains_and_samples(kind, attention, depth):
    embedding, make = INPUTS[kind]
    model = Transformer(small(embedding, ATTENTIONS[attention], depth=depth, pooling="sequence"))
    inputs = make()
    output = model(inputs)
    assert output.f.shape == (len(inputs), 4)
    assert len(output.kl) == depth
    (output.f.sum() + output.kl_g + output.kl_a).backward()
    unused = {n for n, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert not unused
    assert model(inputs, samples=5).f.shape == (5, len(inputs), 4)


def test_samples_share_the_deterministic_prefix_and_differ_after_it():
    model = Transformer(small()).eval()
    f = model(images(), samples=4).f
    assert (f[0] - f[1]).abs().max() > 1e-6
    mle = Transformer(small(attention=KernelAttentionConfig())).eval()
    f = mle(images(), samples=4).f
    assert torch.equal(f[0], f[3])


def test_the_mean_of_many_samples_does_not_depend_on_how_they_are_drawn():
    # 2000 samples in one pass, and 2000 rows of the same image: the same distribution of outputs
    torch.manual_seed(0)
    model = Transformer(small(depth=1)).eval()
    x = images(1)
    at_once = model(x, samples=2000).f[:, 0]
    repeated = model(x.expand(2000, -1, -1, -1)).f
    error = (at_once.var(0) / 2000 + repeated.var(0) / 2000).sqrt()
    assert ((at_once.mean(0) - repeated.mean(0)).abs() < 5 * error).all()
    assert torch.allclose(at_once.var(0), repeated.var(0), rtol=0.25)


@pytest.mark.parametrize("attention", ["kernel", "orthogonal", "standard", "sdp"])
def test_a_padded_text_equals_the_text_alone(attention):
    model = Transformer(small(TOKENS, ATTENTIONS[attention], depth=1)).double().eval()
    ids = texts()
    together = next(out.kl.a for _, _, _, out in model.run_layers(ids))
    alone = next(out.kl.a for _, _, _, out in model.run_layers(ids[1:2, :4]))
    assert torch.allclose(together[1], alone[0])
    if attention in ("kernel", "sdp"):  # nothing is sampled, so outputs can be compared
        assert torch.allclose(model(ids).f[1], model(ids[1:2, :4]).f[0])


def test_outputs_do_not_depend_on_the_order_of_nodes():
    model = Transformer(small(GRAPHS, KernelAttentionConfig())).double().eval()
    g = graphs()
    g = Graphs(g.nodes[:1], g.edges[:1], g.edge_types[:1], g.identifiers[:1].double())
    order = torch.tensor([2, 0, 1])
    position = order.argsort()
    moved = Graphs(g.nodes[:, order], position[g.edges], g.edge_types, g.identifiers[:, order])
    assert torch.allclose(model(g).f, model(moved).f)


def test_inducing_points_pass_through_the_deep_kernel_of_the_data():
    # eq:fhl: a token of layer 2's input space and an inducing location at the same point meet as q = k_g
    model = Transformer(small()).eval()
    layer = model.gp_layers[1]
    token = torch.randn(1, 1, 8)
    with torch.no_grad():
        layer.attention.Z_g[:, 0] = token[0, 0]
    _, s = layer.features(token)
    q, _ = layer.attention.queries_keys(s)  # [1, H, 1, D]
    k_g = model.global_state()[1].k_g  # [H, M, D]
    assert torch.allclose(q[0, :, 0], k_g[:, 0], atol=1e-6)


def test_global_state_of_all_layers_equals_layer_by_layer_and_ignores_dropout():
    torch.manual_seed(0)
    model = Transformer(small(depth=3, dropout=0.5)).train()
    once, again = model.global_state(), model.global_state()
    for i, layer in enumerate(model.gp_layers):
        (alone,) = model._states_of([layer])
        assert torch.allclose(once[i].k_g, alone.k_g, atol=1e-6)
        assert torch.allclose(once[i].L_inv, alone.L_inv, rtol=1e-3, atol=1e-3)  # rounding of k_g, amplified
        assert torch.allclose(once[i].kl, alone.kl)
        assert torch.equal(once[i].k_g, again[i].k_g)
    assert all(m.training for m in model.modules())


def test_predictions_follow_changed_weights():
    model = Transformer(small())
    before = model.predict(images(1), seed=3).probabilities
    with torch.no_grad():
        for layer in model.gp_layers:
            layer.attention.v_g.add_(10.0)
    torch.manual_seed(0)
    assert not torch.allclose(before, model.predict(images(1), seed=3).probabilities)


def test_the_initial_variance_is_scaled():
    config = ModelConfig(embedding=PATCHES, depth=2, heads=2, width=16, outputs=3)
    batch = Batch(images(8), torch.zeros(8, dtype=torch.int64))
    for method, change in ((Sgpa(initial_variance_scale=0.25), math.log(0.25)), (Sgpa(), 0.0)):
        model = replace(method, attention=SgpaConfig(num_global=3)).build(config)
        before = [layer.attention.kernel.log_variance.clone() for layer in model.gp_layers]
        method.initialise(model, batch)
        for layer, old in zip(model.gp_layers, before, strict=True):
            torch.testing.assert_close(layer.attention.kernel.log_variance.detach(), old.detach() + change)
    with pytest.raises(ConfigError, match="sgpa: initial_variance_scale=2"):
        Sgpa(initial_variance_scale=2)


def test_inducing_points_start_on_tokens_that_are_not_padding():
    model = Transformer(small(TOKENS, depth=1)).eval()
    ids = texts()
    model.place_inducing_points(ids)
    f, padding = model.embedding(ids)
    real = f[~padding]
    Z = model.gp_layers[0].attention.Z_g.flatten(0, 1)
    assert torch.cdist(Z, real).min(-1).values.max() < 1e-6


def test_predict_is_repeatable_and_leaves_the_random_state_and_mode_alone():
    model = Transformer(small()).train()
    x = images(5)
    torch.manual_seed(7)
    first = model.predict(x)
    after_predicting = torch.randn(1)
    torch.manual_seed(7)
    assert torch.equal(after_predicting, torch.randn(1))
    assert torch.equal(first.probabilities, model.predict(x).probabilities)
    assert not torch.equal(first.probabilities, model.predict(x, seed=1).probabilities)
    assert model.training


def test_entropy_is_expected_entropy_plus_mutual_information():
    prediction = Transformer(small()).predict(images(6), samples=20)
    assert torch.allclose(prediction.probabilities.sum(-1), torch.ones(6))
    assert torch.allclose(
        prediction.entropy, prediction.expected_entropy + prediction.mutual_information, atol=1e-6
    )
    assert (prediction.mutual_information > 0).all()
    point = Transformer(small(attention=KernelAttentionConfig())).predict(images(6))
    assert point.mutual_information.max() < 1e-6


def test_regression_variance_is_that_of_model_plus_data():
    model = Transformer(small(GRAPHS, outputs=1, likelihood="laplace"))
    prediction = model.predict(graphs(), samples=50)
    assert torch.allclose(prediction.variance, prediction.model_variance + prediction.data_variance)
    assert torch.allclose(prediction.data_variance, torch.full((2,), 2.0))
    assert (prediction.model_variance > 0).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_saved_model_predicts_the_same_after_loading(tmp_path, attention):
    model = Transformer(small(attention=ATTENTIONS[attention]))
    model.save_pretrained(tmp_path / "model")
    again = sgpa.load(tmp_path / "model")
    assert again.config == model.config
    x = images()
    assert torch.equal(model.predict(x).probabilities, again.predict(x).probabilities)
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]


def test_configs_are_equal_after_json():
    for attention in ATTENTIONS.values():
        for embedding in (PATCHES, TOKENS, GRAPHS):
            config = small(embedding, attention)
            assert from_json(to_json(config)) == config


@pytest.mark.parametrize(
    ("part", "field", "only"), [("attention", "paths", False), ("weights", "estimator", "flipout")]
)
def test_saved_models_open_though_a_setting_was_removed_since(tmp_path, part, field, only):
    model = Transformer(small(weights=MeanFieldConfig()))
    file = model.save_pretrained(tmp_path / "model") / "config.json"
    saved = json.loads(file.read_text(encoding="utf-8"))
    saved[part][field] = only
    file.write_text(json.dumps(saved), encoding="utf-8")
    assert sgpa.load(tmp_path / "model").config == model.config
    saved[part][field] = "other"
    file.write_text(json.dumps(saved), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"{field}='other' was removed"):
        sgpa.load(tmp_path / "model")


def test_damaged_or_other_files_are_refused_in_one_line(tmp_path):
    model = Transformer(small())
    path = model.save_pretrained(tmp_path / "model")
    with pytest.raises(CheckpointError, match="nowhere is not a folder"):
        sgpa.load(tmp_path / "nowhere")
    weights = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(CheckpointError, match="damaged or cut short"):
        sgpa.load(path)
    Transformer(small(width=16)).save_pretrained(tmp_path / "wide")
    (path / "model.safetensors").write_bytes((tmp_path / "wide" / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="do not fit the config"):
        sgpa.load(path)
    (path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointError, match="not valid JSON"):
        sgpa.load(path)
    (path / "config.json").write_text('{"kind": "model", "colour": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match="unknown fields colour"):
        sgpa.load(path)


def test_warm_start_copies_all_but_the_variational_parameters():
    source = Transformer(small(attention=KernelAttentionConfig()))
    model = Transformer(small())
    fresh = warm_start(model, source.state_dict())
    assert {name.rsplit(".", 1)[-1] for name in fresh} == {"Z_g", "v_g", "raw_s_g"}
    for name, value in source.state_dict().items():
        assert torch.equal(model.state_dict()[name], value)
    with pytest.raises(CheckpointError, match=r"warm start: .* needs shape"):
        warm_start(model, Transformer(small(attention=DotProductConfig())).state_dict())


def test_a_warm_started_model_has_the_means_of_the_point_model_far_from_global_keys():
    source = Transformer(small(attention=KernelAttentionConfig(kernel=KernelConfig(preset="paper")))).eval()
    model = Transformer(small(attention=SgpaConfig(kernel=KernelConfig(preset="paper"), num_global=3))).eval()
    warm_start(model, source.state_dict())
    layer = model.gp_layers[0]
    assert isinstance(layer.attention, DecoupledSgpa)
    with torch.no_grad():
        layer.attention.v_g.zero_()
        layer.attention.Z_g.mul_(0).add_(100 * torch.randn_like(layer.attention.Z_g))
        layer.attention.W_qk.weight.mul_(30)  # everything is far from everything else
        source.gp_layers[0].attention.W_qk.weight.mul_(30)
    f, _ = model.embedding(images())
    _, s = layer.features(f)
    ours = layer.attention.moments(s, None, model.global_state()[0]).mean
    theirs = source.gp_layers[0].attention.moments(s, None).mean
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("embedding", "inputs", "message"),
    [
        (PATCHES, torch.randn(2, 3, 8, 8), r"expected images of shape \[B, 1, 8, 8\], got \[2, 3, 8, 8\]"),
        (PATCHES, torch.full((1, 1, 8, 8), float("nan")), "pixels that are NaN or infinite"),
        (PATCHES, torch.zeros(1, 1, 8, 8, dtype=torch.int64), "as uint8, or as normalised floats"),
        (PATCHES, graphs(), "got Graphs"),
        (TOKENS, torch.zeros(1, 4), "integer token ids"),
        (TOKENS, torch.full((1, 4), 11), "leave the vocabulary"),
        (TOKENS, torch.ones(1, 8, dtype=torch.long), "8 tokens, but the model reads 7"),
        (TOKENS, torch.zeros(1, 4, dtype=torch.long), "all padding"),
        (GRAPHS, torch.zeros(1, 4), "expected Graphs"),
        (GRAPHS, replace(graphs(), nodes=torch.full((2, 3), 4)), "node type 4 is outside 0..3"),
        (GRAPHS, replace(graphs(), edges=torch.full((2, 4, 2), 3)), "ends at node 3 of 3"),
        (GRAPHS, replace(graphs(), identifiers=torch.randn(2, 3, 5)), "width 5, the model expects 3"),
    ],
)
def test_bad_inputs_are_refused_in_one_line(embedding, inputs, message):
    with pytest.raises((InputError, ArithmeticError), match=message) as caught:
        Transformer(small(embedding)).predict(inputs)
    assert "\n" not in str(caught.value)


def test_no_rows_and_no_samples_are_refused():
    model = Transformer(small())
    with pytest.raises(InputError, match="no row"):
        model.predict(images(0))
    with pytest.raises(InputError, match="samples=-1"):
        model.predict(images(1), samples=-1)
    with pytest.raises(InputError, match="samples=0"):
        model.draw(images(1), samples=0)


def test_a_config_reports_all_bad_fields_at_once():
    with pytest.raises(ConfigError, match=r"depth=0.*width=9.*dropout=1.0.*pooling='max'"):
        small(depth=0, width=9, dropout=1.0, pooling="max")
    with pytest.raises(ConfigError, match="divisor of image_size=8"):
        PatchConfig(image_size=8, patch_size=3)
    with pytest.raises(ConfigError, match="ard-rbf, exponential"):
        KernelConfig(name="linear")


def test_dropout_is_on_again_after_a_block_without_it():
    model = Transformer(small()).train()
    with NoDropout(model):
        assert not any(m.training for m in model.modules() if isinstance(m, torch.nn.Dropout))
    assert all(m.training for m in model.modules())


def test_initial_embeddings_have_the_configured_scale():
    torch.manual_seed(0)
    config = TokenConfig(vocabulary=2000, embedding_width=8, scale=0.3)
    weight = TokenEmbedding(config, 8).tokens.weight.detach()
    assert float(weight[1:].std()) == pytest.approx(0.3, rel=0.02)
    assert (weight[0] == 0).all()


def test_token_dropout_removes_tokens_and_keeps_positions():
    torch.manual_seed(0)
    layer = TokenEmbedding(TokenConfig(vocabulary=50, max_tokens=40, embedding_width=8, drop=0.25), 8)
    ids = torch.randint(1, 50, (200, 40))
    kept, padding = layer(ids)
    words = kept - layer.positions
    gone = (words.abs() < 1e-6).all(-1)
    assert gone.float().mean() == pytest.approx(0.25, abs=0.02)
    whole = layer.tokens.weight[ids]
    assert torch.allclose(words[~gone], whole[~gone] / 0.75, atol=1e-5)
    assert not padding.any()
    assert torch.allclose(layer.eval()(ids)[0] - layer.positions, whole, atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 1e-9])
def test_every_sample_drops_different_tokens(dropout):
    torch.manual_seed(0)
    model = Transformer(small(replace(TOKENS, drop=0.5), ATTENTIONS["kernel"], dropout=dropout)).train()
    assert model.stochastic
    f = model(texts(), samples=6).f  # [6, 3, C]
    assert f.shape[:2] == (6, 3)
    assert all(len(f[:, row].unique(dim=0)) > 1 for row in range(3))
    assert not model.eval().stochastic


def test_sum_pooling_adds_tokens_that_are_not_padding():
    torch.manual_seed(0)
    model = Transformer(small(TOKENS, ATTENTIONS["kernel"], pooling="sum"))
    x, padding = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False, False, True, True, True]])
    pooled = model.pooled(x, padding)
    assert torch.allclose(pooled[0], x[0].sum(0) / 64)
    assert torch.allclose(pooled[1], x[1, :2].sum(0) / 64)
    assert torch.allclose(model.pooled(x.repeat(1, 3, 1), None), 3 * model.pooled(x, None), atol=1e-6)
