"""Rows that are no longer what the model was trained for, made from test rows: row i from row i.

Texts: words in random order, half of the words replaced by words of other rows, the beginning of one text
with the end of another, letters of words in random order. Images: noise, blur and lost contrast at the
highest severity of `sgpa.data.corruptions` (blur grows with the size), sixteen tiles in random order, plain
colours.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from sgpa.data.corruptions import corrupt
from sgpa.data.corruptions.filters import gaussian
from sgpa.posthoc import unfamiliar

BLUR = 1 / 16  # standard deviation, as a share of the side
MIN_PIXELS = 8  # of `corrupt`

Perturbation = Callable[[Any, int], Any]  # rows, seed -> changed rows


def perturbations(items: Any) -> dict[str, Perturbation]:
    """Name -> what makes changed rows; those of texts or of images."""
    if not isinstance(items, Tensor):
        return {
            "shuffled words": shuffled_words,
            "replaced words": replaced_words,
            "joined halves": joined_halves,
            "shuffled letters": shuffled_letters,
        }
    changes: dict[str, Perturbation] = {"shuffled tiles": shuffled_tiles, "plain colours": plain_colours}
    if items.shape[-1] >= MIN_PIXELS:
        changes = {"noise": noise, "blur": blur, "low contrast": low_contrast} | changes
    return changes


def shuffled_words(texts: Sequence[str], seed: int) -> list[str]:
    """The same words in random order.

    >>> sorted(shuffled_words(["one two three"], 0)[0].split())
    ['one', 'three', 'two']
    """
    draw = random.Random(seed)
    return [" ".join(_shuffled(text.split(), draw)) for text in texts]


def replaced_words(texts: Sequence[str], seed: int) -> list[str]:
    """Half of the words of each text replaced by words of all texts, each with its frequency there."""
    draw = random.Random(seed)
    pool = [word for text in texts for word in text.split()]
    changed = []
    for text in texts:
        words = text.split()
        for i in draw.sample(range(len(words)), -(-len(words) // 2)):
            words[i] = draw.choice(pool)
        changed.append(" ".join(words))
    return changed


def joined_halves(texts: Sequence[str], seed: int) -> list[str]:
    """The first half of each text with the second half of another."""
    draw = random.Random(seed)
    changed = []
    for i, text in enumerate(texts):
        words = text.split()
        other = texts[(i + draw.randrange(1, len(texts))) % len(texts)].split() if len(texts) > 1 else words
        changed.append(" ".join(words[: -(-len(words) // 2)] + other[len(other) // 2 :]))
    return changed


def shuffled_letters(texts: Sequence[str], seed: int) -> list[str]:
    """The letters of every word in random order."""
    draw = random.Random(seed)
    return [" ".join("".join(_shuffled(list(word), draw)) for word in text.split()) for text in texts]


def noise(images: Tensor, seed: int) -> Tensor:
    """Gaussian noise of standard deviation 0.1."""
    return corrupt(images, "gaussian_noise", 5, seed)


def blur(images: Tensor, seed: int) -> Tensor:
    """Gaussian blur whose standard deviation is a sixteenth of the side."""
    del seed
    parts = [gaussian(part.double() / 255, BLUR * images.shape[-1]) for part in images.split(64)]
    return torch.cat([(255 * part).round().to(torch.uint8) for part in parts])


def low_contrast(images: Tensor, seed: int) -> Tensor:
    """15 % of the contrast."""
    return corrupt(images, "contrast", 5, seed)


def shuffled_tiles(images: Tensor, seed: int) -> Tensor:
    """Sixteen tiles in random order; what the tiles do not cover at the right and below stays."""
    if images.shape[-1] < unfamiliar.TILES:
        return images.clone()
    return unfamiliar.shuffled_tiles(images, torch.Generator().manual_seed(seed))


def plain_colours(images: Tensor, seed: int) -> Tensor:
    """One random colour per image."""
    generator = torch.Generator().manual_seed(seed)
    colours = torch.randint(0, 256, (len(images), images.shape[1], 1, 1), generator=generator)
    return colours.to(torch.uint8).expand_as(images).contiguous()


def _shuffled(parts: list[str], draw: random.Random) -> list[str]:
    draw.shuffle(parts)
    return parts
