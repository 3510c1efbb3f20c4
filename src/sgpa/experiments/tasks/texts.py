"""Texts: IMDB reviews, the sentences of CoLA, and a user's table of texts."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.limits import size_check
from sgpa.core.network_config import MOST_TOKENS
from sgpa.data import Dataset
from sgpa.data.backbones.texts import GROUP, TextBackbone
from sgpa.data.backbones.texts import MAX_TOKENS as BACKBONE_TOKENS
from sgpa.data.fetch import Progress
from sgpa.data.language_model.features import cached_features, language_model_dir
from sgpa.data.language_model.model import ElmoModel
from sgpa.data.texts.cola import COLA_TRAIN, SPLIT, Features, cola
from sgpa.data.texts.imdb import imdb
from sgpa.data.texts.tables import read_texts
from sgpa.data.texts.tokenizer import (
    SPECIAL,
    known_pairs,
)
from sgpa.evaluation.results import OodSet
from sgpa.experiments.tasks.base import OOD_ROWS, Task, check_split, split_note, split_test, split_user_rows
from sgpa.experiments.tasks.display import show_texts
from sgpa.experiments.tasks.made_inputs import random_tokens
from sgpa.inference.readers import TextFeatureReader, TextReader, WordReader
from sgpa.models import TokenConfig


@checked
@dataclass(frozen=True, kw_only=True)
class ImdbConfig:
    """50,000 film reviews as tokens of a byte-level BPE; every seed has its own split."""

    vocabulary: int = 30_000
    max_tokens: int = 512

    dataset = "imdb"
    augmentation = ""
    per_seed = True  # split and tokenizer

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """35,000 / 5,000 / 10,000 reviews."""
        reviews = imdb(seed, data_dir=data_dir, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        reader = TextReader(tokenizer=reviews.tokenizer, max_tokens=self.max_tokens)
        return Task(reviews.splits, reviews.embedding, class_names=reviews.class_names, reader=reader)


@checked
@dataclass(frozen=True, kw_only=True)
class ColaConfig:
    """Acceptability of sentences; every seed has its own split.

    `language_model` is the folder of a trained language model whose features are added to the words,
    "imdb" for the one that `sgpa data language-model` trains on IMDB's texts, or "none". `holdout` rows of
    the training set are used for validation; the paper's protocol selects no epoch and uses none.
    """

    language_model: str = "imdb"
    tokens: str = "tokenized"
    holdout: int = 0

    dataset = "cola"
    augmentation = ""
    per_seed = True  # split and vocabulary

    def __post_init__(self) -> None:
        check_fields(
            "task",
            [
                ("tokens", self.tokens, self.tokens in SPLIT, ", ".join(SPLIT)),
                ("holdout", self.holdout, 0 <= self.holdout < COLA_TRAIN, f"0..{COLA_TRAIN - 1}"),
            ],
        )

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """7,262 sentences for training, 1,816 of the same sources and 516 of other sources for testing."""
        corpus = cola(seed, holdout=self.holdout, tokens=self.tokens, data_dir=data_dir)
        model = self._model()
        features: Features | None = None if model is None else cached_features(model, corpus.sentences)
        splits, names = corpus.splits(features), corpus.class_names
        shifts = {"cola-ood": lambda: corpus.dataset(corpus.ood, features)}
        reader = WordReader(
            words=corpus.vocabulary.words,
            max_words=corpus.embedding["max_tokens"],
            tokens=self.tokens,
            language_model=None if model is None else str(self._folder().resolve()),
        )
        common = Task(splits, class_names=names, reader=reader, shifts=shifts)
        sizes: dict[str, Any] = dict(corpus.embedding)
        if model is None:
            return replace(common, embedding=TokenConfig(**sizes))
        sizes |= {"features": model.width, "layers": model.layers}
        return replace(common, sizes=sizes)

    def _folder(self) -> Path:
        return language_model_dir() if self.language_model == "imdb" else Path(self.language_model)

    def _model(self) -> ElmoModel | None:
        if self.language_model == "none":
            return None
        folder = self._folder()
        if not (folder / "elmo.json").exists():
            raise InputError(
                f"cola: no language model in {folder}; train one with `sgpa data language-model`, or learn "
                "from the words alone with --set task.language_model=none"
            )
        return ElmoModel.load(folder)


@checked
@dataclass(frozen=True, kw_only=True)
class TextTableConfig:
    """A CSV, TSV or Parquet table with a column of texts and one of labels.

    The rows are split by `split_seed`; in a "stratified" `split` every class has its share of the test rows.
    The tokenizer is trained on rows that are not tested on; `TextReader.fit` explains `words` and `pairs`.
    With a `backbone` the model reads the hidden states of that network instead (`TextBackbone`).
    """

    path: str
    text_column: str | None = None
    label_column: str | None = None
    vocabulary: int = 8000
    lowercase: bool = False
    words: bool = False
    pairs: bool = False
    split_seed: int = 0
    split: str = "random"
    backbone: str | None = None
    layer: int | None = None
    max_tokens: int = BACKBONE_TOKENS
    group: int = GROUP

    augmentation = ""

    def __post_init__(self) -> None:
        vocabulary = size_check("vocabulary", self.vocabulary, MOST_TOKENS, least=300)
        check_fields("task", [vocabulary, check_split(self.split)])

    @property
    def dataset(self) -> str:
        """Name of the file."""
        return Path(self.path).stem

    def prepare(self, progress: Progress | None = None) -> None:
        """Compute and keep the features of all texts, so that `load` finds them."""
        if self.backbone is not None:
            texts, _, _ = read_texts(Path(self.path), self.text_column, self.label_column)
            self._network().features(texts, progress, keep=True)

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """Read the table, train the tokenizer or compute features, and split the rows."""
        del seed, data_dir
        texts, labels, classes = read_texts(Path(self.path), self.text_column, self.label_column)
        content = hashlib.sha256("\0".join([*classes, *texts]).encode()).hexdigest()[:16]
        if self.backbone is not None:
            return self._with_features(texts, labels, tuple(classes), content)
        rest, test = split_test(labels, self.split_seed, self.split)
        learned = [texts[i] for i in rest.tolist()]
        reader = TextReader.fit(
            learned,
            vocabulary=self.vocabulary,
            lowercase=self.lowercase,
            words=self.words,
            pairs=self.pairs,
            column=self.text_column,
        )
        ids, lengths = reader.encode(texts)  # [N, T], [N]
        splits, _, _ = split_user_rows(Dataset(ids, labels, lengths=lengths), self.split_seed, self.split)
        words = reader.sizes["vocabulary"] - len(known_pairs(reader.tokenizer))
        return Task(
            splits,
            sizes=reader.sizes,
            outputs=len(classes),
            class_names=tuple(classes),
            reader=reader,
            ood={
                "random-tokens": lambda: OodSet(
                    random_tokens(ids[test], lengths[test], words, len(SPECIAL))[:OOD_ROWS]
                )
            },
            display=show_texts([texts[i] for i in test.tolist()]),
            note=split_note(splits, self.split),
            content=content,
        )

    def _network(self) -> TextBackbone:
        assert self.backbone is not None
        return TextBackbone(
            name=self.backbone, layer=self.layer, max_tokens=self.max_tokens, group=self.group
        )

    def _with_features(
        self, texts: list[str], labels: Tensor, classes: tuple[str, ...], content: str
    ) -> Task:
        network = self._network()
        features = network.features(texts, keep=True)  # [N, T, F]
        lengths = (~features.padding).sum(1)  # [N]
        splits, _, test = split_user_rows(
            Dataset(features, labels, lengths=lengths), self.split_seed, self.split
        )
        return Task(
            splits,
            sizes={"width": features.values.shape[-1], "max_tokens": network.tokens},
            outputs=len(classes),
            class_names=classes,
            reader=TextFeatureReader(backbone=network, digest=network.digest, column=self.text_column),
            display=show_texts([texts[i] for i in test.tolist()]),
            note=f"{split_note(splits, self.split)} Inputs are features of the network {self.backbone}.",
            content=f"{content} {network.digest}",
        )
