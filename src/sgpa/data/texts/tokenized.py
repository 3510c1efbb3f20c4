"""Texts as token ids: a byte-level BPE tokenizer, padded rows, and tasks made of them."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor

from sgpa.core.errors import CheckpointError, InputError, check_fields
from sgpa.core.files import ensure_directory, read_tensors, write_tensors, write_text
from sgpa.data.dataset import Dataset, Splits
from sgpa.data.sources import cache_dir, find, stamp
from sgpa.data.texts.tables import read_columns, read_texts, read_unlabelled

__all__ = [
    "TextTask",
    "encode",
    "imdb",
    "load_tokenizer",
    "pad_id",
    "read_texts",
    "read_unlabelled",
    "text_task",
    "train_tokenizer",
]

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # ids 0 to 3
PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<PAD>", "[pad]")
BYTES = 256  # every text can be written with these, so nothing is unknown
VOCABULARY = 30_000
MAX_TOKENS = 512
AT_ONCE = 1000  # texts encoded together; bounds memory
IMDB_SIZES = (35_000, 5_000, 10_000)
IMDB_CLASSES = ("negative", "positive")


def collapse(text: str) -> str:
    """Every run of white space as one blank."""
    return " ".join(text.split())


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """A byte-level BPE tokenizer; rows come out as `<s> ... </s>`. Pass training texts only.

    >>> train_tokenizer(["a cat and a cat"], vocabulary=270).encode("a cat").tokens[0]
    '<s>'
    """
    least = len(SPECIAL) + BYTES
    check_fields("tokenizer", [("vocabulary", vocabulary, vocabulary >= least, f"{least} or more")])
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((collapse(text) for text in texts), trainer)
    bos, eos = (tokenizer.token_to_id(name) for name in SPECIAL[2:])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", eos)]
    )
    return tokenizer


def load_tokenizer(path: str | Path) -> Tokenizer:
    """A tokenizer.json of any kind; one without a padding token is given one, with a new last id."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is not a file; name a tokenizer.json")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers package raises nothing more specific
        raise InputError(f"{path} is not a tokenizer.json ({error}); save one with Tokenizer.save") from None
    if _known_pad(tokenizer) is None:
        tokenizer.add_special_tokens([SPECIAL[0]])
    return tokenizer


def pad_id(tokenizer: Tokenizer) -> int:
    """The id that fills up short rows."""
    known = _known_pad(tokenizer)
    if known is None:
        raise InputError(
            f"the tokenizer has no padding token (looked for {', '.join(PAD_NAMES)}); "
            "read it with load_tokenizer, which adds one"
        )
    return known


def _known_pad(tokenizer: Tokenizer) -> int | None:
    stated = (tokenizer.padding or {}).get("pad_id")
    if stated is not None and tokenizer.id_to_token(stated) is not None:
        return int(stated)
    ids = (tokenizer.token_to_id(name) for name in PAD_NAMES)
    return next((id for id in ids if id is not None), None)


def encode(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int = MAX_TOKENS) -> tuple[Tensor, Tensor]:
    """Ids [N, T] int64, T at most `max_tokens`, filled up with `pad_id`, and lengths [N].

    Longer texts are cut; what the tokenizer puts around a text (`<s>`, `</s>`) counts and stays.
    """
    check_fields("encode", [("max_tokens", max_tokens, max_tokens >= 3, "3 or more")])
    if not texts:
        raise InputError("no text to encode")
    fill = pad_id(tokenizer)
    reader = Tokenizer.from_str(tokenizer.to_str())  # the caller's settings stay as they are
    reader.no_padding()
    reader.enable_truncation(max_tokens)
    rows: list[Tensor] = []
    for i in range(0, len(texts), AT_ONCE):
        found = reader.encode_batch([collapse(text) for text in texts[i : i + AT_ONCE]])
        rows += [torch.tensor(one.ids, dtype=torch.int32) for one in found]
    lengths = torch.tensor([len(row) for row in rows])
    if not lengths.all():
        raise InputError(f"text {int(lengths.argmin()) + 1} has no token; drop it or fill it in")
    return _padded(torch.cat(rows), lengths, fill), lengths


def _padded(flat: Tensor, lengths: Tensor, fill: int) -> Tensor:
    """Rows laid end to end [sum of lengths] as one padded table [N, T] int64."""
    table = torch.full((len(lengths), int(lengths.max())), fill)
    table[torch.arange(table.shape[1]) < lengths.unsqueeze(1)] = flat.long()
    return table


@dataclass(frozen=True)
class TextTask:
    """Texts to be classified, as token ids, and what reads them."""

    splits: Splits
    tokenizer: Tokenizer
    class_names: tuple[str, ...]
    max_tokens: int

    @property
    def embedding(self) -> dict[str, int]:
        """What a model must know of the ids: `TokenConfig(**task.embedding)`."""
        return {
            "vocabulary": max(self.tokenizer.get_vocab().values()) + 1,  # some tokenizers skip ids
            "max_tokens": self.max_tokens,
            "pad": pad_id(self.tokenizer),
        }

    def encode(self, texts: Sequence[str]) -> Tensor:
        """New texts as this task's models read them, [N, T]."""
        return encode(self.tokenizer, texts, self.max_tokens)[0]


