"""Splits of rows: disjoint, complete, and classes keep their shares."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sgpa.data.split import split_rows


@given(st.lists(st.integers(0, 4), min_size=4, max_size=60), st.floats(0.05, 0.6), st.integers(0, 9))
def test_stratified_parts_are_disjoint_complete_and_near_their_shares(labels, share, seed):
    targets = torch.tensor(labels)
    held_out = round(share * len(labels))
    kept, out = split_rows(targets, held_out, seed)
    assert len(out) == held_out
    assert sorted([*kept.tolist(), *out.tolist()]) == list(range(len(labels)))
    count, parts = targets.bincount(minlength=5), targets[out].bincount(minlength=5)
    expected = held_out * count / len(labels)
    spare = (count - 1).clamp_min(0)
    if held_out <= int(spare.sum()):  # then every class keeps a row
        assert (parts <= spare).all()
    elif (count > 1).all():
        assert ((parts - expected).abs() <= 1 + 1e-6).all()


def test_a_rare_class_has_its_share_in_every_split():
    targets = torch.tensor([0] * 90 + [1] * 10)
    for seed in range(20):
        _, out = split_rows(targets, 20, seed)
        assert int(targets[out].sum()) == 2


def test_a_single_row_of_a_class_is_kept():
    targets = torch.tensor([0] * 50 + [1])
    assert all(1 in targets[split_rows(targets, 10, seed)[0]] for seed in range(20))


@pytest.mark.parametrize("stratified", [True, False])
def test_values_and_random_splits_are_the_first_of_one_permutation(stratified):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(3))
    values = torch.rand(40) if stratified else torch.zeros(40).long()
    kept, out = split_rows(values, 6, 3, stratified=stratified)
    assert torch.equal(out, order[:6])
    assert torch.equal(kept, order[6:])
