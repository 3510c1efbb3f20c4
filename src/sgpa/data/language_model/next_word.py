"""The softmax of a language model over the next word."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

MARKS = ("<unk>", "<S>", "</S>")  # words 0 to 2
ROWS = 1024  # states whose scores of all words are held at once


class NextWord(nn.Module):
    """Scores of the next word, with the same weights for both directions, as in the published model.

    `words` are the marks, then words by frequency; all others are the unknown word 0.
    """

    log_frequency: Tensor  # of every word in the training texts   [V]

    def __init__(self, width: int, words: Sequence[str]) -> None:
        super().__init__()
        self.words = tuple(words)
        self.index = {word: i for i, word in enumerate(self.words)}
        self.weight = nn.Parameter(torch.randn(len(words), width) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(len(words)))
        self.register_buffer("log_frequency", torch.zeros(len(words)))

    def forward(self, h: Tensor, target: Tensor) -> Tensor:
        """-log softmax(W h + b)[target], averaged: h [N, width], target [N] -> []."""
        return -self.log_p(h, target).mean()

    def log_p(self, h: Tensor, words: Tensor) -> Tensor:
        """log softmax(W h + b)[word] of every state, in parts: [N, width], [N] -> [N]."""
        parts = zip(h.split(ROWS), words.split(ROWS), strict=True)
        scored = ((part @ self.weight.mT + self.bias, at) for part, at in parts)
        return -torch.cat([nn.functional.cross_entropy(s, at, reduction="none") for s, at in scored])

    def sampled(self, h: Tensor, target: Tensor, negatives: int) -> Tensor:
        """Sampled softmax: the target against S words drawn with probabilities q, with scores s - log q.

        Its optimum is that of the full softmax for any S (Ma and Collins 2018). q(k) = log((k+2)/(k+1)) /
        log(V+1) falls with the rank k as word frequencies do (Zipf).
        """
        scale, V = math.log(len(self.bias) + 1), len(self.bias)
        drawn = (torch.rand(negatives, device=h.device) * scale).exp().long().sub(1).clamp(0, V - 1)  # [S]
        log_q = torch.log1p(1 / torch.arange(1, V + 1, device=h.device, dtype=h.dtype)).log() - math.log(
            scale
        )
        offset = self.bias - log_q  # [V]
        wrong = h @ self.weight[drawn].mT + offset[drawn]  # [N, S]
        right = (h * self.weight[target]).sum(-1) + offset[target]  # [N]
        return (torch.logaddexp(right, wrong.logsumexp(-1)) - right).mean()

    def encode(self, rows: Sequence[Sequence[str]]) -> Tensor:
        """Word ids [B, T], 0 for unknown words and padding."""
        ids = [torch.tensor([self.index.get(word, 0) for word in row]) for row in rows]
        return nn.utils.rnn.pad_sequence(ids, batch_first=True).to(self.bias.device)

    def gain(self, h: Tensor, ids: Tensor) -> Tensor:
        """log p(w | h) - log p(w) in nats, 0 for unknown words.

        States h [B, T, width], words [B, T] -> [B, T].
        """
        log_p = self.log_p(h.flatten(0, -2), ids.flatten()).view(ids.shape)
        return (log_p - self.log_frequency[ids]).where(ids != 0, 0.0)
