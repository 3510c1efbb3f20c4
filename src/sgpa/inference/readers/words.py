"""Sentences as words, with the features of a language model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sgpa.core.arguments import checked
from sgpa.core.errors import check_fields
from sgpa.core.inputs import Words
from sgpa.data.language_model.model import ElmoModel
from sgpa.data.texts.cola import SPLIT, WordVocabulary
from sgpa.data.texts.tables import TEXT_COLUMNS
from sgpa.inference.readers.base import Reader, Rows
from sgpa.inference.readers.texts import read_rows


@checked
@dataclass(frozen=True, kw_only=True)
class WordReader(Reader):
    """Sentences as word ids, with the features of a language model if there is one.

    `tokens` is "raw" (split at white space, cased) or "tokenized" (punctuation separated, lower case).
    `language_model` is the model's folder, which must stay where it is.
    """

    words: tuple[str, ...]
    max_words: int
    tokens: str = "raw"
    language_model: str | None = None

    kind: ClassVar[str] = "words"
    row: ClassVar[str] = "text"
    columns: ClassVar[tuple[str, ...]] = TEXT_COLUMNS

    def __post_init__(self) -> None:
        check_fields(
            "words",
            [
                ("max_words", self.max_words, self.max_words >= 1, "1 or more"),
                ("tokens", self.tokens, self.tokens in SPLIT, ", ".join(SPLIT)),
            ],
        )

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """One sentence a line of .txt files, the text column of tables, and sentences given directly."""
        metadata = read_rows(files, texts, column, TEXT_COLUMNS, "text")
        rows = [SPLIT[self.tokens](row["text"])[: self.max_words] for row in metadata]
        ids, _ = WordVocabulary(self.words).encode(rows)  # [N, T]
        if self.language_model is None:
            return Rows(ids, metadata)
        features = ElmoModel.load(self.language_model).features(rows).half()  # [N, T, L, F]
        return Rows(Words(ids, features), metadata)
