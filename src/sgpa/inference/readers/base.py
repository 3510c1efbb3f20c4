"""The contract of a reader, and its file in a saved predictor."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.files import check_file_name, write_json
from sgpa.core.inputs import Inputs

FILE, TOKENIZER = "reader.json", "tokenizer.json"


@dataclass(frozen=True)
class Rows:
    """New inputs, and a description of each: its file, its row there, its text.

    `problems` has the reason for each input that cannot be read, by its place in `metadata`; `inputs` are the
    others. `unknown` [N] is the share of an input that the reader does not know, such as words outside of
    the vocabulary; None where everything is known.
    """

    inputs: Inputs
    metadata: list[dict[str, Any]]
    problems: Mapping[int, str] = field(default_factory=dict)
    unknown: Tensor | None = None


class Reader(Protocol):
    """Reads one kind of input."""

    kind: ClassVar[str]

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """Inputs of files and texts.

        Args:
            files: Files to read; what they may be depends on the reader.
            texts: Inputs given directly.
            column: The column of a table that holds the inputs.

        Returns:
            Inputs as in training, one row each.
        """

    def save(self, folder: Path) -> None:
        """Write the fields of a dataclass to `reader.json`; what is no JSON needs files of its own."""
        save_settings(self.kind, asdict(self), folder)  # type: ignore[call-overload]


def save_settings(kind: str, settings: dict[str, Any], folder: Path) -> None:
    """Write the reader's JSON file."""
    write_json(folder / FILE, {"kind": kind, **settings})


def existing(paths: Sequence[Path]) -> Sequence[Path]:
    """The paths, if all of them are regular files or folders with printable names."""
    for path in paths:
        check_file_name(path)
        if not path.exists():
            raise InputError(f"{path} does not exist; check the path")
        if not path.is_file() and not path.is_dir():
            raise InputError(f"{path} is not a regular file; name a file or a folder")
    return paths
