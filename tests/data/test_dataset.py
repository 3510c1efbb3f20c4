import pytest
import torch

from sgpa.core.errors import ConfigError
from sgpa.data import Dataset
from sgpa.models import ModelConfig, PatchConfig, Transformer


def numbers(n=23, **options):
    return Dataset(torch.arange(n), torch.arange(n), **options)


def test_every_row_comes_once_in_an_order_fixed_by_the_seed():
    data = numbers()
    first, second, other = (torch.cat([b.targets for b in data.batches(5, seed)]) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert sorted(first.tolist()) == list(range(23))
    assert torch.equal(torch.cat([b.targets for b in data.batches(5)]), torch.arange(23))


def test_rows_of_similar_length_share_a_batch():
    lengths = torch.randint(1, 100, (1000,), generator=torch.Generator().manual_seed(0))
    data = numbers(1000, lengths=lengths)
    batches = [lengths[b.targets] for b in data.batches(10, 3)]
    assert sorted(torch.cat([b.targets for b in data.batches(10, 3)]).tolist()) == list(range(1000))
    assert max(int(x.max() - x.min()) for x in batches) < 10
    assert [len(x) for x in batches] == [10] * 100
    means = torch.stack([x.float().mean() for x in batches])
    assert not torch.equal(means, means.sort().values)  # batches are mixed, not from short to long


def test_augmentation_applies_to_shuffled_batches_only():
    data = numbers(augment=lambda x, g: x + torch.randint(100, 200, x.shape, generator=g))
    first, second = ([b.inputs for b in data.batches(5, 7)] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.cat(first).min() >= 100
    assert torch.cat([b.inputs for b in data.batches(5)]).max() < 23


def test_model_normalises_uint8_images():
    embedding = PatchConfig(image_size=8, channels=2, mean=(0.1, 0.2), std=(0.3, 0.4))
    model = Transformer(ModelConfig(embedding=embedding, depth=1, heads=2, width=8)).eval()
    pixels = torch.randint(0, 256, (3, 2, 8, 8), dtype=torch.uint8)
    by_hand = (pixels / 255 - torch.tensor([0.1, 0.2]).view(2, 1, 1)) / torch.tensor([0.3, 0.4]).view(2, 1, 1)
    assert torch.allclose(model(pixels).f, model(by_hand).f, atol=1e-6)
    with pytest.raises(ConfigError, match=r"mean=\(0.1,\).*std=\(\)"):
        PatchConfig(channels=2, mean=(0.1,))
