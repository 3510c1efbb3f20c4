"""Models that are compiled, inside other modules, or that order rows and heads in another way."""

import pytest
import torch
import transformers
from torch import nn

import sgpa
from sgpa.core.errors import InputError
from sgpa.posthoc.find import find_attention
from support.tiny_transformers import CLASSES, WORDS, attached, batch, bert, make, qwen2, vit

MOVED = "labels are input_ids moved by one token"


def compile_model(model):
    model.compile(backend="eager")


def compile_block(model):
    model.bert.encoder.layer[1].compile(backend="eager")


def wrap_block(model):
    layers = model.bert.encoder.layer
    layers[1] = torch.compile(layers[1], backend="eager")


def compile_forward(model):
    model.forward = torch.compile(model.forward, backend="eager")


@pytest.mark.parametrize("change", [compile_model, compile_block, wrap_block, compile_forward])
def test_compiled_parts_are_refused(change):
    model = make(bert)
    gp = attached(model)
    rows = batch(model, 4, labels=False)
    change(model)
    with pytest.raises(InputError, match=r"predict: .* was compiled and calls no hooks"):
        gp.predict(rows)
    with pytest.raises(InputError, match=r"attach: .* was compiled and calls no hooks; attach to the model"):
        sgpa.attach(model)


def test_calibrate_needs_gradients():
    model = make(bert)
    gp = sgpa.attach(model, num_inducing=8).fit([batch(model, 30)])
    with (
        torch.inference_mode(),
        pytest.raises(InputError, match=r"calibrate: .*outside torch\.inference_mode"),
    ):
        gp.calibrate([batch(model, 30, 1)])


class Wrapped(nn.Module):
    """What libraries for training put around a model."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, **options):
        return self.module(**options)


class Scored(Wrapped):
    """A decoder whose tokens have classes of their own."""

    def __init__(self, module):
        super().__init__(module)
        self.score = nn.Linear(16, CLASSES)

    def forward(self, **options):
        return self.score(self.module.model(**options).last_hidden_state)


def test_a_language_model_inside_another_module_answers_for_the_next_token():
    model = make(qwen2)
    loaders = [batch(model, 24, seed) for seed in range(3)], [batch(model, 24, seed) for seed in (10, 11)]
    inner, outer = (
        sgpa.attach(m, num_inducing=8).fit(loaders[0]).calibrate(loaders[1]) for m in (model, Wrapped(model))
    )
    assert torch.equal(inner._adapter.scales.data, outer._adapter.scales.data)
    assert outer._adapter.shift
    model = Scored(model)
    rows = [
        x | {"labels": (x["labels"] % CLASSES).masked_fill(x["labels"] < 0, -100)}
        for x in loaders[0] + loaders[1]
    ]
    assert not sgpa.attach(model, num_inducing=8).fit(rows[:3]).calibrate(rows[3:])._adapter.shift


def test_labels_that_are_moved_already_are_refused():
    model = make(qwen2)
    ids = torch.randint(1, WORDS, (40, 9))
    gp = sgpa.attach(model, num_inducing=8).fit([{"input_ids": ids}])
    with pytest.raises(InputError, match=MOVED):
        gp.calibrate([(ids[:, :-1], ids[:, 1:])])
    same = ids[:, :1].expand(40, 9)  # one word again and again is both
    gp.calibrate([{"input_ids": ids, "labels": ids}, {"input_ids": same, "labels": same}])


class Prompted(nn.Module):
    """Two tokens of its own before those of a row."""

    def __init__(self):
        super().__init__()
        self.model, self.prompt = bert(), nn.Parameter(torch.randn(1, 2, 16))

    def forward(self, input_ids, attention_mask):
        x = self.model.bert.embeddings.word_embeddings(input_ids)
        x = torch.cat([self.prompt.expand(len(x), 2, 16), x], 1)
        mask = torch.cat([attention_mask.new_ones(len(x), 2), attention_mask], 1)
        return self.model(inputs_embeds=x, attention_mask=mask)


def test_a_mask_that_is_too_short_for_the_tokens_is_named(caplog):
    rows = batch(make(bert), 30, labels=False)
    sgpa.attach(make(Prompted), num_inducing=8).fit([rows])
    assert "the attention mask has 7 columns for 9 tokens of attention" in caplog.text


class Lora(nn.Linear):
    """A map with an adapter that can be switched, as in PEFT."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.extra = nn.Linear(inputs, outputs)
        self.active_adapters, self.disable_adapters = ["default"], False

    def forward(self, x):
        return super().forward(x) + (0 if self.disable_adapters else self.extra(x))


