"""Passes with noise skip earlier blocks, and give what whole passes give."""

import pytest
import torch
from torch import nn

from sgpa.posthoc.calls import read_batch
from sgpa.posthoc.replay import Tape, repeated
from support.tiny_transformers import ARCHITECTURES, attached, batch, bert, llama_classifier, make, vit

REPLAYED = {"bert", "roberta", "distilbert", "vit", "deit", "llama_classifier", "qwen2", "gpt2"}
REPLAYED |= {"TorchEncoder"}  # others run whole passes
FIRST_TOKEN = {"bert", "roberta", "distilbert", "vit", "deit"}  # what they answer from
LAST_TWO = torch.tensor([0.0, 0.3, 0.5, 0.0])  # σ² of three layers and the head


def drawn(gp, inputs, replay, variance=LAST_TWO, samples=3):
    model = gp._attached("test")
    call = read_batch(inputs, torch.device("cpu"))
    with torch.no_grad():
        return gp._draw(model, call, variance, samples=samples, seed=4, replay=replay)


@pytest.mark.parametrize("build", ARCHITECTURES, ids=lambda build: build.__name__)
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_replays_are_whole_passes_with_the_same_noise(build, rows):
    model = make(build)
    gp = attached(model)
    inputs = batch(model, rows, seed=3, labels=False)
    seen, whole = drawn(gp, inputs, replay=False)
    again, short = drawn(gp, inputs, replay=True)
    torch.testing.assert_close(again.logits, seen.logits)
    torch.testing.assert_close(short, whole, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(whole[0], whole[1], atol=1e-3)
    assert gp._sampler.replays.get(1, False) == (build.__name__ in REPLAYED)
    assert gp._sampler.first_tokens.get(1, False) == (build.__name__ in FIRST_TOKEN)


def test_earlier_blocks_and_the_first_attention_run_once():
    model = make(bert)
    gp = attached(model)
    inputs = batch(model, 6, labels=False)
    drawn(gp, inputs, replay=True)  # the first time is compared with a whole pass
    calls = []
    layers = model.bert.encoder.layer
    inner = [*(layer.intermediate for layer in layers), *(layer.attention.self.query for layer in layers)]
    for i, module in enumerate(inner):
        module.register_forward_hook(lambda *_, i=i: calls.append(i))
    drawn(gp, inputs, replay=True, samples=3)
    counts = [calls.count(i) for i in range(6)]
    assert counts == [1, 2, 2, 1, 1, 2]  # three samples of six rows run together


def test_the_last_block_reads_the_first_token_alone_where_the_model_does():
    model = make(bert)
    gp = attached(model)
    inputs = batch(model, 6, labels=False)
    drawn(gp, inputs, replay=True)
    shapes, projected = [], []
    for layer in model.bert.encoder.layer:
        layer.intermediate.dense.register_forward_hook(lambda _, __, out: shapes.append(list(out.shape)))
        dense = layer.attention.output.dense
        dense.register_forward_hook(lambda _, __, out: projected.append(list(out.shape[:2])))
    drawn(gp, inputs, replay=True)
    assert shapes[3:] == [[18, 7, 24], [18, 1, 24]]  # after the pass without noise
    assert projected[3:] == [[18, 7], [18, 1]]


def test_rows_of_one_token_do_not_tell_which_token_is_read():
    model = make(llama_classifier)
    gp = attached(model)
    for tokens in (1, 5):
        inputs = {"input_ids": torch.arange(1, 1 + 3 * tokens).view(3, tokens)}
        _, whole = drawn(gp, inputs, replay=False)
        torch.testing.assert_close(drawn(gp, inputs, replay=True)[1], whole, rtol=1e-4, atol=1e-4)


def test_without_noise_nothing_runs_again():
    model = make(vit)
    gp = attached(model)
    seen, draws = drawn(gp, batch(model, 6, labels=False), replay=True, variance=torch.zeros(4))
    assert draws.shape == (3, 6, 3)
    torch.testing.assert_close(draws[2], seen.logits)


def test_a_replay_that_changes_the_outputs_is_not_used():
    model = make(bert)
    gp = attached(model)
    model.bert.encoder.layer[0].register_forward_hook(lambda _, __, result: result.roll(1, -1))
    inputs = batch(model, 6, labels=False)
    _, whole = drawn(gp, inputs, replay=False)
    _, short = drawn(gp, inputs, replay=True)
    assert gp._sampler.replays == {1: False}
    torch.testing.assert_close(short, whole)


def test_after_an_error_the_model_is_as_it_was():
    model = make(vit)
    sites = attached(model)._sites
    tape = Tape.of(model, sites[2], sites[2])
    tape.results = dict.fromkeys([*tape.blocks, tape.site.module], (torch.zeros(1),))
    with pytest.raises(TypeError, match="missing"), tape.replaying(2):
        model.vit.layernorm()
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_attention_outside_a_list_of_blocks_has_no_tape():
    model = nn.Sequential(nn.Linear(4, 4))
    site = type("Site", (), {"name": "0", "module": model[0]})
    assert Tape.of(model, site, site) is None


def test_only_rows_are_repeated():
    x, mask = torch.arange(6).view(3, 2), torch.ones(1, 2)
    made, same, none = repeated((x, mask, None), 3, 2)
    assert made.tolist() == [*x.tolist(), *x.tolist()]
    assert same is mask
    assert none is None
