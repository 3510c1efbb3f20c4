"""Rows that are made unfamiliar, the weights that follow from them, and the GP of what the head reads."""

import pytest
import torch

import sgpa
from sgpa.core.errors import InputError
from sgpa.posthoc.calls import Call
from sgpa.posthoc.feature_gp import FeatureGp
from sgpa.posthoc.unfamiliar import made_unfamiliar
from sgpa.posthoc.view_weights import fit_weights
from support.tiny_transformers import attached, batch, bert, make, vit


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_special_tokens_and_padding_stay_as_they_are():
    ids = torch.arange(1, 31).view(3, 10)
    padding = torch.zeros(3, 10, dtype=torch.bool)
    padding[1, 7:] = True
    mask = (~padding).long()
    made = made_unfamiliar(Call(options={"input_ids": ids, "attention_mask": mask}, padding=padding))
    assert len(made) == 5
    for call in made:
        changed = call.options["input_ids"]
        assert torch.equal(call.options["attention_mask"], mask)
        assert torch.equal(changed[:, 0], ids[:, 0])
        assert changed[0, 9] == ids[0, 9]
        assert torch.equal(changed[1, 6:], ids[1, 6:])
        assert not torch.equal(changed, ids)
    assert all(len(row[1:-1].unique()) == 1 for row in made[4].options["input_ids"][[0, 2]])  # one word each
    backwards = made[2].options["input_ids"]
    assert backwards[0].tolist() == [1, 9, 8, 7, 6, 5, 4, 3, 2, 10]
    assert backwards[1].tolist() == [11, 16, 15, 14, 13, 12, 17, 18, 19, 20]


def test_images_and_sequences_change_and_keep_their_shape():
    for x in (normal(4, 3, 8, 8), normal(4, 5, 6)):
        made = made_unfamiliar(Call((x,)))
        assert len(made) >= 3
        for call in made:
            assert call.args[0].shape == x.shape
            assert not torch.allclose(call.args[0], x)
    tiles = made_unfamiliar(Call((normal(2, 3, 8, 8),)))[-1].args[0]
    torch.testing.assert_close(tiles.sort().values.sum(), normal(2, 3, 8, 8).sum())


def test_other_inputs_are_left_alone():
    assert made_unfamiliar(Call((torch.zeros(4, 3),))) == []
    assert made_unfamiliar(Call((torch.zeros(1, 3, 8, 8),))) == []


def test_weights_listen_to_what_changes_and_ignore_what_falls():
    x = normal(400, 3)
    weights = fit_weights(x, [x + torch.tensor([3.0, 0.0, -3.0]), x + torch.tensor([2.0, 0.0, 0.0])])
    assert weights[0] > 5 * weights[1]
    assert weights[2] == 0
    assert fit_weights(x, []) is None
    assert fit_weights(x, [x - 2]) is None


def test_the_gp_of_features_knows_training_rows():
    x = normal(400, 6) * torch.tensor([1.0, 1, 1, 5, 5, 0.01])
    gp = FeatureGp.fit(x)
    near, far = gp.variance(x[:50]), gp.variance(x[:50] + 50)
    assert near.max() < 0.9
    assert (far > 0.99).all()
    small = x[:50].clone()
    small[:, 5] += 5  # far in a direction in which training rows hardly differ
    assert (gp.variance(small) > near).all()
    again = FeatureGp.from_tensors(gp.tensors("gp.head"), "gp.head", "adapter")
    torch.testing.assert_close(again.variance(x), gp.variance(x))


@pytest.mark.parametrize("build", [bert, vit])
def test_given_kinds_choose_what_novelty_listens_to(build):
    model = make(build)
    rows = [batch(model, 60, seed) for seed in range(3)]
    gp = sgpa.attach(model, num_inducing=8).fit(rows[:1])
    strange = {key: value for key, value in batch(model, 60, 9).items() if key != "labels"}
    key = next(iter(strange))
    strange[key] = torch.full_like(strange[key], 1) if key == "input_ids" else 4 * strange[key]
    gp.calibrate(rows[1:2], unfamiliar={"constant": [strange]})
    given = gp._adapter.novelty.views.names, gp._adapter.novelty.weights.tolist()
    assert gp.predict(strange).novelty.mean() > 0.75
    gp.calibrate(rows[1:2])
    assert (gp._adapter.novelty.views.names, gp._adapter.novelty.weights.tolist()) != given


def test_unfamiliar_rows_of_another_kind_are_refused():
    gp = attached(make(bert))
    rows = [batch(gp._model, 30, 0)]
    gp.fit(rows)
    with pytest.raises(InputError, match="BertForSequenceClassification does not take this batch"):
        gp.calibrate(rows, unfamiliar={"images": [{"pixel_values": torch.zeros(2, 3, 8, 8)}]})


def test_images_of_bytes_stay_bytes():
    x = torch.randint(0, 256, (4, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    made = made_unfamiliar(Call((x,)))
    assert len(made) == 5
    for call in made:
        changed = call.args[0]
        assert changed.dtype == torch.uint8
        assert changed.shape == x.shape
        assert not torch.equal(changed, x)
    mean = (0.5 * (x.float() + x.roll(1, 0).float())).round()
    assert torch.equal(made[0].args[0].float(), mean)
