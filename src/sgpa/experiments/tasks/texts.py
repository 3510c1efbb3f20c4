"""Texts: IMDB reviews and the sentences of CoLA."""

from dataclasses import dataclass, replace
from pathlib import Path

from sgpa.core.errors import InputError, check_fields
from sgpa.data.language_model.features import cached_features, language_model_dir
from sgpa.data.language_model.model import ElmoModel
from sgpa.data.texts.cola import COLA_TRAIN, SPLIT, Features, cola
from sgpa.data.texts.imdb import imdb
from sgpa.experiments.tasks.base import Task
from sgpa.inference.readers import TextReader, WordReader
from sgpa.models import TokenConfig


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
        found = imdb(seed, data_dir=data_dir, vocabulary=self.vocabulary, max_tokens=self.max_tokens)
        reader = TextReader(tokenizer=found.tokenizer, max_tokens=self.max_tokens)
        return Task(found.splits, found.embedding, class_names=found.class_names, reader=reader)


@dataclass(frozen=True, kw_only=True)
class ColaConfig:
    """Is this sentence acceptable English? Every seed has its own split.

    `language_model` is the folder of a trained language model whose features stand beside the words,
    "imdb" for the one that `sgpa data language-model` trains on IMDB's texts, or "none". `holdout` rows are
    kept out of training where something is to be selected; the protocol selects nothing.
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
        """7,262 sentences to learn from, 1,816 of the same sources and 516 of others to be tested on."""
        found = cola(seed, holdout=self.holdout, tokens=self.tokens, data_dir=data_dir)
        model = self._model()
        features: Features | None = None if model is None else cached_features(model, found.sentences)
        splits, names = found.splits(features), found.class_names
        shifts = {"cola-ood": lambda: found.dataset(found.ood, features)}
        reader = WordReader(
            words=found.vocabulary.words,
            max_words=found.embedding["max_tokens"],
            tokens=self.tokens,
            language_model=None if model is None else str(self._folder().resolve()),
        )
        common = Task(splits, class_names=names, reader=reader, shifts=shifts)
        if model is None:
            return replace(common, embedding=TokenConfig(**found.embedding))
        sizes = found.embedding | {"features": model.width, "layers": model.layers}
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
