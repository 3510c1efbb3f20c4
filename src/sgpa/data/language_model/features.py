"""Features of sentences, computed once and cached for all seeds, methods and runs."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError
from sgpa.core.files import digest, ensure_directory, read_tensors, write_tensors
from sgpa.core.saved_tensors import check_tensors
from sgpa.data.language_model.model import ElmoModel
from sgpa.data.sources import cache_dir
from sgpa.data.texts.cola import Features, Sentence

TOGETHER = 1000  # sentences of similar length that are computed together


def cached_features(model: ElmoModel, sentences: Iterable[Sentence], folder: Path | None = None) -> Features:
    """Features of a fixed set of sentences in half precision, from a cache file where there is one.

    The file holds no padding. Its name is a hash of the weights and the sentences.

    Args:
        model: The language model.
        sentences: All sentences that will be asked for.
        folder: Where the file is; the cache by default.

    Returns:
        A function from some of the sentences to their padded features [N, T, L, F] float16.
    """
    rows = sorted({tuple(row) for row in sentences}, key=lambda row: (len(row), row))
    path = (folder or cache_dir() / "features") / f"{_name(model, rows)}.safetensors"
    try:
        saved = read_tensors(path)[0]
        check_tensors(saved, {"features": (sum(map(len, rows)), "L", "F")}, path)
        flat = saved["features"]
    except CheckpointError:
        ensure_directory(path.parent, "choose another cache with XDG_CACHE_HOME")
        parts = [rows[i : i + TOGETHER] for i in range(0, len(rows), TOGETHER)]
        flat = torch.cat([_unpadded(model, part) for part in parts])
        write_tensors(path, {"features": flat})
    ends = torch.tensor([len(row) for row in rows]).cumsum(0).tolist()
    features = {row: flat[end - len(row) : end] for row, end in zip(rows, ends, strict=True)}
    return lambda asked: torch.nn.utils.rnn.pad_sequence(
        [features[tuple(row)] for row in asked], batch_first=True
    )


def _unpadded(model: ElmoModel, rows: Sequence[tuple[str, ...]]) -> Tensor:
    """Features of all words of all sentences, concatenated: [words, L, F] float16."""
    features = model.features(rows, dtype=torch.float16)  # [N, T, L, F]
    lengths = torch.tensor([len(row) for row in rows])
    return features[torch.arange(features.shape[1]) < lengths.unsqueeze(1)]


def _name(model: ElmoModel, rows: Sequence[Sentence]) -> str:
    weights = "".join(f"{name} {digest(w)}\n" for name, w in model.state_dict().items())
    words = "" if model.next_word is None else " ".join(model.next_word.words)
    text = "\n".join(" ".join(row) for row in rows)
    everything = f"{model.config}\n{weights}{words}\n{text}"
    return hashlib.sha256(everything.encode("utf-8", "ignore")).hexdigest()[:16]


def language_model_dir() -> Path:
    """The default folder of the language model, in the cache; CoLA's recipe reads it."""
    return cache_dir() / "language-model" / "imdb"
