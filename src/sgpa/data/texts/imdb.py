"""Text classification tasks, and IMDB's film reviews as one of them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import ensure_directory, read_tensors, write_tensors, write_text
from sgpa.core.saved_tensors import Shape, check_tensors
from sgpa.data.dataset import Dataset, Splits
from sgpa.data.sources import cache_dir, find, stamp
from sgpa.data.tables import read_columns
from sgpa.data.texts.tokenizer import (
    MAX_TOKENS,
    VOCABULARY,
    encode,
    load_tokenizer,
    pad_id,
    padded,
    train_tokenizer,
)

IMDB_SIZES = (35_000, 5_000, 10_000)
IMDB_CLASSES = ("negative", "positive")


@dataclass(frozen=True)
class TextTask:
    """Texts to classify, as token ids, with their tokenizer."""

    splits: Splits
    tokenizer: Tokenizer
    class_names: tuple[str, ...]
    max_tokens: int

    @property
    def embedding(self) -> dict[str, int]:
        """The fields of a model's `TokenConfig`."""
        return {
            "vocabulary": max(self.tokenizer.get_vocab().values()) + 1,  # some tokenizers skip ids
            "max_tokens": self.max_tokens,
            "pad": pad_id(self.tokenizer),
        }


def text_task(
    texts: Sequence[str],
    labels: Tensor,
    class_names: Sequence[str],
    *,
    seed: int = 0,
    sizes: tuple[int, int, int] | None = None,
    vocabulary: int = VOCABULARY,
    max_tokens: int = MAX_TOKENS,
) -> TextTask:
    """Texts split at random and encoded.

    Args:
        texts: The texts.
        labels: Their classes [N].
        class_names: Names of the classes, in the order of the labels.
        seed: Random seed of the split.
        sizes: Rows for training, validation and test; by default 70, 10 and 20 %.
        vocabulary: Size of the tokenizer, which is trained on the training rows only.
        max_tokens: Longer texts are cut.

    Returns:
        The splits with their tokenizer.

    Example:
        >>> task = text_task(["good"] * 5 + ["bad"] * 5, torch.arange(10) // 5, ("good", "bad"))
        >>> len(task.splits.train)
        7
    """
    n = len(texts)
    if sizes is None:
        sizes = (n - n // 10 - n // 5, n // 10, n // 5)
    if len(labels) != n:
        raise InputError(f"{n} texts but {len(labels)} labels")
    if sum(sizes) != n or min(sizes) < 1:
        raise InputError(
            f"{n} texts cannot be split into sizes={sizes}; the sizes must add up to {n}, each 1 or more"
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    tokenizer = train_tokenizer([texts[i] for i in order[: sizes[0]].tolist()], vocabulary)
    ids, lengths = encode(tokenizer, [texts[i] for i in order.tolist()], max_tokens)  # [N, T], [N]
    return _task(ids, lengths, labels[order], sizes, tokenizer, tuple(class_names), max_tokens)


def _task(
    ids: Tensor,
    lengths: Tensor,
    labels: Tensor,
    sizes: tuple[int, ...],
    tokenizer: Tokenizer,
    class_names: tuple[str, ...],
    max_tokens: int,
) -> TextTask:
    """A task of rows that are in the order training, validation, test."""
    rows = Dataset(ids, labels, lengths=lengths)
    a, b = sizes[0], sizes[0] + sizes[1]
    return TextTask(Splits(rows[:a], rows[a:b], rows[b:]), tokenizer, class_names, max_tokens)


def imdb(
    seed: int,
    *,
    data_dir: Path | None = None,
    vocabulary: int = VOCABULARY,
    max_tokens: int = MAX_TOKENS,
    cache: Path | bool = True,
) -> TextTask:
    """Film reviews (Maas et al. 2011): both official parts pooled, split 35,000 / 5,000 / 10,000 by `seed`.

    The pool holds 418 duplicate reviews, some of which are in two parts of a split.

    Args:
        seed: Random seed of the split; the tokenizer is trained on its training rows.
        data_dir: The folder that holds `imdb/`; by default `$SGPA_DATA` and the cache.
        vocabulary: Size of the tokenizer.
        max_tokens: Longer reviews are cut.
        cache: Folder for the token ids, since encoding takes a minute. True: the cache of data sets; False:
            nowhere. The key is the seed, the settings and the files.

    Returns:
        The splits with their tokenizer.

    Example:
        >>> task = imdb(seed=0)  # doctest: +SKIP
        >>> task.splits.train.inputs.shape  # doctest: +SKIP
        torch.Size([35000, 512])
    """
    files = [path for part in ("train", "test") for path in find("imdb", part, data_dir)]
    key: dict[str, Any] = {
        "layout": 1,
        "seed": seed,
        "max_tokens": max_tokens,
        "tokenizer": vocabulary,
        "files": stamp(files),
    }
    folder = None
    if cache:
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        folder = (cache_dir() / "encoded" if cache is True else Path(cache)) / f"imdb-{name}"
        if cached := _from_cache(folder, key):
            return cached
        ensure_directory(folder, "choose another `cache`")
    tables = [read_columns(path) for path in files]
    texts = [text for table in tables for text in table["text"]]
    if len(texts) != sum(IMDB_SIZES):
        raise InputError(
            f"imdb: {len(texts):,} reviews instead of {sum(IMDB_SIZES):,} in {files[0].parent}; "
            "get the files of both parts again"
        )
    labels = torch.tensor([label for table in tables for label in table["label"]])
    task = text_task(
        texts,
        labels,
        IMDB_CLASSES,
        seed=seed,
        sizes=IMDB_SIZES,
        vocabulary=vocabulary,
        max_tokens=max_tokens,
    )
    if folder is not None:
        _to_cache(task, folder, key)
    return task


def _digest(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def _to_cache(task: TextTask, folder: Path, key: dict[str, Any]) -> None:
    """Write ids without padding, which is most of them; the tokenizer first, so that ids never lack one."""
    parts = (task.splits.train, task.splits.validation, task.splits.test)
    lengths = torch.cat([part.lengths for part in parts if part.lengths is not None])
    ids = torch.cat([part.inputs for part in parts if isinstance(part.inputs, Tensor)])  # [N, T]
    flat = ids[torch.arange(ids.shape[1]) < lengths.unsqueeze(1)].int()  # [sum of lengths]
    labels = torch.cat([part.targets for part in parts])
    note = {"key": key, "tokenizer": _digest(task.tokenizer), "classes": task.class_names}
    sizes = torch.tensor([len(part) for part in parts])
    write_text(folder / "tokenizer.json", task.tokenizer.to_str())
    tensors = {"ids": flat, "lengths": lengths.int(), "labels": labels, "sizes": sizes}
    write_tensors(folder / "encoded.safetensors", tensors, note)


def _from_cache(folder: Path, key: dict[str, Any]) -> TextTask | None:
    """The task that was cached under this key; None where it is missing or damaged."""
    try:
        tensors, note = read_tensors(folder / "encoded.safetensors")
        tokenizer = load_tokenizer(folder / "tokenizer.json")
        shapes: dict[str, Shape] = {"ids": ("T",), "lengths": ("N",), "labels": ("N",), "sizes": (3,)}
        check_tensors(tensors, shapes, folder, whole=tuple(shapes))
    except (CheckpointError, InputError):
        return None
    known = isinstance(note, dict) and note.get("key") == key and note.get("tokenizer") == _digest(tokenizer)
    if not known or int(tensors["lengths"].sum()) != len(tensors["ids"]):
        return None
    lengths = tensors["lengths"].long()
    ids = padded(tensors["ids"], lengths, pad_id(tokenizer))
    sizes = tuple(tensors["sizes"].tolist())
    return _task(ids, lengths, tensors["labels"], sizes, tokenizer, tuple(note["classes"]), key["max_tokens"])
