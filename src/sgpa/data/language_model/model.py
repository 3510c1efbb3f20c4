"""A bidirectional language model with contextual word features (ELMo, Peters et al. 2018).

Words are encoded from their characters, so every word has features. The weights come from `training`, which
trains on any text, or from `published`, which reads the published files; tasks use them frozen.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.arguments import checked
from sgpa.core.config import from_plain
from sgpa.core.errors import CheckpointError, ConfigError, InputError, check_fields
from sgpa.core.files import check_fit, load_exactly, read_json, read_tensors, write_json, write_tensors
from sgpa.data.language_model.lstm import ClippedLstm
from sgpa.data.language_model.next_word import NextWord
from sgpa.data.texts.cola import CHARACTERS, NO_CHARACTER, Sentence, characters

ROWS, COLUMNS = 512, 8  # multiples, on a GPU, of words and of their characters
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


LARGEST, DEEPEST = 100_000, 100  # widths, and layers


@checked
@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """Sizes of a language model.

    `filters` are pairs (characters covered, number of filters). Where the width `cell` of the LSTM's cell
    exceeds `width`, outputs are projected to `width`. Features are 2 `width` wide.
    """

    filters: tuple[tuple[int, int], ...] = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 128), (6, 128))
    character_width: int = 16
    max_characters: int = 50
    activation: str = "relu"
    highways: int = 1
    width: int = 256
    cell: int = 512
    depth: int = 2
    skip: bool = True  # layer 2 and on add their input
    cell_clip: float | None = None
    output_clip: float | None = None
    dropout: float = 0.1

    def __post_init__(self) -> None:
        fits = bool(self.filters) and all(
            0 < w <= self.max_characters and 0 < n <= LARGEST for w, n in self.filters
        )
        most = {"character_width": LARGEST, "width": LARGEST, "depth": DEEPEST}
        clips = ("cell_clip", "output_clip")
        check_fields(
            "language model",
            [
                ("filters", self.filters, fits, f"pairs (1..{self.max_characters}, 1 or more)"),
                *(
                    (n, v, 1 <= v <= top, f"1 to {top}")
                    for n, top in most.items()
                    for v in [getattr(self, n)]
                ),
                (
                    "max_characters",
                    self.max_characters,
                    3 <= self.max_characters <= LARGEST,
                    f"3 to {LARGEST}",
                ),
                ("activation", self.activation, self.activation in ACTIVATIONS, ", ".join(ACTIVATIONS)),
                ("highways", self.highways, 0 <= self.highways <= DEEPEST, f"0 to {DEEPEST}"),
                ("cell", self.cell, self.width <= self.cell <= LARGEST, f"width={self.width} to {LARGEST}"),
                *((n, v, v is None or v > 0, "above 0, or None") for n in clips for v in [getattr(self, n)]),
                (
                    "output_clip",
                    self.output_clip,
                    self.output_clip is None or self.cell > self.width,
                    "None where cell equals width: only projected outputs are clipped",
                ),
                ("dropout", self.dropout, 0 <= self.dropout < 1, "0 up to, but not, 1"),
            ],
        )


class CharacterEncoder(nn.Module):
    """A word [N, width] from its characters [N, C]: embed, convolve, maximum, highways, project."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        total = sum(count for _, count in config.filters)
        self.characters = nn.Embedding(CHARACTERS, config.character_width, padding_idx=0)
        self.filters = nn.ModuleList(nn.Conv1d(config.character_width, n, w) for w, n in config.filters)
        self.highways = nn.ModuleList(Highway(total) for _ in range(config.highways))
        self.project = nn.Linear(total, config.width)

    def forward(self, spelled: Tensor) -> Tensor:
        """Character ids [N, C] -> [N, width]."""
        activation = ACTIVATIONS[self.config.activation]
        N = len(spelled)
        ids = self.rounded(spelled) if spelled.is_cuda else self.trimmed(spelled)
        x = self.characters(ids).mT  # [N, K, C]
        # maximum before activation: equal, as activations are monotone
        y = torch.cat([activation(convolve(x).amax(-1)) for convolve in self.filters], -1)  # [N, filters]
        for highway in self.highways:
            y = highway(y)
        return self.project(y)[:N]

    def rounded(self, spelled: Tensor) -> Tensor:
        """Padded to multiples of `ROWS` and `COLUMNS`: cuDNN plans a convolution for every new shape."""
        return nn.functional.pad(self.trimmed(spelled, COLUMNS), (0, 0, 0, -len(spelled) % ROWS))

    def trimmed(self, spelled: Tensor, multiple: int = 1) -> Tensor:
        """Without most of the columns past the longest word.

        Every filter keeps a window of padding only, where it had one, so that maxima do not change.
        """
        columns = (spelled.remainder(NO_CHARACTER + 1) != 0).any(0).nonzero()  # neither filler nor padding
        longest = int(columns.max()) + 1 if len(columns) else 0
        needed = longest + max(width for width, _ in self.config.filters)
        return spelled[:, : needed + -needed % multiple]


