from dataclasses import replace

import numpy as np
import pytest
import torch

import sgpa
from sgpa.core.errors import ConfigError, InputError
from sgpa.core.inputs import Words
from sgpa.data import Dataset
from sgpa.methods import Mle
from sgpa.models import (
    DotProductConfig,
    KernelAttentionConfig,
    ModelConfig,
    SgpaConfig,
    Transformer,
    WordsConfig,
    from_json,
    to_json,
)
from sgpa.training.optim import OptimConfig
from sgpa.training.trainer import Trainer

ATTENTIONS = {
    "sdp": DotProductConfig(),
    "kernel": KernelAttentionConfig(),
    "orthogonal": SgpaConfig(num_global=3),
    "cheng-boots": SgpaConfig(form="cheng-boots", num_global=3),
    "standard": SgpaConfig(form="standard"),
}
WORDS = WordsConfig(vocabulary=11, features=5, layers=3, max_tokens=7, embedding_width=4)


def words():
    ids = torch.randint(1, 11, (3, 6))
    ids[1, 4:] = 0
    layers = torch.randn(3, 6, 3, 5)
    return Words(ids, layers * (ids != 0)[..., None, None])


def small(attention, **options):
    defaults = {"depth": 2, "heads": 2, "width": 8, "outputs": 4}
    return ModelConfig(embedding=WORDS, attention=attention, **(defaults | options))


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("depth", [1, 2])
def test_a_transformer_reads_words(tmp_path, attention, depth):
    model = Transformer(small(ATTENTIONS[attention], depth=depth))
    inputs = words()
    output = model(inputs)
    assert output.f.shape == (3, 4)
    (output.f.sum() + output.kl_g + output.kl_a).backward()
    assert not {n for n, p in model.named_parameters() if p.requires_grad and p.grad is None}
    assert model(inputs, samples=5).f.shape == (5, 3, 4)
    model.save_pretrained(tmp_path)
    again = sgpa.load(tmp_path)
    assert again.config == model.config
    assert torch.equal(model.predict(inputs).probabilities, again.predict(inputs).probabilities)
    assert from_json(to_json(model.config)) == model.config


def test_a_padded_sentence_equals_the_sentence_alone():
    model = Transformer(small(KernelAttentionConfig(), depth=1)).double().eval()
    inputs = words()
    alone = Words(inputs.ids[1:2, :4], inputs.layers[1:2, :4])
    assert torch.allclose(model(inputs).f[1], model(alone).f[0])
    wide = Words(
        torch.nn.functional.pad(inputs.ids, (0, 1)), torch.cat([inputs.layers, torch.randn(3, 1, 3, 5)], 1)
    )
    assert model.embedding(wide)[0].shape[1] == 6  # a column of padding is left out
    assert torch.allclose(model(wide).f, model(inputs).f)


def test_layers_are_mixed_with_softmax_shares_times_gamma():
    embedding = Transformer(small(KernelAttentionConfig())).embedding
    layers = words().layers
    assert torch.allclose(embedding.mixed(layers), layers.mean(2), atol=1e-6)
    with torch.no_grad():
        embedding.scores.copy_(torch.tensor([0.0, 1.0, 2.0]))
        embedding.gamma.fill_(3.0)
    shares = np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum()
    expected = sum(3 * float(s) * layers[:, :, i] for i, s in enumerate(shares))
    assert torch.allclose(embedding.mixed(layers), expected, atol=1e-5)
    assert torch.allclose(embedding.mixed(layers.half()), expected, atol=2e-2)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (torch.zeros(1, 4), "expected Words, got Tensor"),
        (replace(words(), ids=torch.full((3, 6), 11)), "leave the vocabulary"),
        (replace(words(), layers=torch.randn(3, 6, 2, 5)), r"shape \[3, 6, 3, 5\], got .* \[3, 6, 2, 5\]"),
        (replace(words(), layers=torch.full((3, 6, 3, 5), float("nan"))), "NaN or infinite"),
        (
            Words(torch.ones(1, 8, dtype=torch.int64), torch.randn(1, 8, 3, 5)),
            "8 words, but the model reads 7",
        ),
        (replace(words(), ids=torch.zeros(3, 6, dtype=torch.int64)), "all padding"),
    ],
)
def test_bad_words_are_refused_in_one_line(inputs, message):
    with pytest.raises(InputError, match=r"Words: ids=.* \(allowed: integer Tensor \[B, T\]\)"):
        replace(words(), ids=torch.zeros(3, 6))
    with pytest.raises((InputError, ArithmeticError), match=message) as caught:
        Transformer(small(KernelAttentionConfig())).predict(inputs)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"vocabulary=1.*features=0"):
        WordsConfig(vocabulary=1, features=0)


def test_a_data_set_holds_words():
    data = Dataset(words(), torch.arange(3), lengths=torch.tensor([6, 4, 6]))
    batches = [batch.to("cpu") for batch in data.batches(2, seed=0)]
    assert all(isinstance(batch.inputs, Words) for batch in batches)
    assert sorted(len(batch.inputs) for batch in batches) == [1, 2]


def test_a_data_set_of_words_trains():
    inputs = words()
    data = Dataset(
        Words(inputs.ids.repeat(8, 1), inputs.layers.repeat(8, 1, 1, 1).half()), torch.arange(24) % 3
    )
    model = Trainer(
        method=Mle(attention=KernelAttentionConfig()),
        config=small(KernelAttentionConfig(), outputs=3, dropout=0.0),
        optim=OptimConfig(epochs=30, batch_size=8, lr=1e-2, final_lr=1e-3),
        train=data,
        validation=data,
        seed=0,
    ).fit()
    assert (model.predict(inputs).label == torch.arange(3)).all()
