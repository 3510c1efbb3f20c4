"""Decoders: a token's uncertainty depends on earlier tokens alone, and caches change nothing."""

import pytest
import torch
import transformers

from support.tiny_transformers import WORDS, attached, batch, llama_classifier, make, qwen2

FIELDS = ("probabilities", "entropy", "variance", "novelty", "token_variance")


@pytest.fixture(scope="module")
def decoder():
    model = make(qwen2)
    return attached(model)


def ids(rows=4, tokens=9, seed=3):
    return torch.randint(1, WORDS, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def test_every_token_has_an_answer(decoder):
    answer = decoder.predict({"input_ids": ids()})
    assert answer.probabilities.shape == (4, 9, WORDS)
    assert answer.novelty.shape == answer.variance.shape == answer.token_variance.shape == (4, 9)


def test_later_tokens_do_not_matter(decoder):
    x = ids()
    changed = x.clone()
    changed[:, 5:] = ids(seed=4)[:, 5:]
    first, second = decoder.predict({"input_ids": x}), decoder.predict({"input_ids": changed})
    for name in FIELDS:
        a, b = getattr(first, name), getattr(second, name)
        torch.testing.assert_close(a[:, :5], b[:, :5], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(a[:, 5:], b[:, 5:], atol=1e-3), name


def test_with_a_key_value_cache_answers_are_the_same(decoder):
    x = ids()
    whole = decoder.predict({"input_ids": x})
    cache = transformers.DynamicCache()
    parts = [
        decoder.predict(
            {
                "input_ids": x[:, :4],
                "attention_mask": torch.ones(4, 4).long(),
                "past_key_values": cache,
                "use_cache": True,
            }
        )
    ]
    for t in range(4, 9):
        mask = torch.ones(4, t + 1).long()
        step = {
            "input_ids": x[:, t : t + 1],
            "attention_mask": mask,
            "past_key_values": cache,
            "use_cache": True,
        }
        parts.append(decoder.predict(step))
    for name in FIELDS:
        joined = torch.cat([getattr(part, name) for part in parts], 1)
        tolerance = 0.03 if name == "novelty" else 1e-4  # novelty moves in steps of 1 / held-out rows
        torch.testing.assert_close(joined, getattr(whole, name), rtol=1e-3, atol=tolerance)


def test_padding_of_targets_is_ignored(decoder):
    rows = batch(decoder._model, 8, seed=20)
    assert (rows["labels"] == -100).any()
    assert decoder._adapter.shift


def test_generation_is_not_changed(decoder):
    model = decoder._model
    x = ids(1, 4)
    options = {"max_new_tokens": 5, "do_sample": False, "attention_mask": torch.ones_like(x)}
    before = model.generate(x, **options)
    decoder.predict({"input_ids": before})
    assert torch.equal(model.generate(x, **options), before)


def test_generated_tokens_are_the_models_own_with_the_answers_of_a_whole_pass(decoder):
    x = ids(2, 4)
    steps = list(decoder.generate({"input_ids": x}, max_new_tokens=5))
    options = {
        "max_new_tokens": 5,
        "min_new_tokens": 5,
        "do_sample": False,
        "attention_mask": torch.ones_like(x),
    }
    expected = decoder._model.generate(x, **options)
    assert torch.equal(torch.stack([step.token for step in steps], 1), expected[:, 4:])
    whole = decoder.predict({"input_ids": expected})
    for name, tolerance in (("entropy", 1e-4), ("novelty", 0.03)):
        told = torch.stack([getattr(step, name) for step in steps], 1)
        torch.testing.assert_close(told, getattr(whole, name)[:, 3:-1], rtol=1e-3, atol=tolerance)


def test_sampled_tokens_follow_the_seed(decoder):
    x = ids(2, 4)

    def tokens(seed):
        steps = decoder.generate({"input_ids": x}, max_new_tokens=8, sample=True, seed=seed)
        return torch.stack([step.token for step in steps])

    assert torch.equal(tokens(1), tokens(1))
    assert not torch.equal(tokens(1), tokens(2))


def test_generation_of_other_prompts_and_models_is_refused(decoder):
    with pytest.raises(ValueError, match=r"generate: the prompt needs input_ids \[B, T\]"):
        decoder.generate({"pixel_values": torch.zeros(1, 3)})
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 1, 1, 1]]).expand(4, 9)
    with pytest.raises(ValueError, match="generate: the prompts differ in length"):
        decoder.generate({"input_ids": ids(), "attention_mask": mask})
    with pytest.raises(ValueError, match="max_new_tokens=0"):
        decoder.generate({"input_ids": ids()}, max_new_tokens=0)
    with pytest.raises(ValueError, match="generate: the model does not answer for the next token"):
        attached(make(llama_classifier)).generate({"input_ids": ids()})


def test_classifier_on_a_decoder_reads_the_token_that_answers():
    model = make(llama_classifier)
    gp = attached(model)
    inputs = batch(model, 6, seed=4, labels=False)
    from sgpa.posthoc.calls import read_batch

    with torch.no_grad():
        seen = gp._observe(model, read_batch(inputs, torch.device("cpu")))
        torch.testing.assert_close(model.score(seen.head), seen.logits)


def test_samples_with_a_cache_are_refused(decoder):
    batch_ = {"input_ids": ids()[:, :2], "past_key_values": transformers.DynamicCache(), "use_cache": True}
    with pytest.raises(
        ValueError, match=r"samples=3 with a key-value cache; allowed: samples=0, or no cache"
    ):
        decoder.predict(batch_, samples=3)
