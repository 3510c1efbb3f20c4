"""Texts from .txt files, tables and the command line, as token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tokenizers import Tokenizer
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.files import write_text
from sgpa.core.limits import size_check
from sgpa.data.texts.tables import TEXT_COLUMNS, read_unlabelled
from sgpa.data.texts.tokenizer import (
    MAX_TOKENS,
    add_pairs,
    encode,
    has_words,
    pad_id,
    train_tokenizer,
    train_word_tokenizer,
    unknown_words,
)
from sgpa.inference.readers.base import TOKENIZER, Reader, Rows, existing, save_settings

MOST_TOKENS = 1_000_000
FEW_TEXTS = 10_000  # up to here the order of words says little beside which words there are
TEXTS_FOR_PAIRS = 1000  # from here on pairs of words say more than they cost
TOKENS_WITH_PAIRS = 1024  # of a text
TABLES = (".csv", ".tsv", ".tab", ".parquet")


@checked
@dataclass(frozen=True, kw_only=True)
class TextReader(Reader):
    """Texts as the ids of a tokenizer, at most `max_tokens` of them; `column` is theirs in tables.

    With `distinct` every token of a text is read once, where it occurs first, pairs of words included.
    """

    tokenizer: Tokenizer
    max_tokens: int = MAX_TOKENS
    distinct: bool = False
    column: str | None = None

    kind: ClassVar[str] = "texts"
    row: ClassVar[str] = "text"
    columns: ClassVar[tuple[str, ...]] = TEXT_COLUMNS

    def __post_init__(self) -> None:
        check_fields("texts", [size_check("max_tokens", self.max_tokens, MOST_TOKENS, least=3)])

    @staticmethod
    def fit(
        texts: Sequence[str],
        *,
        vocabulary: int = 8000,
        lowercase: bool = True,
        words: bool = True,
        pairs: bool = True,
        column: str | None = None,
    ) -> "TextReader":
        """The reader of a table of texts.

        Args:
            texts: Training texts.
            vocabulary: Largest number of tokens, without pairs.
            lowercase: Whether upper and lower case are the same.
            words: Whether a text is its different words, where texts are few and blanks separate words, and
                not a sequence of pieces of words.
            pairs: Whether pairs of neighbouring words are tokens too, where texts are many enough.
            column: Their column.

        Example:
            >>> TextReader.fit(["a good film", "a bad film"] * 10).distinct
            True
        """
        if not (words and len(texts) <= FEW_TEXTS and has_words(texts)):
            tokenizer = train_tokenizer(texts, vocabulary=vocabulary, lowercase=lowercase)
            return TextReader(tokenizer=tokenizer, column=column)
        tokenizer = train_word_tokenizer(texts, vocabulary)
        if not (pairs and len(texts) >= TEXTS_FOR_PAIRS):
            return TextReader(tokenizer=tokenizer, distinct=True, column=column)
        tokenizer = add_pairs(tokenizer, texts)
        return TextReader(tokenizer=tokenizer, max_tokens=TOKENS_WITH_PAIRS, distinct=True, column=column)

    @property
    def sizes(self) -> dict[str, int]:
        """What the embedding of a model has to know."""
        size = self.tokenizer.get_vocab_size()
        return {"vocabulary": size, "pad": pad_id(self.tokenizer), "max_tokens": self.max_tokens}

    def encode(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Ids [N, T] of texts, and their lengths [N]."""
        return encode(self.tokenizer, texts, self.max_tokens, distinct=self.distinct)

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """One text a line of .txt files, the text column of tables, and texts given directly."""
        metadata = read_rows(files, texts, column, column_names(self.column, TEXT_COLUMNS), "text")
        rows = [row["text"] for row in metadata]
        ids, _ = self.encode(rows)  # [N, T]
        return Rows(ids, metadata, unknown=unknown_words(self.tokenizer, rows))

    def save(self, folder: Path) -> None:
        """Write `reader.json` and `tokenizer.json`."""
        write_text(folder / TOKENIZER, self.tokenizer.to_str())
        settings = {"max_tokens": self.max_tokens, "column": self.column}
        save_settings(self.kind, settings | ({"distinct": True} if self.distinct else {}), folder)


def column_names(column: str | None, common: Sequence[str]) -> tuple[str, ...]:
    """Column names to look for: first the one of training, then common ones."""
    return tuple(common) if column is None else (column.strip().lower(), *common)


def read_rows(
    files: Sequence[Path],
    texts: Sequence[str],
    column: str | None,
    common: Sequence[str],
    what: str,
    *,
    keep_empty: bool = False,
) -> list[dict[str, Any]]:
    """Every text with its file and row, under the key `what`; texts given directly come first.

    Args:
        files: .txt files with one text a line, or tables.
        texts: Texts given directly.
        column: The column of the tables.
        common: Column names to look for where `column` is None.
        what: What a text is called in messages: "text" or "smiles".
        keep_empty: Keep texts that are empty, as "", instead of an error; blank lines of .txt are no rows.
    """
    rows: list[dict[str, Any]] = [{"file": None, "row": i, what: text} for i, text in enumerate(texts, 1)]
    if not keep_empty and not all(text.strip() for text in texts):
        raise InputError(f"a {what} is empty; give one that is not")
    for path in existing(files):
        if path.suffix.lower() == ".txt":
            lines = _lines(path)
        elif path.suffix.lower() in TABLES:
            lines = list(enumerate(read_unlabelled(path, column, common, what, keep_empty=keep_empty), 1))
        else:
            raise InputError(f"{path}: expected .txt with one {what} a line, or .csv, .tsv or .parquet")
        rows += [{"file": str(path), "row": row, what: text} for row, text in lines]
    if keep_empty:
        rows = [row | {what: (row[what] or "").strip()} for row in rows]
    if not rows:
        raise InputError(f"nothing to predict: name files with one {what} a line, or with a column of them")
    return rows


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers."""
    if not path.is_file():
        raise InputError(f"{path} is a folder; name a .txt file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start} of it); save it again with that encoding"
        ) from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InputError(f"{path} is empty; write one input a line")
    return lines
