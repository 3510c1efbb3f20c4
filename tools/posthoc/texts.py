"""CoLA and IMDB as token ids for MiniLM, with unfamiliar texts for both."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sgpa.core.files import read_json

Texts = tuple[list[str], list[int]]
Tokens = list[list[int]]
CLS, SEP = 101, 102  # of BERT's vocabulary; padding is 0
LENGTH = {"cola": 64, "imdb": 256}  # tokens
HELD_OUT = {"cola": 800, "imdb": 2000}  # training rows that are not trained on
TEST_REVIEWS, STRANGERS = 4000, 500


def read(file: Path, text: str) -> Texts:
    """Texts and labels of a Parquet file, or of a JSON file of the same name with the same columns."""
    if (plain := file.with_suffix(".json")).exists():
        table = read_json(plain, dict)
    else:
        from pyarrow.parquet import read_table  # noqa: PLC0415 - not on every machine

        table = read_table(file, columns=[text, "label"]).to_pydict()
    return table[text], table["label"]


def part(folder: Path, task: str, name: str) -> Texts:
    """Rows of one file of a task."""
    column = {"cola": "sentence", "imdb": "text"}[task]
    return read(folder / task / f"{name}-00000-of-00001.parquet", column)


def training_rows(task: str, folder: Path, seed: int) -> tuple[Texts, Texts]:
    """Rows to train on and rows that are held out."""
    texts, labels = part(folder, task, "train")
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()
    parts = order[HELD_OUT[task] :], order[: HELD_OUT[task]]
    rest, held = (([texts[i] for i in index], [labels[i] for i in index]) for index in parts)
    return rest, held


def test_rows(task: str, folder: Path) -> dict[str, Texts]:
    """Test sets."""
    if task == "cola":
        names = {"in domain": "validation_in_domain", "out of domain": "validation_out_of_domain"}
        return {name: part(folder, task, file) for name, file in names.items()}
    texts, labels = part(folder, task, "test")
    chosen = random.Random(0).sample(range(len(texts)), TEST_REVIEWS)
    return {"test": ([texts[i] for i in chosen], [labels[i] for i in chosen])}


def strangers(task: str, folder: Path) -> dict[str, list[str]]:
    """Unfamiliar texts that results are reported for."""
    tests = test_rows(task, folder)
    if task == "cola":
        own = tests["in domain"][0]
        reviews = part(folder, "imdb", "test")[0]
        chosen = random.Random(0).sample(range(len(reviews)), len(own))
        starts = [" ".join(reviews[i].replace("<br />", " ").split()[:11]) for i in chosen]
        return {"film reviews": starts, "shuffled words": [shuffled(text) for text in own]}
    sentences = part(folder, "cola", "train")[0]
    rows = [" ".join(sentences[i : i + 5]) for i in range(0, 5 * STRANGERS, 5)]
    return {"CoLA sentences": rows, "shuffled words": [shuffled(x) for x in tests["test"][0][:STRANGERS]]}


def perturbed(texts: Sequence[str], vocabulary: Sequence[str], seed: int = 0) -> dict[str, list[str]]:
    """Changed held-out texts, to choose settings of detectors on without the texts that are reported."""
    order = random.Random(seed)

    def random_words(text: str) -> str:
        return " ".join(order.choice(vocabulary) for _ in text.split())

    def reversed_words(text: str) -> str:
        return " ".join(reversed(text.split()))

    def repeated(text: str) -> str:
        words = text.split()
        return " ".join(words[i // 3 * 3] for i in range(len(words)))

    def misspelt(text: str) -> str:
        return " ".join(word[::-1] if order.random() < 0.3 else word for word in text.split())

    kinds = (random_words, reversed_words, repeated, misspelt)
    return {kind.__name__.replace("_", " "): [kind(text) for text in texts] for kind in kinds}


def shuffled(text: str) -> str:
    """The same words in random order."""
    words = text.split()
    random.Random(len(text)).shuffle(words)
    return " ".join(words)


def damaged(text: str, others: Sequence[str], order: random.Random) -> str:
    """A sentence with one or two words moved, left out, repeated or replaced by one of another sentence."""
    words = text.split()
    for _ in range(order.choice((1, 1, 2))):
        if len(words) < 3:
            break
        i, kind = order.randrange(len(words) - 1), order.randrange(4)
        if kind == 0:
            words[i], words[i + 1] = words[i + 1], words[i]
        elif kind == 1:
            del words[i]
        elif kind == 2:
            words.insert(order.randrange(len(words)), words[i])
        else:
            words[i] = order.choice(order.choice(others).split())
    return " ".join(words)


def encode(tokenizer: Any, texts: Sequence[str], length: int) -> Tokens:
    """Token ids; of a text that is too long the first and the last half of what fits."""
    body = length - 2
    ids = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    cut = [x if len(x) <= body else x[: body // 2] + x[len(x) - (body - body // 2) :] for x in ids]
    return [[CLS, *x, SEP] for x in cut]


def batch(tokens: Tokens, labels: Sequence[int] | None = None) -> dict[str, torch.Tensor]:
    """Padded rows."""
    width = max(len(row) for row in tokens)
    ids = torch.tensor([row + [0] * (width - len(row)) for row in tokens])
    lengths = torch.tensor([len(row) for row in tokens])
    rows = {"input_ids": ids, "attention_mask": (torch.arange(width) < lengths.unsqueeze(1)).long()}
    return rows if labels is None else rows | {"labels": torch.tensor(labels)}


def batches(tokens: Tokens, labels: Sequence[int] | None = None, size: int = 64) -> list[Any]:
    """Batches in order."""
    starts = range(0, len(tokens), size)
    if labels is None:
        return [batch(tokens[i : i + size]) for i in starts]
    return [batch(tokens[i : i + size], labels[i : i + size]) for i in starts]


def in_random_order(tokens: Tokens, labels: Sequence[int], size: int, seed: int) -> list[Any]:
    """Batches of texts of similar length, in random order."""
    order = random.Random(seed)
    index = list(range(len(tokens)))
    order.shuffle(index)
    blocks = [
        sorted(index[i : i + 16 * size], key=lambda j: len(tokens[j]))
        for i in range(0, len(index), 16 * size)
    ]
    groups = [block[i : i + size] for block in blocks for i in range(0, len(block), size)]
    order.shuffle(groups)
    return [batch([tokens[i] for i in group], [labels[i] for i in group]) for group in groups]
