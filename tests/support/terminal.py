"""The command line in this process: its exit status and what it prints."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from sgpa.cli.app import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of an error, which must be the last of standard error."""
        assert self.code == 2, self
        lines = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, self.err
        assert "Traceback" not in self.err
        assert self.err.splitlines()[-1] == lines[0]
        return lines[0]


def sgpa(*arguments: object) -> Outcome:
    """Run `sgpa arguments` in this process."""
    out, err = io.StringIO(), io.StringIO()
    width = {"COLUMNS": "200", "TERMINAL_WIDTH": "200"}
    with (
        patch.object(sys, "argv", ["sgpa", *map(str, arguments)]),
        patch.dict("os.environ", width),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return Outcome(code, out.getvalue(), err.getvalue())
