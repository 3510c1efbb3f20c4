"""Models that people bring: what is read of them is right, or refused in one line."""

import math

import pytest
import torch
import transformers
from torch import nn

import sgpa
from sgpa.core.errors import InputError
from sgpa.gp.temperature import best_temperature, careful_temperature, mixture_nll
from sgpa.posthoc.find import find_attention
from sgpa.posthoc.passes import answered_rows, observe
from support.tiny_transformers import (
    CLASSES,
    HIDDEN,
    WORDS,
    TimmVit,
    TorchEncoder,
    attached,
    batch,
    bert,
    gpt2,
    make,
    qwen2,
    vit,
)


def words(rows, tokens=9, seed=0):
    return torch.randint(1, WORDS, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def labelled(model, inputs):
    with torch.no_grad():
        output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    labels = getattr(output, "logits", output).argmax(-1)
    return labels + (torch.arange(len(labels)) % 4 == 0).long() * (1 - 2 * (labels > 0).long())


# numbers ---------------------------------------------------------------------------------------------------


def test_rows_that_are_all_right_do_not_make_a_model_sure_of_everything():
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (30,), generator=generator)
    f = torch.randn(1, 30, 3, generator=generator)
    f[0, torch.arange(30), y] = f.amax(-1)[0] + 0.5
    assert float(best_temperature(f, y)) == pytest.approx(0.05)
    T = careful_temperature(f, y)
    assert 0.5 < T < 1
    many = careful_temperature(f.repeat(1, 1000, 1), y.repeat(1000))
    assert many < 0.5 * T
    worse = y.clone()
    worse[:10] = (y[:10] + 1) % 3
    assert careful_temperature(f, worse) == best_temperature(f, worse) > 1
    assert mixture_nll(f / T, y) < mixture_nll(f, y)


def test_a_rows_answer_does_not_depend_on_its_batch():
    model = make(lambda: bert(hidden_size=48, num_attention_heads=4, num_hidden_layers=2))
    gp = sgpa.attach(model).fit([batch(model, 200, s) for s in range(2)]).calibrate([batch(model, 150, 9)])
    gp._adapter.scales.layers[-1] = 20_000.0  # a large scale of a small variance
    rows = batch(model, 40, 20, labels=False)
    whole = gp.predict(rows)
    for i in (0, 7, 39):
        one = gp.predict({key: x[i : i + 1] for key, x in rows.items()})
        torch.testing.assert_close(one.probabilities, whole.probabilities[i : i + 1], rtol=0, atol=1e-4)


def test_one_word_again_and_again_is_novel():
    gp = attached(make(bert, seed=1))
    x = words(40, 7)
    familiar = gp.predict({"input_ids": x}).novelty.mean()
    repeated = torch.cat([x[:, :1], x[:, 1:2].expand(40, 5), x[:, -1:]], 1)
    assert gp.predict({"input_ids": repeated}).novelty.mean() > familiar


def test_the_mask_may_be_a_positional_argument():
    model = make(bert)
    gp = attached(model)
    rows = batch(model, 12, 30, labels=False)
    named = gp.predict(rows)
    ids, mask = rows["input_ids"], rows["attention_mask"]
    labels = torch.zeros(12, dtype=torch.long)
    for given in (((ids, mask), labels), (ids, mask, labels)):
        torch.testing.assert_close(gp.predict(given).novelty, named.novelty)
    module = gp.as_module()
    for outputs in (
        module(ids, mask),
        module(ids, attention_mask=mask),
        module(input_ids=ids, attention_mask=mask),
    ):
        torch.testing.assert_close(outputs[1], named.novelty)