def text_task(
    texts: Sequence[str],
    labels: Tensor,
    class_names: Sequence[str],
    *,
    seed: int = 0,
    sizes: tuple[int, int, int] | None = None,
    vocabulary: int = VOCABULARY,
    max_tokens: int = MAX_TOKENS,
    tokenizer: Tokenizer | None = None,
) -> TextTask:
    """A seeded random split into `sizes` rows for training, validation and test (default: 70, 10 and 20 %).

    Without a tokenizer, one is trained on the training rows, and on no other.
    """
    n = len(texts)
    if sizes is None:
        sizes = (n - n // 10 - n // 5, n // 10, n // 5)
    if len(labels) != n:
        raise InputError(f"{n} texts but {len(labels)} labels")
    if sum(sizes) != n or min(sizes) < 1:
        raise InputError(
            f"{n} texts cannot be split into {sizes}; every part needs a row and all rows a part"
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    if tokenizer is None:
        tokenizer = train_tokenizer([texts[i] for i in order[: sizes[0]].tolist()], vocabulary)
    ids, lengths = encode(tokenizer, [texts[i] for i in order.tolist()], max_tokens)
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
    """Rows that are in the order training, validation, test already."""
    rows = Dataset(ids, labels, lengths=lengths)
    a, b = sizes[0], sizes[0] + sizes[1]
    return TextTask(Splits(rows[:a], rows[a:b], rows[b:]), tokenizer, class_names, max_tokens)


def imdb(
    seed: int,
    *,
    data_dir: Path | None = None,
    vocabulary: int = VOCABULARY,
    max_tokens: int = MAX_TOKENS,
    tokenizer: Tokenizer | None = None,
    cache: Path | bool = True,
) -> TextTask:
    """Film reviews (Maas et al. 2011): both official parts pooled, split 35,000 / 5,000 / 10,000 by `seed`.

    Encoding takes a minute, so the ids are kept in `cache` (True: the cache of data sets; False: nowhere) and
    found again as long as seed, tokenizer and files are the same. The pool holds 418 duplicate reviews, some
    of which fall on both sides of a split.
    """
    files = [path for part in ("train", "test") for path in find("imdb", part, data_dir)]
    key: dict[str, Any] = {
        "layout": 1,
        "seed": seed,
        "max_tokens": max_tokens,
        "tokenizer": vocabulary if tokenizer is None else _digest(tokenizer),
        "files": stamp(files),
    }
    folder = None
    if cache:
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
        folder = (cache_dir() / "encoded" if cache is True else Path(cache)) / f"imdb-{name}"
        if kept := _kept(folder, key):
            return kept
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
        tokenizer=tokenizer,
    )
    if folder is not None:
        _keep(task, folder, key)
    return task


def _digest(tokenizer: Tokenizer) -> str:
    return hashlib.sha256(tokenizer.to_str().encode()).hexdigest()


def _keep(task: TextTask, folder: Path, key: dict[str, Any]) -> None:
    """Ids without their padding, which is most of them; the tokenizer first, so that ids never lack one."""
    parts = (task.splits.train, task.splits.validation, task.splits.test)
    lengths = torch.cat([part.lengths for part in parts if part.lengths is not None])
    ids = torch.cat([part.inputs for part in parts if isinstance(part.inputs, Tensor)])
    flat = ids[torch.arange(ids.shape[1]) < lengths.unsqueeze(1)].int()
    labels = torch.cat([part.targets for part in parts])
    note = {"key": key, "tokenizer": _digest(task.tokenizer), "classes": task.class_names}
    sizes = torch.tensor([len(part) for part in parts])
    write_text(folder / "tokenizer.json", task.tokenizer.to_str())
    tensors = {"ids": flat, "lengths": lengths.int(), "labels": labels, "sizes": sizes}
    write_tensors(folder / "encoded.safetensors", tensors, note)


def _kept(folder: Path, key: dict[str, Any]) -> TextTask | None:
    """What was kept for this very key; None where there is nothing, or nothing that can be used."""
    try:
        tensors, note = read_tensors(folder / "encoded.safetensors")
        tokenizer = load_tokenizer(folder / "tokenizer.json")
    except (CheckpointError, InputError):
        return None
    if note["key"] != key or note["tokenizer"] != _digest(tokenizer):
        return None
    lengths = tensors["lengths"].long()
    ids = _padded(tensors["ids"], lengths, pad_id(tokenizer))
    sizes = tuple(tensors["sizes"].tolist())
    return _task(ids, lengths, tensors["labels"], sizes, tokenizer, tuple(note["classes"]), key["max_tokens"])