class Highway(nn.Module):
    """g relu(W x + b) + (1 - g) x with g = sigmoid(W_g x + b_g); initially close to x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        """[N, width] -> [N, width]."""
        g = torch.sigmoid(self.gate(x))
        return g * torch.relu(self.transform(x)) + (1 - g) * x


def reversed_rows(x: Tensor, lengths: Tensor) -> Tensor:
    """The first `lengths` [B] entries of every row in reverse; padding stays: [B, T, ...]."""
    forward = torch.arange(x.shape[1], device=x.device)  # [T]
    backward = lengths.unsqueeze(1) - 1 - forward  # [B, T], negative at padding
    at = torch.where(backward >= 0, backward, forward)
    return x[torch.arange(len(x), device=x.device).unsqueeze(1), at]


class ElmoModel(nn.Module):
    """Forward and backward LSTMs over encoded words, and the softmax that they were trained with.

    Published models have no `next_word`.
    """

    def __init__(self, config: ElmoConfig, next_word: NextWord | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = CharacterEncoder(config)
        sizes = (config.width, config.cell, config.cell_clip, config.output_clip)
        self.ahead = nn.ModuleList(ClippedLstm(*sizes) for _ in range(config.depth))
        self.back = nn.ModuleList(ClippedLstm(*sizes) for _ in range(config.depth))
        self.dropout = nn.Dropout(config.dropout)
        self.next_word = next_word

    @property
    def layers(self) -> int:
        """Layers of features: the encoded word and one for every LSTM."""
        return self.config.depth + 1

    @property
    def width(self) -> int:
        """Width of the features."""
        return 2 * self.config.width + (0 if self.next_word is None else 2)

    def spell(self, spelled: Tensor, ids: Tensor) -> Tensor:
        """Words `ids` [B, T] of a table of character ids [V, C] as vectors [B, T, width]; each word once."""
        words, at = ids.unique(return_inverse=True)
        return self.encoder(spelled[words].long())[at]

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Outputs of every LSTM, left to right and right to left, [B, T, width] each.

        At word t the first depend on x_1 ... x_t only, the second on x_t ... x_n, n = `lengths` [B].
        """
        ahead = self._stack(self.ahead, x)
        back = self._stack(self.back, reversed_rows(x, lengths))
        return ahead, [reversed_rows(h, lengths) for h in back]

    def _stack(self, lstms: nn.ModuleList, x: Tensor) -> list[Tensor]:
        outputs: list[Tensor] = []
        for lstm in lstms:
            h = lstm(self.dropout(x))
            x = h + x if outputs and self.config.skip else h
            outputs.append(x)
        return outputs

    @torch.no_grad()
    def features(
        self, sentences: Sequence[Sentence | str], batch_size: int = 64, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """Features of every word.

        Layer 0 is the encoded word, twice; layer l is the output of LSTM l from left to right, then from
        right to left. A model with `next_word` has two more columns, equal in all layers: log p(w | words
        before) - log p(w) and log p(w | words after) - log p(w). Every sentence is read between `<S>` and
        `</S>`, with an initial state of zero.

        Args:
            sentences: Lists of words, or texts to be split at white space.
            batch_size: Sentences that are computed together.
            dtype: Type of the result.

        Returns:
            A tensor [B, T, layers, F] on the CPU, zero after the end of a sentence.
        """
        rows = [row.split() if isinstance(row, str) else list(row) for row in sentences]
        if not rows or not all(row and all(row) for row in rows):
            raise InputError("no sentence, or a sentence without words; remove it or fill it in")
        was_training = self.training
        self.eval()
        try:
            out = torch.zeros(len(rows), max(map(len, rows)), self.layers, self.width, dtype=dtype)
            order = sorted(
                range(len(rows)), key=lambda i: len(rows[i])
            )  # similar lengths together: little padding
            for start in range(0, len(order), batch_size):
                batch = order[start : start + batch_size]
                features = self._features([rows[i] for i in batch])  # [b, t, L, F]
                out[batch, : features.shape[1]] = features.to("cpu", dtype)
        finally:
            self.train(was_training)
        return out

    def _features(self, rows: list[list[str]]) -> Tensor:
        device = self.encoder.project.weight.device
        known = {word: i for i, word in enumerate(dict.fromkeys(["", "<S>", "</S>", *chain(*rows)]))}
        spelled = characters(list(known), self.config.max_characters).to(device)
        spelled[0] = 0  # padding
        lengths = torch.tensor([len(row) + 2 for row in rows], device=device)
        ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row) + 2] = torch.tensor([known[word] for word in ("<S>", *row, "</S>")])
        x = self.spell(spelled, ids.to(device))  # [b, t + 2, width]
        ahead, back = self(x, lengths)
        gains = [] if self.next_word is None else [self._gains(self.next_word, rows, ahead[-1], back[-1])]
        layers = [torch.cat([*pair, *gains], -1) for pair in zip([x, *ahead], [x, *back], strict=True)]
        words = torch.arange(1, int(lengths.max()) - 1, device=device)  # without the two marks
        real = words < lengths.unsqueeze(1) - 1  # [b, t]
        return torch.stack(layers, 2)[:, 1:-1] * real[..., None, None]

    def _gains(self, next_word: NextWord, rows: list[list[str]], ahead: Tensor, back: Tensor) -> Tensor:
        """`gain` of every word given the states beside it, 0 at marks: [b, t + 2, 2]."""
        words = next_word.encode(rows)  # [b, t]
        gains = [next_word.gain(h, words) for h in (ahead[:, :-2], back[:, 2:])]
        return nn.functional.pad(torch.stack(gains, -1), (0, 0, 1, 1))

    def save(self, directory: str | Path) -> Path:
        """Write elmo.safetensors and words.json, then elmo.json."""
        directory = Path(directory)
        write_tensors(directory / "elmo.safetensors", self.state_dict())
        write_json(directory / "words.json", [] if self.next_word is None else list(self.next_word.words))
        write_json(directory / "elmo.json", asdict(self.config))
        return directory

    @staticmethod
    def load(directory: str | Path) -> "ElmoModel":
        """The model that `save` wrote, in evaluation mode."""
        directory = Path(directory)
        data = read_json(directory / "elmo.json", dict[str, Any])
        if set(data) != {f.name for f in fields(ElmoConfig)}:
            raise CheckpointError(f"{directory / 'elmo.json'} does not describe a language model")
        listed = directory / "words.json"  # missing in models of older versions
        words = read_json(listed, list[str]) if listed.exists() else []
        try:
            config = from_plain({**data, "kind": "elmo"}, {"elmo": ElmoConfig}, "elmo.json")
        except ConfigError as error:
            raise CheckpointError(f"{directory} does not describe a language model ({error})") from None
        weights = read_tensors(directory / "elmo.safetensors")[0]
        with torch.device("meta"):  # nothing is allocated before the sizes are known to fit
            check_fit(_build(config, words).state_dict(), weights, directory)
        model = _build(config, words)
        load_exactly(model, weights, directory)
        return model.eval()


def _build(config: ElmoConfig, words: Sequence[str]) -> ElmoModel:
    return ElmoModel(config, NextWord(config.width, words) if words else None)