class Speech(nn.Module):
    """One token for four samples, as speech models have it; the mask is over samples."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x, attention_mask):
        hidden = self.encoder(self.embed((x * attention_mask).unflatten(1, (-1, 4))))
        return self.head(hidden.mean(1))


def test_masks_over_samples_are_those_of_tokens_or_refused():
    model = make(Speech)
    x, mask = torch.randn(30, 32), torch.ones(30, 32, dtype=torch.long)
    mask[:, 16:] = 0
    rows = {"x": x, "attention_mask": mask}
    with pytest.raises(InputError, match="a mask of 32 columns for 8 tokens of attention"):
        sgpa.attach(model, num_inducing=8).fit([rows])
    model._get_feature_vector_attention_mask = lambda tokens, mask: mask[:, :: mask.shape[1] // tokens]
    sites = find_attention(model)
    seen = observe(model, sites, model.head, sgpa.posthoc.calls.Call((), rows, None, mask == 0))
    assert seen.padding[0].tolist() == [False] * 4 + [True] * 4


def test_scores_of_tokens_that_are_averaged_have_the_mean_features():
    x, W = torch.randn(5, 6, 8), torch.randn(8, 3)
    result = x @ W
    torch.testing.assert_close(answered_rows(x, result, result.mean(1)), x.mean(1))
    torch.testing.assert_close(answered_rows(x, result, result[:, 4]), x[:, 4])
    padding = torch.zeros(5, 6, dtype=torch.bool)
    padding[:, 4:] = True
    torch.testing.assert_close(answered_rows(x, result, result[:, :4].mean(1), padding), x[:, :4].mean(1))


class FromTheMarkedToken(TorchEncoder):
    """Answers from the token whose id is 5."""

    def forward(self, ids):
        x = self.encoder(self.embed(ids))
        return self.head(x[torch.arange(len(ids)), (ids == 5).float().argmax(1)])


@torch.no_grad()
def test_the_token_that_a_row_names_is_read_in_every_batch():
    model = make(FromTheMarkedToken)

    def rows(place, seed):
        ids = words(30, 7, seed).clamp_min(6)
        ids[:, place] = 5
        return ids

    train = [torch.cat([rows(s, s), rows(6 - s, s + 3)]) for s in range(3)]
    gp = sgpa.attach(model, num_inducing=8).fit(train)
    gp.calibrate([(x, labelled(model, x)) for x in (rows(2, 9), rows(4, 10))])
    noise = torch.tensor([0.0, 0.0, 0.5, 0.0])
    call = sgpa.posthoc.calls.Call((rows(0, 20),))
    gp._draw(model, call, noise, samples=2, seed=0)  # here the first token is enough
    call = sgpa.posthoc.calls.Call((rows(4, 21),))
    draws = [gp._draw(model, call, noise, samples=3, seed=0, replay=replay)[1] for replay in (True, False)]
    torch.testing.assert_close(*draws, rtol=1e-4, atol=1e-4)


class Memory(nn.Module):
    """Cross-attention to another sequence, part of which is padding."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.self_attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.cross = nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids, memory):
        x, m = self.embed(ids), self.embed(memory)
        x = x + self.self_attention(x, x, x)[0]
        x = x + self.cross(x, m, m, key_padding_mask=memory == 0)[0]
        return self.head(x.mean(1))


def test_padding_of_keys_is_not_that_of_queries():
    model = make(Memory)
    memory = words(4, 9, 1)
    memory[:, 5:] = 0
    call = sgpa.posthoc.calls.Call((words(4), memory))
    assert observe(model, find_attention(model), model.head, call).padding is None


# outputs and targets ---------------------------------------------------------------------------------------


class Probabilities(TimmVit):
    def forward(self, x):
        return super().forward(x).softmax(-1)


def test_probabilities_are_no_logits():
    model = make(Probabilities)
    gp = sgpa.attach(model, num_inducing=8).fit([batch(make(TimmVit), 40, labels=False)])
    with pytest.raises(InputError, match="returns probabilities; attach to one"):
        gp.calibrate([batch(make(TimmVit), 40)])


def test_one_logit_of_two_classes_is_refused():
    model = make(lambda: bert(num_labels=1))
    gp = sgpa.attach(model, num_inducing=8).fit([batch(model, 30, labels=False)])
    rows = batch(model, 30, 1, labels=False) | {"labels": (torch.arange(30) % 2).float()}
    with pytest.raises(InputError, match=r"one output and targets 0 and 1; .* must return two logits"):
        gp.calibrate([rows])


def test_several_labels_a_row_are_refused():
    model = make(bert)
    gp = sgpa.attach(model, num_inducing=8).fit([batch(model, 30)])
    rows = batch(model, 30, 1, labels=False) | {"labels": torch.zeros(30, CLASSES)}
    with pytest.raises(InputError, match=r"one class a row.*several labels a row are not supported"):
        gp.calibrate([rows])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool])
def test_labels_of_every_integer_type_are_read(dtype):
    model = make(bert)
    gp = sgpa.attach(model, num_inducing=8).fit([batch(model, 30)])
    rows = batch(model, 40, 1)
    rows["labels"] = rows["labels"].clamp_max(1)
    expected = gp.calibrate([rows])._adapter.scales
    scales = gp.calibrate([rows | {"labels": rows["labels"].to(dtype)}])._adapter.scales
    assert torch.equal(scales.data, expected.data)


def test_outputs_for_some_tokens_are_refused():
    gp = attached(make(qwen2))
    with pytest.raises(InputError, match=r"answers for 1 of 9 tokens .* such as logits_to_keep"):
        gp.predict({"input_ids": words(3), "logits_to_keep": 1})


