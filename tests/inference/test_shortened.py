"""Parts of sequences: contiguous, never longer than the sequence, and what novelty makes of them."""

import torch

from sgpa.core.inputs import Features, Words
from sgpa.inference.novelty import Novelty
from sgpa.inference.shortened import SHORTEST, lengths_of, shortened
from sgpa.models.pooled_features import PooledFeatures


def counting_rows(lengths, width=60):
    """Token ids 1, 2, 3, ... so that a part shows where it was taken from."""
    steps = torch.arange(1, width + 1)
    return torch.stack([steps.masked_fill(steps > n, 0) for n in lengths])


def test_a_part_is_contiguous_and_no_longer_than_its_sequence():
    whole = [60, 30, 5, 2, 1] * 20
    parts = shortened(counting_rows(whole))
    for length, part in zip(whole, parts, strict=True):
        kept = part[part > 0]
        assert min(length, SHORTEST) <= len(kept) <= length
        assert torch.equal(kept, torch.arange(int(kept[0]), int(kept[0]) + len(kept)))
        assert not part[len(kept) :].any()
    assert len({int(part[0]) for part in parts[::5]}) > 5


def test_lengths_of_parts_are_spread_evenly_on_a_logarithmic_scale():
    lengths = lengths_of(shortened(counting_rows([500] * 2000, 500)))
    assert abs(float((lengths < 50).double().mean()) - 0.5) < 0.05  # 50 = sqrt(5 * 500)


def test_features_and_words_are_cut_like_ids():
    ids = counting_rows([40, 17, 6])
    features = Features(ids.double().unsqueeze(-1), ids == 0)
    words = Words(ids, ids.float()[:, :, None, None])
    cut = shortened(ids)
    assert torch.equal(shortened(features).values[..., 0].masked_fill(cut == 0, 0).long(), cut)
    assert torch.equal(lengths_of(shortened(features)), lengths_of(cut))
    assert torch.equal(shortened(words).ids, cut)
    assert torch.equal(shortened(words).layers[..., 0, 0].masked_fill(cut == 0, 0).long(), cut)


def test_images_have_no_parts():
    assert shortened(torch.zeros(2, 3, 8, 8)) is None
    assert lengths_of(torch.zeros(2, 3, 8, 8)) is None


def test_short_sequences_are_compared_with_parts_and_long_ones_with_held_out_rows():
    torch.manual_seed(0)
    train, held_out = (PooledFeatures(x.unsqueeze(1), x) for x in torch.randn(2, 300, 4))
    far = torch.randn(200, 4) + 4
    novelty = Novelty.fit(train, None, held_out=held_out)
    by_length = novelty.with_parts(PooledFeatures(far.unsqueeze(1), far), torch.arange(5, 205) // 10 + 5)
    rows = PooledFeatures(far.unsqueeze(1), far)
    assert float(novelty(rows).mean()) > 0.95
    assert 0.4 < float(by_length(rows, torch.full((200,), 9)).mean()) < 0.6
    assert torch.equal(by_length(rows, torch.full((200,), 1000)), novelty(rows))
    saved = {name: value.float() for name, value in by_length.tensors().items()}
    again = Novelty.from_tensors(saved, depth=2)
    assert torch.allclose(
        again(rows, torch.full((200,), 9)), by_length(rows, torch.full((200,), 9)), atol=0.02
    )
