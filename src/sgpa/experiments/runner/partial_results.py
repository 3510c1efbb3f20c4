"""What a test has found so far, kept line by line: a test that was stopped goes on where it was."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sgpa.core.files import write_text
from sgpa.evaluation.evaluate import Results
from sgpa.training.logs import append, read_log


class Parts:
    """Called with a part's name and how to measure it; measures what is not yet in the file.

    The first line says what is tested, and how: a file about anything else is begun anew.
    """

    def __init__(self, file: Path, about: dict[str, Any]) -> None:
        lines = list(read_log(file)) if file.exists() else []
        if not lines or lines[0] != about:
            lines = [about]
        write_text(file, "".join(json.dumps(line) + "\n" for line in lines))  # a line cut short is gone
        self.file = file
        self.found = {line["part"]: Results(line["records"], line["curves"]) for line in lines[1:]}

    def __call__(self, part: str, measure: Callable[[], Results]) -> Results:
        """The part's results, from the file or from `measure`."""
        if part not in self.found:
            found = self.found[part] = measure()
            append(self.file, {"part": part, "records": found.records, "curves": found.curves})
        return self.found[part]