def test_text_ends_at_the_end_token():
    gp = attached(make(qwen2))
    prompt = {"input_ids": words(2)}
    tokens = [step.token for step in gp.generate(prompt, max_new_tokens=6)]
    gp._model.generation_config.eos_token_id = [int(tokens[2][0]), int(tokens[2][1])]
    shorter = list(gp.generate(prompt, max_new_tokens=6))
    assert len(shorter) <= 3
    assert torch.equal(shorter[0].token, tokens[0])


def test_fit_needs_gradients():
    model = make(bert)
    with torch.inference_mode(), pytest.raises(InputError, match=r"outside torch\.inference_mode"):
        sgpa.attach(model, num_inducing=8).fit([batch(model, 30)])


def test_masks_that_are_read_as_targets_are_noticed(caplog):
    model = make(TorchEncoder)
    ids = words(40)
    sgpa.attach(model, num_inducing=8).fit([(ids, torch.ones_like(ids))])
    assert "looks like an attention mask" in caplog.text


def test_a_change_of_one_weight_is_noticed():
    model = make(bert)
    gp = attached(model)
    rows = batch(model, 4, labels=False)
    gp.predict(rows)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[7, 3] += 1e-3
    with pytest.raises(InputError, match="its weights changed after fit"):
        gp.predict(rows)


# attention -------------------------------------------------------------------------------------------------

TEXT = {"vocab_size": WORDS, "num_labels": CLASSES, "pad_token_id": 0}


def swin():
    sizes = {"embed_dim": 8, "depths": [2, 4], "num_heads": [2, 4], "window_size": 4}
    image = {"image_size": 32, "patch_size": 2, "num_channels": 3, "num_labels": CLASSES}
    return transformers.SwinForImageClassification(transformers.SwinConfig(**sizes, **image))


def deberta():
    config = transformers.DebertaV2Config(**HIDDEN, **TEXT, max_position_embeddings=32)
    return transformers.DebertaV2ForSequenceClassification(config)


def modern_bert():
    config = transformers.ModernBertConfig(
        **HIDDEN, **TEXT, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2,
    )  # fmt: skip
    return transformers.ModernBertForSequenceClassification(config)


def neox():
    config = transformers.GPTNeoXConfig(**HIDDEN, **TEXT, max_position_embeddings=32)
    return transformers.GPTNeoXForSequenceClassification(config)


def test_windows_are_tokens_of_their_images(caplog):
    model = make(swin)

    def rows(seed):
        x = torch.randn(12, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
        return {"pixel_values": x, "labels": labelled(model, {"pixel_values": x})}

    gp = sgpa.attach(model, num_inducing=8)
    assert len(gp.modules) == 6
    gp.fit([rows(0), rows(1)]).calibrate([rows(s) for s in (2, 3)])
    assert "4 of 6 modules that read 64" in caplog.text
    assert len(gp.modules) == 4
    answer, drawn = gp.predict(rows(4)), gp.predict(rows(4), samples=2)
    assert answer.token_variance.shape == (12, 64)
    one = gp.predict({"pixel_values": rows(4)["pixel_values"][5:6]})
    torch.testing.assert_close(one.novelty[0], answer.novelty[5])
    assert drawn.probabilities.shape == (12, CLASSES)


@pytest.mark.parametrize("build", [deberta, modern_bert, neox])
def test_queries_are_those_of_the_heads(build):
    model = make(build)
    gp = attached_to_text(model)
    assert len(gp.modules) == 3
    assert all(site.heads == 2 for site in gp._sites)
    rows = {"input_ids": words(6, 7, 30), "attention_mask": torch.ones(6, 7, dtype=torch.long)}
    with torch.no_grad():
        logits = model(**rows).logits
    assert torch.equal(gp.predict(rows).label, logits.argmax(-1))


def attached_to_text(model):
    def rows(seed):
        x = {"input_ids": words(24, 7, seed), "attention_mask": torch.ones(24, 7, dtype=torch.long)}
        return x | {"labels": labelled(model, x)}

    gp = sgpa.attach(model, num_inducing=8).fit([rows(0), rows(1), rows(2)])
    return gp.calibrate([rows(10), rows(11)])


def test_queries_side_by_side_with_keys_are_told_apart():
    model = make(neox)
    site = find_attention(model)[1]
    seen = []
    handle = site.read_queries(lambda x, q, _: seen.append((x, q)))
    model(input_ids=words(3, 7))
    handle.remove()
    (x, q), layer = seen[0], site.module
    H, D = 2, 8
    expected = layer.query_key_value(x).view(3, 7, H, 3 * D)[..., :D]
    torch.testing.assert_close(q, expected)


class Odd(nn.Module):
    """Attention with a gate beside every query."""

    def __init__(self, query=32, output="o_proj"):
        super().__init__()
        self.num_heads = 2
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(16, n) for n in (query, 16, 16))
        setattr(self, output, nn.Linear(16, 16))


