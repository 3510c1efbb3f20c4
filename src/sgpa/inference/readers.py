"""How a trained model reads new files: what must be kept beside it, and nothing of its training data.

Each kind of input has a reader. It is saved as a small `reader.json`, with a `tokenizer.json` where there is
a tokenizer, and makes of files and texts exactly what the model was trained on.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from tokenizers import Tokenizer

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import read_json, write_json, write_text
from sgpa.core.inputs import Inputs, Words
from sgpa.data.graphs.batch import BONDS, Vocabulary, identified
from sgpa.data.graphs.molecules import SMILES_NAMES, from_smiles, read_each
from sgpa.data.images.digits import normalise
from sgpa.data.images.folder import files_below, read_images
from sgpa.data.language_model.model import ElmoModel
from sgpa.data.texts.tables import TEXT_COLUMNS, read_unlabelled
from sgpa.data.texts.tokenized import MAX_TOKENS, encode, load_tokenizer
from sgpa.data.texts.words import SPLIT, WordVocabulary

FILE, TOKENIZER = "reader.json", "tokenizer.json"
TABLES = (".csv", ".tsv", ".tab", ".parquet")
GREY = (0.299, 0.587, 0.114)  # how much of each colour is brightness


@dataclass(frozen=True)
class Rows:
    """New inputs, and for each what tells it from the others: its file, its row there, its text."""

    inputs: Inputs
    about: list[dict[str, Any]]


class Reader(Protocol):
    """Reads one kind of input."""

    kind: ClassVar[str]

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """Files and texts as a model reads them; `column` is where the texts of a table are."""

    def save(self, folder: Path) -> None:
        """Write what `load` needs."""


@dataclass(frozen=True, kw_only=True)
class ImageReader:
    """Images cut to centred squares of `size` pixels; `grey` ones are floats between -1 and 1."""

    size: int = 32
    grey: bool = False

    kind: ClassVar[str] = "images"

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """Image files, and all images below folders."""
        if texts or column is not None:
            raise InputError("this model reads images; name image files or folders, not texts or columns")
        found = [file for path in _there(files) for file in (files_below(path) if path.is_dir() else [path])]
        if not found:
            named = ", ".join(map(str, files))
            raise InputError(
                f"no image in {named}" if files else "nothing to predict: name images or folders"
            )
        pixels = torch.from_numpy(read_images(found, self.size)).permute(0, 3, 1, 2)  # [N, 3, size, size]
        if self.grey:
            weights = torch.tensor(GREY).view(3, 1, 1)
            pixels = normalise((pixels * weights).sum(1, keepdim=True).div(255))  # [N, 1, size, size]
        return Rows(pixels.contiguous(), [{"file": str(file)} for file in found])

    def save(self, folder: Path) -> None:
        """As plain data."""
        _save(self.kind, asdict(self), folder)

    @staticmethod
    def load(saved: dict[str, Any], folder: Path) -> "ImageReader":
        """From plain data."""
        del folder
        return ImageReader(**saved)


@dataclass(frozen=True, kw_only=True)
class TextReader:
    """Texts as the ids of a tokenizer, at most `max_tokens` of them; tables may have them in `column`."""

    tokenizer: Tokenizer
    max_tokens: int = MAX_TOKENS
    column: str | None = None

    kind: ClassVar[str] = "texts"

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """A text a line of .txt files, the text column of tables, and texts as they are."""
        about = _texts(files, texts, column, _names(self.column, TEXT_COLUMNS), "text")
        ids, _ = encode(self.tokenizer, [row["text"] for row in about], self.max_tokens)  # [N, T]
        return Rows(ids, about)

    def save(self, folder: Path) -> None:
        """As plain data, the tokenizer in a file of its own."""
        write_text(folder / TOKENIZER, self.tokenizer.to_str())
        _save(self.kind, {"max_tokens": self.max_tokens, "column": self.column}, folder)

    @staticmethod
    def load(saved: dict[str, Any], folder: Path) -> "TextReader":
        """From plain data and the tokenizer's file."""
        return TextReader(tokenizer=load_tokenizer(folder / TOKENIZER), **saved)


