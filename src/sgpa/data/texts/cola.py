"""CoLA, sentences as words, and words as characters."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sgpa.core.errors import InputError, check_fields
from sgpa.core.inputs import Inputs, Words
from sgpa.data.dataset import Dataset, Splits
from sgpa.data.sources import find
from sgpa.data.tables import read_columns

Sentence = Sequence[str]  # its words
Features = Callable[[Sequence[Sentence]], Tensor]  # sentences -> [N, T, L, F]

# a word as characters: its UTF-8 bytes between two marks; ids are raised by one, so that 0 is padding
BEGIN_WORD, END_WORD, NO_CHARACTER = 258, 259, 260
BEGIN_SENTENCE, END_SENTENCE = 256, 257  # instead of bytes
CHARACTERS = 262
MARKS = {"<S>": BEGIN_SENTENCE, "</S>": END_SENTENCE}

COLA_TRAIN, COLA_TEST = 7_262, 1_816
COLA_CLASSES = ("unacceptable", "acceptable")
CLITIC = r"'(?:s|m|d|re|ve|ll)\b"  # he 's
TOKEN = re.compile(
    rf"\w+(?=n't\b)|n't\b|can(?=not\b)|{CLITIC}"
    rf"|\d+(?:[.,:]\d+)+|\w+(?:(?!{CLITIC})['./-]\w+)*"  # 1,000  well-known  o'clock
    r"|``|''|\.{2,}|-{2,}|[^\w\s]"
)
COLA_COLUMNS = {"raw": "sentence", "tokenized": "tokenized"}
WATCHED = 500  # training rows whose scores are logged
BREAK = re.compile(r"<br\s*/?>")
SENTENCE_END = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"')]))\s+")


def characters(words: Sequence[str], max_characters: int = 50) -> Tensor:
    """Character ids [N, max_characters] of words, numbered as in the published ELMo models.

    Words longer than `max_characters` - 2 bytes are cut. `<S>` and `</S>` mark the ends of a sentence.
    """
    rows = torch.full((len(words), max_characters), NO_CHARACTER, dtype=torch.int16)
    for row, word in zip(rows, words, strict=True):
        inner = [MARKS[word]] if word in MARKS else word.encode("utf-8", "ignore")[: max_characters - 2]
        spelled = [BEGIN_WORD, *inner, END_WORD]
        row[: len(spelled)] = torch.tensor(spelled, dtype=torch.int16)
    return rows + 1


def tokenized(text: str) -> list[str]:
    """Words and punctuation marks in lower case, separated as in CoLA's own tokens.

    >>> tokenized("He didn't stay, Anne's dog did.")
    ['he', 'did', "n't", 'stay', ',', 'anne', "'s", 'dog', 'did', '.']
    """
    return TOKEN.findall(text.lower().replace("’", "'"))


# functions that split a sentence into words
SPLIT: dict[str, Callable[[str], list[str]]] = {"raw": str.split, "tokenized": tokenized}


def sentences(text: str, max_words: int = 60) -> list[list[str]]:
    """The sentences of a text as lists of tokens; longer ones are cut into pieces of `max_words`.

    >>> sentences("It rains.<br />I stay. ")
    [['it', 'rains', '.'], ['i', 'stay', '.']]
    """
    split = [tokenized(piece) for piece in SENTENCE_END.split(BREAK.sub(" ", text))]
    return [words[i : i + max_words] for words in split for i in range(0, len(words), max_words)]


@dataclass(frozen=True)
class WordVocabulary:
    """Words with ids from 2 on; 0 is padding, 1 an unknown word."""

    words: tuple[str, ...]

    @staticmethod
    def of(training: Iterable[Sentence]) -> "WordVocabulary":
        """All words of the training sentences, the most frequent first."""
        counts = Counter(word for sentence in training for word in sentence)
        return WordVocabulary(tuple(sorted(counts, key=lambda word: (-counts[word], word))))

    def __len__(self) -> int:
        return len(self.words) + 2

    def encode(self, rows: Sequence[Sentence], max_words: int | None = None) -> tuple[Tensor, Tensor]:
        """Ids [N, T] int64 padded with 0, and lengths [N]; longer sentences are cut at `max_words`."""
        known = {word: i for i, word in enumerate(self.words, 2)}
        cut = [row[:max_words] for row in rows]
        lengths = torch.tensor([len(row) for row in cut], dtype=torch.int64)
        if not len(lengths) or not lengths.all():
            raise InputError("no sentence, or a sentence without words; remove it or fill it in")
        ids = torch.zeros(len(cut), int(lengths.max()), dtype=torch.int64)
        for i, row in enumerate(cut):
            ids[i, : len(row)] = torch.tensor([known.get(word, 1) for word in row])
        return ids, lengths


@dataclass(frozen=True)
class Sentences:
    """Sentences with their labels [N]."""

    rows: tuple[tuple[str, ...], ...]
    labels: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: Tensor) -> "Sentences":
        return Sentences(tuple(self.rows[i] for i in at.tolist()), self.labels[at])


@dataclass(frozen=True)
class WordTask:
    """Sentences to classify, as words. `ood` has sentences of other sources."""

    train: Sentences
    validation: Sentences
    test: Sentences
    ood: Sentences
    vocabulary: WordVocabulary
    class_names: tuple[str, ...]

    @property
    def sentences(self) -> list[tuple[str, ...]]:
        """All sentences of all parts."""
        parts = (self.train, self.validation, self.test, self.ood)
        return [row for part in parts for row in part.rows]

    @property
    def embedding(self) -> dict[str, int]:
        """The fields of a model's `WordsConfig`, apart from those of the features."""
        return {"vocabulary": len(self.vocabulary), "max_tokens": max(map(len, self.sentences))}

    def dataset(self, part: Sentences, features: Features | None = None) -> Dataset:
        """Rows as word ids, or as `Words` with a language model's features.

        Features of 9,000 sentences take gigabytes, so they are in half precision; models convert them.
        """
        ids, lengths = self.vocabulary.encode(part.rows)
        inputs: Inputs = ids if features is None else Words(ids, features(part.rows).half())
        return Dataset(inputs, part.labels, lengths=lengths)

    def splits(self, features: Features | None = None) -> Splits:
        """Training, validation and test rows; `features` is a language model's `features`."""
        return Splits(*(self.dataset(part, features) for part in (self.train, self.validation, self.test)))


