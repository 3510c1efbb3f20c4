"""The same contract for every supported architecture: predictions stay, hooks go, padding does not count."""

import pytest
import torch
from torch import nn

import sgpa
from sgpa.posthoc.scales import Scales
from support.tiny_transformers import (
    ARCHITECTURES,
    TorchEncoder,
    attached,
    batch,
    logits,
    make,
    time_major_encoder,
)


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda build: build.__name__)
def pair(request):
    model = make(request.param)
    return model, attached(model)


def test_all_layers_are_found(pair):
    _, gp = pair
    assert len(gp.modules) == 3


def test_argmax_is_that_of_the_model(pair):
    model, gp = pair
    inputs = batch(model, 20, seed=99, labels=False)
    answer = gp.predict(inputs)
    expected = logits(model, inputs)
    torch.testing.assert_close(answer.logits, expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(answer.label, expected.argmax(-1))
    assert torch.equal(answer.probabilities.argmax(-1), expected.argmax(-1))


def test_scale_zero_gives_the_probabilities_of_the_model(pair):
    model, gp = pair
    inputs = batch(model, 20, seed=99, labels=False)
    before = gp._adapter
    object.__setattr__(gp, "_adapter", _with_scales(before, Scales.none(3)))
    try:
        answer = gp.predict(inputs)
    finally:
        object.__setattr__(gp, "_adapter", before)
    torch.testing.assert_close(answer.probabilities, logits(model, inputs).softmax(-1), rtol=1e-5, atol=1e-5)
    assert (answer.mutual_information == 0).all()


def test_variance_shrinks_the_confidence_only(pair):
    model, gp = pair
    inputs = batch(model, 20, seed=99, labels=False)
    before = gp._adapter
    small, large = (
        _with_scales(before, Scales(torch.tensor(1.0), s / _mean_carried(gp, inputs))) for s in (0.1, 10.0)
    )
    answers = []
    for adapter in (small, large):
        object.__setattr__(gp, "_adapter", adapter)
        answers.append(gp.predict(inputs))
    object.__setattr__(gp, "_adapter", before)
    assert (answers[1].probabilities.amax(-1) < answers[0].probabilities.amax(-1)).all()
    assert (answers[1].mutual_information > answers[0].mutual_information).all()


def test_answers_are_in_range(pair):
    model, gp = pair
    answer = gp.predict(batch(model, 20, seed=99))
    for value in (answer.novelty, answer.token_variance):
        assert ((value >= 0) & (value <= 1)).all()
    assert (answer.variance >= 0).all()
    assert answer.token_variance.shape[0] == 20


def test_no_hook_stays_on_the_model(pair):
    model, gp = pair
    inputs = batch(model, 4, seed=5, labels=False)
    before = logits(model, inputs)
    gp.predict(inputs, samples=2)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch.equal(logits(model, inputs), before)
    assert torch.backends.mha.get_fastpath_enabled()


def test_samples_are_seeded_and_centred(pair):
    model, gp = pair
    inputs = batch(model, 6, seed=7, labels=False)
    once, again = (gp.predict(inputs, samples=3, seed=1) for _ in range(2))
    assert torch.equal(once.probabilities, again.probabilities)
    torch.testing.assert_close(once.probabilities.sum(-1), torch.ones(once.probabilities.shape[:-1]))


def test_noise_reaches_the_outputs(pair):
    model, gp = pair
    inputs = batch(model, 6, seed=7, labels=False)
    before = gp._adapter
    object.__setattr__(gp, "_adapter", _with_scales(before, Scales(torch.tensor(1.0), torch.ones(4))))
    try:
        one, other = (gp.predict(inputs, samples=1, seed=seed).probabilities for seed in (1, 2))
    finally:
        object.__setattr__(gp, "_adapter", before)
    assert (one - other).abs().amax() > 1e-3


def test_every_layer_has_a_gain(pair):
    _, gp = pair
    assert all((each.gain > 0).all() for each in gp._adapter.gps[:2])


def test_adapter_round_trip(pair, tmp_path):
    model, gp = pair
    inputs = batch(model, 6, seed=8, labels=False)
    again = sgpa.attach(model, gp.save_pretrained(tmp_path))
    first, second = gp.predict(inputs), again.predict(inputs)
    torch.testing.assert_close(first.probabilities, second.probabilities, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(first.token_variance, second.token_variance)
    torch.testing.assert_close(first.novelty, second.novelty, rtol=0, atol=0.03)


@pytest.mark.parametrize("build", [TorchEncoder, time_major_encoder])
def test_fused_path_of_torch_does_not_bypass_the_hooks(build, monkeypatch):
    model = make(build)
    gp = attached(model)
    called = []
    fused = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(
        torch, "_transformer_encoder_layer_fwd", lambda *a, **k: called.append(1) or fused(*a, **k)
    )
    gp.predict(batch(model, 4, labels=False))
    assert not called
    if build is TorchEncoder:
        with torch.inference_mode():
            model(batch(model, 4, labels=False))
        assert called  # the model alone still takes its fast path


def test_padding_does_not_count():
    model = make(ARCHITECTURES[0])
    gp = attached(model)
    inputs = batch(model, 6, seed=3, labels=False)
    longer = {key: nn.functional.pad(value, (0, 3)) for key, value in inputs.items()}
    first, second = gp.predict(inputs), gp.predict(longer)
    torch.testing.assert_close(first.probabilities, second.probabilities, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.variance, second.variance, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(first.novelty, second.novelty, rtol=0, atol=0.03)


def _with_scales(adapter, scales):
    from dataclasses import replace

    return replace(adapter, scales=scales)


def _mean_carried(gp, inputs):
    from sgpa.posthoc.calls import read_batch
    from sgpa.posthoc.rows import read_rows

    with torch.no_grad():
        seen = gp._observe(gp._model, read_batch(inputs, torch.device("cpu")))
        placed = gp._adapter.on(seen.logits.device)
        return read_rows(seen, placed.gps, placed.novelty.views).carried.flatten(0, -2).mean(0)
