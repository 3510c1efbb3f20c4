"""The held-out rows of `fit`: every class has its share of them, except in folders from before that rule."""

from pathlib import Path
from typing import TypedDict

from sgpa.core.files import make_folder, read_json, write_json
from sgpa.data import Dataset
from sgpa.data.split import split_rows
from sgpa.training import process_group

FILE = "split.json"  # in the folder of a run


class SavedSplit(TypedDict):
    """`split.json`."""

    stratified: bool


def held_out_split(
    data: Dataset, share: float, seed: int, directory: Path | None = None
) -> tuple[Dataset, Dataset]:
    """Rows to train on and rows to hold out.

    Classes keep their shares. A `directory` with a run that has no note of its split was made before that
    rule: it keeps its random split, so that it can be read and resumed.
    """
    stratified = True
    if directory is not None:
        file = directory / FILE
        if file.exists():
            stratified = bool(read_json(file, SavedSplit)["stratified"])
        elif any(directory.glob("*/log.jsonl")):
            stratified = False
        elif process_group.leader():
            make_folder(file.parent)
            write_json(file, {"stratified": True})
    held_out = max(1, round(share * len(data)))
    kept, out = split_rows(data.targets, held_out, seed, stratified=stratified)
    return data[kept], data[out]