def test_another_adapter_than_at_fit_is_noticed():
    model = bert()
    layer = model.bert.encoder.layer[0].attention.self.query = Lora(16, 16)
    model = make(lambda: model)
    gp, rows = attached(model), batch(model, 4, labels=False)
    before = gp.predict(rows)
    layer.disable_adapters = True
    with pytest.raises(InputError, match="other PEFT adapters are on than at fit"):
        gp.predict(rows)
    layer.disable_adapters = False
    assert torch.equal(gp.predict(rows).probabilities, before.probabilities)


def longformer():
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 2}
    text = {"vocab_size": WORDS, "num_labels": CLASSES, "pad_token_id": 0, "max_position_embeddings": 32}
    config = transformers.LongformerConfig(**sizes, **text, attention_window=4)
    return transformers.LongformerForSequenceClassification(config)


@pytest.mark.parametrize("rows", [4, 8, 12])
def test_tokens_before_rows_are_refused_with_every_number_of_rows(rows):
    model = make(longformer)
    with pytest.raises(InputError, match=r"layer\.0\.attention\.self.* \(allowed: \[rows, tokens, width\]\)"):
        sgpa.attach(model, num_inducing=8).fit([torch.randint(1, WORDS, (rows, 8)) for _ in range(4)])


@pytest.mark.parametrize("build", [bert, vit])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_of_other_models_are_at_their_place(build, dtype):
    model = make(build).to(dtype)
    rows = batch(model.float(), 40, labels=False)
    if "pixel_values" in rows:
        rows = {"pixel_values": rows["pixel_values"].to(dtype)}
    assert sgpa.attach(model.to(dtype), num_inducing=8).fit([rows]).modules


class Packed(nn.Module):
    """One map for queries, keys and values of each of four heads, side by side."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.embed, self.head = nn.Embedding(WORDS, 16), nn.Linear(16, CLASSES)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, ids):
        q, k, v = self.qkv(self.embed(ids)).unflatten(-1, (4, 3, 4)).transpose(1, 2).unbind(3)
        o = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.head(self.proj(o.transpose(1, 2).flatten(-2)).mean(1))


def test_queries_at_other_places_of_one_map_are_refused():
    model = nn.Sequential(make(Packed))
    with pytest.raises(InputError, match=r"0: the first third of what Linear returns is not the queries"):
        sgpa.attach(model, num_inducing=8).fit([torch.randint(1, WORDS, (30, 7))])


def test_attention_that_pools_its_queries_is_refused_or_left_out():
    config = transformers.HieraConfig(
        embed_dim=16, image_size=[32, 32], patch_size=[3, 3], patch_stride=[2, 2], patch_padding=[1, 1],
        depths=[1, 2], num_heads=[2, 4], num_query_pool=1, masked_unit_size=[4, 4],
        masked_unit_attention=[True, False], num_labels=CLASSES,
    )  # fmt: skip
    model = make(lambda: transformers.HieraForImageClassification(config))
    rows = [{"pixel_values": torch.randn(20, 3, 32, 32)}]
    with pytest.raises(InputError, match=r"stages\.1\.layers\.0\.attn gives 128 outputs for 512 queries"):
        sgpa.attach(model, num_inducing=8).fit(rows)
    name = "hiera.encoder.stages.1.layers.1.attn"
    assert sgpa.attach(model, num_inducing=8, modules=[name]).fit(rows).modules == (name,)


def test_queries_of_gpt_big_code_are_those_of_its_heads():
    config = transformers.GPTBigCodeConfig(
        n_embd=16, n_layer=2, n_head=4, n_positions=32, vocab_size=WORDS, num_labels=CLASSES, pad_token_id=0,
        multi_query=False, attn_implementation="eager",
    )  # fmt: skip
    model = make(lambda: transformers.GPTBigCodeForSequenceClassification(config))
    site = find_attention(model)[0]
    seen = []
    handle = site.read_queries(lambda x, q, _: seen.append((x, q)))
    model(input_ids=torch.randint(1, WORDS, (3, 7)))
    handle.remove()
    x, q = seen[0]
    expected = site.module.c_attn(x).view(3, 7, 4, 12)[..., :4]
    torch.testing.assert_close(q, expected)