def cola(seed: int, *, holdout: int = 0, tokens: str = "raw", data_dir: Path | None = None) -> WordTask:
    """CoLA (Warstadt et al. 2019): is a sentence acceptable English?

    The 8,551 training and 527 in-domain development sentences are pooled and split 7,262 / 1,816 by `seed`.
    The 516 out-of-domain development sentences are `ood` (12 of them also occur among the others). The
    paper's protocol keeps the last epoch, so by default `validation` is 500 of the training rows, for logs
    only.

    Args:
        seed: Random seed of the split.
        holdout: Rows to take out of training for validation, where an epoch is to be selected.
        tokens: "raw" (split at white space, cased) or "tokenized" (the corpus's own tokens).
        data_dir: The folder that holds `cola/`; by default `$SGPA_DATA` and the cache.

    Returns:
        Sentences of every part and the vocabulary of the training sentences.

    Example:
        >>> task = cola(seed=0)  # doctest: +SKIP
        >>> splits = task.splits()  # doctest: +SKIP
    """
    check_fields(
        "cola",
        [
            ("holdout", holdout, 0 <= holdout < COLA_TRAIN, f"0..{COLA_TRAIN - 1}"),
            ("tokens", tokens, tokens in COLA_COLUMNS, ", ".join(COLA_COLUMNS)),
        ],
    )
    column = COLA_COLUMNS[tokens]
    pool = _read([*find("cola", "train", data_dir), *find("cola", "validation_in_domain", data_dir)], column)
    ood = _read(find("cola", "validation_out_of_domain", data_dir), column)
    if len(pool) != COLA_TRAIN + COLA_TEST:
        raise InputError(
            f"cola: {len(pool):,} in-domain sentences instead of {COLA_TRAIN + COLA_TEST:,}; "
            "get the train and validation_in_domain files again"
        )
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
    training, test = order[:COLA_TRAIN], order[COLA_TRAIN:]
    if holdout:
        training, watched = training[holdout:], training[:holdout]
    else:
        watched = training[:WATCHED]  # a random choice: the order is random
    train = pool[training]
    return WordTask(train, pool[watched], pool[test], ood, WordVocabulary.of(train.rows), COLA_CLASSES)


def _read(files: Sequence[Path], column: str) -> Sentences:
    rows: list[tuple[str, ...]] = []
    labels: list[int] = []
    for path in files:
        table = read_columns(path)
        for name in (column, "label"):
            if name not in table:
                raise InputError(f"{path} has no column {name!r}; its columns are {', '.join(table)}")
        rows += [tuple(text.split()) for text in table[column]]
        labels += table["label"]
    return Sentences(tuple(rows), torch.tensor(labels))
