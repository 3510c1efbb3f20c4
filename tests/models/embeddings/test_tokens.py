"""Texts as token ids: groups of neighbouring tokens."""

import pytest
import torch

from sgpa.core.errors import ConfigError
from sgpa.models import KernelAttentionConfig, KernelConfig, TokenConfig, Transformer
from sgpa.models.embeddings.tokens import TokenEmbedding, grouped
from support.small_models import small

CONFIG = TokenConfig(vocabulary=30, max_tokens=10, embedding_width=8, group=4)


def test_groups_are_means_of_their_real_tokens():
    x = torch.arange(12.0).view(1, 6, 2)
    padding = torch.tensor([[False] * 5 + [True]])
    x[padding] = 0
    means, empty = grouped(x, padding, 2)
    assert means.tolist() == [[[1, 2], [5, 6], [8, 9]]]
    assert empty.tolist() == [[False, False, False]]
    assert grouped(x, padding, 5)[0].tolist() == [[[4, 5], [0, 0]]]
    assert grouped(x, padding, 5)[1].tolist() == [[False, True]]


def test_tokens_of_a_group_are_averaged_and_have_one_position():
    torch.manual_seed(0)
    embedding = TokenEmbedding(CONFIG, 8)
    ids = torch.tensor([[3, 4, 5, 6, 7, 0, 0, 0, 0], [3, 4, 5, 6, 7, 8, 9, 10, 11]])
    tokens, padding = embedding(ids)
    assert tokens.shape == (2, 3, 8)
    assert padding.tolist() == [[False, False, True], [False] * 3]
    words = embedding.tokens.weight
    torch.testing.assert_close(tokens[0, 0], words[3:7].mean(0) + embedding.positions[0])
    torch.testing.assert_close(tokens[0, 1], words[7] + embedding.positions[1])
    torch.testing.assert_close(tokens[1, 2], words[11] + embedding.positions[2])


def test_padding_of_a_batch_changes_no_prediction():
    torch.manual_seed(0)
    kernel = KernelConfig(locality=(1.0, 2.0))
    model = Transformer(small(CONFIG, KernelAttentionConfig(kernel=kernel), width=16, outputs=2)).eval()
    short, long = torch.randint(1, 30, (1, 5)), torch.randint(1, 30, (1, 10))
    filled = torch.cat([torch.nn.functional.pad(short, (0, 5)), long])
    torch.testing.assert_close(model(filled).f[:1], model(short).f)


def test_groups_of_one_are_the_tokens():
    torch.manual_seed(0)
    embedding = TokenEmbedding(TokenConfig(vocabulary=30, max_tokens=10, embedding_width=8), 8)
    ids = torch.tensor([[3, 4, 0]])
    x = embedding.tokens(ids)
    assert torch.equal(grouped(x, ids == 0, 1)[0], x)
    assert torch.equal(embedding(ids)[0], embedding.tokens(ids[:, :2]) + embedding.positions[:2])


def test_groups_larger_than_a_text_are_refused():
    with pytest.raises(ConfigError, match=r"group=11 \(allowed: 1 to 10\)"):
        TokenConfig(vocabulary=30, max_tokens=10, group=11)
