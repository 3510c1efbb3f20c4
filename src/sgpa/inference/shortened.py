"""Parts of texts and other sequences, and their lengths: what is said in a sentence instead of a page."""

from collections.abc import Iterator

import torch
from torch import Tensor

from sgpa.core.inputs import Features, Inputs, Words

PARTS = 4  # of every held-out sequence, with which short ones are compared
SHORTEST = 5  # tokens of a part, where the sequence has as many


def lengths_of(inputs: Inputs, pad: int = 0) -> Tensor | None:
    """Tokens of every sequence, [N]; None for images and graphs.

    >>> lengths_of(torch.tensor([[5, 6, 7], [5, 0, 0]]))
    tensor([3, 1])
    """
    real = _tokens(inputs, pad)
    return None if real is None else real.sum(1).cpu()


def shortened(inputs: Inputs, pad: int = 0, *, seed: int = 0) -> Inputs | None:
    """One part of every sequence, from its start or from a random place; None for images and graphs.

    The lengths are drawn evenly on a logarithmic scale, from a few tokens to the whole sequence.

    Args:
        inputs: Token ids [N, T], `Words` or `Features`.
        pad: The id that fills up short rows of token ids.
        seed: Of lengths and places.

    Returns:
        As many rows as were given, padded at the end.

    >>> rows = shortened(torch.arange(1, 41).expand(3, 40))
    >>> all(5 <= int((row > 0).sum()) <= 40 for row in rows)
    True
    """
    real = _tokens(inputs, pad)
    if real is None:
        return None
    at, padding = _places(real, seed)
    if isinstance(inputs, Features):
        return Features(inputs.values.gather(1, at.unsqueeze(-1).expand_as(inputs.values)), padding)
    if isinstance(inputs, Words):
        chosen = at[:, :, None, None].expand_as(inputs.layers)
        return Words(inputs.ids.gather(1, at).masked_fill(padding, 0), inputs.layers.gather(1, chosen))
    assert isinstance(inputs, Tensor)
    return inputs.gather(1, at).masked_fill(padding, pad)


def parts_of(inputs: Inputs, pad: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
    """Parts of every sequence, several times, with their lengths [N]; none of images and graphs."""
    for seed in range(PARTS):
        part = shortened(inputs, pad, seed=seed)
        if part is None:
            return
        lengths = lengths_of(part, pad)
        assert lengths is not None
        yield part, lengths


def _tokens(inputs: Inputs, pad: int) -> Tensor | None:
    """True at tokens, which come before the padding, [N, T]; None for images and graphs."""
    if isinstance(inputs, Features):
        return ~inputs.padding
    if isinstance(inputs, Words):
        return inputs.ids != 0
    if isinstance(inputs, Tensor) and inputs.ndim == 2 and not inputs.is_floating_point():
        return inputs != pad
    return None


def _places(real: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Where each token of the parts stands in its sequence [N, T], and the padding of the parts [N, T]."""
    N, T = real.shape
    generator = torch.Generator().manual_seed(seed)
    lengths = real.sum(1).cpu().clamp_min(1)  # [N]
    shortest = lengths.clamp(max=SHORTEST)
    longer = (lengths / shortest) ** torch.rand(N, generator=generator)  # 1 to the whole
    kept = (shortest * longer).round().long().clamp(max=lengths)
    first = ((lengths - kept + 1) * torch.rand(N, generator=generator)).long()
    first = first * (torch.rand(N, generator=generator) < 0.5)
    steps = torch.arange(T)
    at = (first.unsqueeze(1) + steps).clamp(max=max(T - 1, 0))
    return at.to(real.device), (steps >= kept.unsqueeze(1)).to(real.device)
