"""speed.json: measurements of several commands in one file, rewritten after every measurement."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from sgpa.core.files import read_json, write_json
from sgpa.core.provenance import provenance

FILE = "speed.json"
PARTS = ("model", "tokens", "inducing", "cpu")  # in the order of the page


@dataclass(frozen=True, kw_only=True)
class Row:
    """The cost of one method at one size; None where it was not measured."""

    part: str  # one of PARTS
    name: str
    tokens: int  # T
    num_global: int  # M
    batch: int  # rows of a step
    predicted: int | None = None  # rows of a prediction
    step: float | None = None  # median seconds of a training step
    predict: float | None = None  # median seconds of a prediction
    peak: int | None = None  # peak bytes of device memory
    error: str | None = None  # why a number is missing
    run: dict[str, Any] = field(default_factory=dict)  # versions, hardware, threads, commit and date

    @property
    def key(self) -> tuple[str, str, int, int]:
        """A later measurement with the same key replaces this one."""
        return self.part, self.name, self.tokens, self.num_global


class Record:
    """The rows of a folder's speed.json."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.rows = {row.key: row for row in read(self.path)} if self.path.exists() else {}
        self.run = provenance() | {"threads": torch.get_num_threads()}

    def add(self, row: Row) -> Row:
        """Add a row with versions, hardware and commit, and rewrite the file."""
        row = replace(row, run=self.run)
        self.rows[row.key] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write(self.path, self.rows.values())
        return row


def write(path: Path, rows: Iterable[Row]) -> None:
    """Write the rows atomically, in the order of the parts."""
    ordered = sorted(rows, key=lambda row: (PARTS.index(row.part), row.tokens, row.num_global))
    write_json(path, [asdict(row) for row in ordered])


def read(path: Path) -> list[Row]:
    """Read the rows of a file."""
    return [Row(**row) for row in read_json(path, list[dict])]