@dataclass(frozen=True, kw_only=True)
class WordReader:
    """Sentences as known words, with the features of a language model if there is one.

    `tokens` is "raw" (split at white space, cased) or "tokenized" (marks apart, lower case).
    `language_model` is the model's folder, which has to stay where it is.
    """

    words: tuple[str, ...]
    max_words: int
    tokens: str = "raw"
    language_model: str | None = None

    kind: ClassVar[str] = "words"

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """A sentence a line of .txt files, the text column of tables, and sentences as they are."""
        about = _texts(files, texts, column, TEXT_COLUMNS, "text")
        rows = [SPLIT[self.tokens](row["text"])[: self.max_words] for row in about]
        ids, _ = WordVocabulary(self.words).encode(rows)  # [N, T]
        if self.language_model is None:
            return Rows(ids, about)
        features = ElmoModel.load(self.language_model).features(rows).half()  # [N, T, L, F]
        return Rows(Words(ids, features), about)

    def save(self, folder: Path) -> None:
        """As plain data."""
        _save(self.kind, asdict(self), folder)

    @staticmethod
    def load(saved: dict[str, Any], folder: Path) -> "WordReader":
        """From plain data."""
        del folder
        return WordReader(**saved | {"words": tuple(saved["words"])})


@dataclass(frozen=True, kw_only=True)
class MoleculeReader:
    """SMILES as graphs whose atoms and bonds are numbered as in training; `column` is theirs in tables."""

    atoms: tuple[str, ...]
    bonds: tuple[str, ...] = BONDS
    identifiers: str = "laplacian"
    width: int = 16
    column: str | None = None

    kind: ClassVar[str] = "molecules"

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """A SMILES a line of .txt files, the SMILES column of tables, and SMILES as they are."""
        about = _texts(files, texts, column, _names(self.column, SMILES_NAMES), "smiles")
        vocabulary = Vocabulary(self.atoms, self.bonds)
        graphs = _each(about, lambda row: from_smiles(row["smiles"], vocabulary))
        return Rows(identified(graphs, self.identifiers, self.width), about)

    def save(self, folder: Path) -> None:
        """As plain data."""
        _save(self.kind, asdict(self), folder)

    @staticmethod
    def load(saved: dict[str, Any], folder: Path) -> "MoleculeReader":
        """From plain data."""
        del folder
        return MoleculeReader(**saved | {name: tuple(saved[name]) for name in ("atoms", "bonds")})


KINDS: dict[str, Callable[[dict[str, Any], Path], Reader]] = {
    kind.kind: kind.load for kind in (ImageReader, TextReader, WordReader, MoleculeReader)
}


def load(folder: Path) -> Reader:
    """The reader that was saved in a folder."""
    saved = read_json(folder / FILE)
    try:
        return KINDS[saved.pop("kind")](saved, folder)
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"{folder / FILE} does not say how inputs are read; finish the run again"
        ) from None


def _save(kind: str, settings: dict[str, Any], folder: Path) -> None:
    write_json(folder / FILE, {"kind": kind, **settings})


def _there(files: Sequence[Path]) -> Sequence[Path]:
    """The files, once each of them is known to exist."""
    if missing := [str(path) for path in files if not path.exists()]:
        raise InputError(f"{missing[0]} does not exist; check the path")
    return files


def _texts(
    files: Sequence[Path], texts: Sequence[str], column: str | None, common: Sequence[str], what: str
) -> list[dict[str, Any]]:
    """Every text with its file and row, under the name `what`; texts without a file come first."""
    rows: list[dict[str, Any]] = [{"file": None, "row": i, what: text} for i, text in enumerate(texts, 1)]
    if not all(text.strip() for text in texts):
        raise InputError(f"a {what} is empty; say what to predict for")
    for path in _there(files):
        if path.suffix.lower() == ".txt":
            lines = _lines(path)
        elif path.suffix.lower() in TABLES:
            lines = list(enumerate(read_unlabelled(path, column, common, what), 1))
        else:
            raise InputError(f"{path}: expected .txt with one {what} a line, or .csv, .tsv or .parquet")
        rows += [{"file": str(path), "row": row, what: text} for row, text in lines]
    if not rows:
        raise InputError(f"nothing to predict: name files with a {what} a line or a column of them")
    return rows


def _names(column: str | None, common: Sequence[str]) -> tuple[str, ...]:
    """Names a column may have: first the one it had in training."""
    return tuple(common) if column is None else (column.strip().lower(), *common)


def _lines(path: Path) -> list[tuple[int, str]]:
    """The lines of a file that are not blank, with their numbers."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start} of it); save it again with that encoding"
        ) from None
    found = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not found:
        raise InputError(f"{path} is empty; write one input a line")
    return found


def _each(about: Sequence[dict[str, Any]], read: Callable[[dict[str, Any]], Any]) -> list[Any]:
    """`read` of every row; the first rows that cannot be read are named in one error."""
    return read_each(((f"{row['file'] or 'text'}, row {row['row']}", row) for row in about), read)
