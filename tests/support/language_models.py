"""Tiny language models."""

from dataclasses import replace

import torch

from sgpa.data.language_model.model import ElmoConfig, ElmoModel
from sgpa.data.language_model.next_word import NextWord

TINY = ElmoConfig(filters=((1, 4), (2, 5), (3, 6)), character_width=4, max_characters=12, width=6, cell=8)
WORDS = ["<unk>", "<S>", "</S>", "the", "cat", "sat"]


def elmo(**options):
    """A random model without a softmax, in float64."""
    torch.manual_seed(0)
    return ElmoModel(replace(TINY, **options)).double().eval()


def elmo_with_words(**options):
    """The same model with a softmax over six words."""
    torch.manual_seed(1)
    head = NextWord(TINY.width, WORDS)
    head.log_frequency.copy_(torch.rand(6).log_softmax(0))
    torch.manual_seed(0)
    return ElmoModel(replace(TINY, **options), head).double().eval()
