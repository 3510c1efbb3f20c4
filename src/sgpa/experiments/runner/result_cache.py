"""Parts of a test that are measured already, kept line by line, so that a stopped test can be resumed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from sgpa.core.arguments import fits
from sgpa.core.files import write_text
from sgpa.evaluation.results import ResultCache, Results
from sgpa.training.logs import append, read_log


class SavedPart(TypedDict):
    """A line of the file after the first."""

    part: str
    records: list[dict[str, Any]]
    curves: list[dict[str, Any]]


class FileCache(ResultCache):
    """Called with a part's name and a function that measures it; measures what is not in the file yet.

    The first line of the file holds `metadata`: what is tested, and how. A file with other metadata is
    started anew.
    """

    def __init__(self, file: Path, metadata: dict[str, Any]) -> None:
        lines = list(read_log(file, dict[str, Any])) if file.exists() else []
        if not lines or lines[0] != metadata or not all(fits(line, SavedPart) for line in lines[1:]):
            lines = [metadata]
        write_text(file, "".join(json.dumps(line) + "\n" for line in lines))  # drops a line cut short
        self.file = file
        self.parts = {line["part"]: Results(line["records"], line["curves"]) for line in lines[1:]}

    def __call__(self, part: str, measure: Callable[[], Results]) -> Results:
        """The part's results, from the file or from `measure`."""
        if part not in self.parts:
            results = self.parts[part] = measure()
            append(self.file, {"part": part, "records": results.records, "curves": results.curves})
        return self.parts[part]