def test_widths_that_do_not_agree_are_not_attention():
    assert len(find_attention(nn.Sequential(Odd(16)))) == 1
    with pytest.raises(InputError, match="no attention found"):
        find_attention(nn.Sequential(Odd(32)))
    bigcode = transformers.GPTBigCodeConfig(
        n_embd=16, n_layer=2, n_head=4, n_positions=32, vocab_size=WORDS, num_labels=CLASSES, pad_token_id=0
    )
    with pytest.raises(InputError, match="no attention found"):
        find_attention(transformers.GPTBigCodeForSequenceClassification(bigcode))
    assert [site.heads for site in find_attention(make(gpt2))] == [2] * 3
    assert [site.heads for site in find_attention(make(vit))] == [2] * 3


class Named(nn.Module):
    """A classifier with one layer of attention whose maps have the given names."""

    def __init__(self, *names, heads="num_heads"):
        super().__init__()
        torch.manual_seed(3)
        self.names, self.embed = names, nn.Embedding(WORDS, 16)
        self.mix = nn.Module()
        setattr(self.mix, heads, 2)
        for name in names:
            setattr(self.mix, name, nn.Linear(16, 16))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = (getattr(self.mix, n)(x).unflatten(-1, (2, -1)).transpose(1, 2) for n in self.names[:3])
        o = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return self.head((x + getattr(self.mix, self.names[3])(o)).mean(1))


def test_the_map_of_the_queries_can_be_named_by_hand(tmp_path):
    """The same weights under names that are known give the same answers."""
    models = [Named("q_proj", "k_proj", "v_proj", "o_proj"), Named("mix_q", "mix_k", "mix_v", "o_proj")]
    x = words(40)
    y, gps = labelled(models[0], x), []
    with pytest.raises(InputError, match="name the linear maps of their queries"):
        sgpa.attach(models[1])
    for model, named in zip(models, (None, ["mix.mix_q"]), strict=True):
        gps.append(sgpa.attach(model.eval(), modules=named, num_inducing=8))
        gps[-1].fit([(x, y)]).calibrate([(x, y)])
    known, by_hand = (gp.predict(words(5, seed=1)) for gp in gps)
    torch.testing.assert_close(by_hand.probabilities, known.probabilities)
    torch.testing.assert_close(by_hand.novelty, known.novelty)
    gps[1].save_pretrained(tmp_path)
    again = sgpa.attach(models[1], tmp_path).predict(words(5, seed=1))
    torch.testing.assert_close(again.probabilities, known.probabilities)


@pytest.mark.parametrize(
    ("model", "name", "message"),
    [
        (Named("a", "b", "c", "o_proj"), "mix", "'mix' is a Module .allowed: the linear map of the queries"),
        (Named("a", "b", "c", "d"), "mix.a", "needs an integer num_heads .* with one of the names o_proj"),
        (Named("a", "b", "c", "o_proj", heads="parts"), "mix.a", "needs an integer num_heads"),
        (nn.Linear(4, 4), "", "'' is a Linear .allowed: the linear map of the queries"),
    ],
    ids=["no map", "no output", "no number of heads", "no owner"],
)
def test_what_cannot_be_the_map_of_the_queries(model, name, message):
    with pytest.raises(InputError, match=message):
        sgpa.attach(model, modules=[name])


def test_an_encoder_of_an_encoder_decoder_is_an_encoder():
    sizes = {"d_model": 16, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24}
    config = transformers.WhisperConfig(**sizes, num_mel_bins=4, max_source_positions=10, num_labels=CLASSES)
    assert len(sgpa.attach(transformers.WhisperForAudioClassification(config)).modules) == 2


def test_a_kl_without_gradients_is_not_trained_in_silence():
    layer, x = sgpa.MultiheadSgpa(8, 2, batch_first=True, num_global=3), torch.randn(4, 5, 8)
    with torch.no_grad():
        layer(x, x, x)
        assert math.isfinite(float(sgpa.total_kl(layer)))
    with pytest.raises(InputError, match="kept no gradient, so the KL would not be trained"):
        sgpa.total_kl(layer)
    assert math.isfinite(float(sgpa.total_kl(layer.eval())))
    layer.train().requires_grad_(False)
    layer(x, x, x)
    assert math.isfinite(float(sgpa.total_kl(layer)))
