"""Folders of saved things, each with a function that opens it: files in them are damaged, one at a time."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutations import changed_bytes
from tests.fuzz.values import PLAIN

FEW = 3  # entries of a long list or table that are changed one by one
LONG_LIST, LONG_TABLE = 12, 60


@dataclass(frozen=True)
class Source:
    """Something saved: `open` reads a copy of the folder in which the named file was changed."""

    name: str
    folder: Path
    open: Callable[[str], object]
    weight: float

    def damaged(self, rng, work: Path) -> tuple[str, Callable[[], object]]:
        """A case: `work` becomes a copy with one file changed or removed."""
        copy(self.folder, work)
        file = rng.choice(sorted(path for path in work.rglob("*") if path.is_file()))
        others = [path for path in self.folder.rglob("*") if path.suffix == file.suffix and path.is_file()]
        name = str(file.relative_to(work))
        if rng.random() < 0.02:
            file.unlink()
        else:
            file.write_bytes(changed_bytes(rng, file, others))
        return f"{self.name}/{name}", lambda: self.open(name)


def copy(folder: Path, work: Path) -> None:
    """Make `work` a copy of a folder."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder, work)


def every_entry(folder: Path) -> Iterator[tuple[str, object]]:
    """Every JSON file below a folder, with every entry replaced by every hostile value, or removed.

    The content that was yielded changes with the next one.
    """
    for file in sorted(folder.rglob("*.json")):
        for changed in _changed(json.loads(file.read_bytes())):
            yield str(file.relative_to(folder)), changed


def _changed(data):
    """Plain data with one entry changed; of long lists and tables only the first few entries."""
    yield from PLAIN
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else []
    for key in keys if len(keys) <= (LONG_TABLE if isinstance(data, dict) else LONG_LIST) else keys[:FEW]:
        copied = dict(data) if isinstance(data, dict) else list(data)
        for value in _changed(data[key]):
            copied[key] = value
            yield copied
        copied.pop(key)
        yield copied
