"""`sgpa predict`: answers for new inputs."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpa.cli.options import (
    RUN_FOLDER,
    AsJson,
    Device,
    Run,
    rename_arguments_in_errors,
    require_folder,
    require_path,
    saved_predictor,
    show_json,
)
from sgpa.cli.progress import ProgressBars, console
from sgpa.core.pretrained import located
from sgpa.core.pretrained import samples as samples_of

if TYPE_CHECKING:
    from sgpa.inference.answers import Answer, Trained

FILE_WIDTH = 200  # characters of a line of the table in a file
SHOWN = 60  # characters of a text in the table
MOST_REASONS = 5  # inputs that cannot be read whose reason is printed


def predict(
    run: Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Images or folders of images; for texts and SMILES .txt (one per line), .csv or .parquet. "
            "`sgpa predict digits` alone shows its two samples.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="A text, or a SMILES; may be given several times.", show_default=False),
    ] = None,
    column: Annotated[
        str | None, typer.Option(help="The column of texts or SMILES in tables; guessed by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the answers to this CSV file.", show_default=False)
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(
            help="Number of samples to average; 0 uses SGPA's variance in closed form. By default ten, for "
            "which the limit of trust was chosen.",
            show_default=False,
        ),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            help="Trust answers so that at most this share of the trusted ones is wrong; for values, trust "
            "answers whose 90 % interval has at most this half-width. By default as in training.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Make an input that cannot be read an error.")
    ] = False,
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predict labels or values for new inputs, with uncertainty. Needs none of the training data.

    An answer is not trusted for one of two reasons. Unsure: its entropy (for values, its variance) is above a
    limit, chosen on held-out data so that few of the trusted answers are wrong (--max-error). Unfamiliar: the
    input is more novel than 95 % of held-out data. An input that cannot be read gets the answer "unreadable",
    with the reason.
    """
    run = located(run)
    require_folder(run, RUN_FOLDER)
    files = files or ([] if text else samples_of(run))
    for file in files:
        require_path(file)
    from sgpa.core.devices import check_device
    from sgpa.core.files import check_file_name
    from sgpa.inference.answers import write_csv
    from sgpa.inference.readers import read

    for file in files or []:
        check_file_name(file)
    check_device(device)
    saved = saved_predictor(run)
    with console.status("reading the model"):
        trained = saved.open(device)
    options = {"text_column": "--column", "smiles_column": "--column", "`samples`": "--samples"}
    options |= {"trust: max_error": "--max-error", "max_error=": "--max-error "}
    with rename_arguments_in_errors(options):
        if samples is not None:
            trained = trained.with_samples(samples)
        if max_error is not None:
            trained = trained.with_max_error(max_error)
        with console.status("reading the inputs"):
            rows = read(trained.reader, files, text or [], column, strict=strict)
        with ProgressBars(resumes=False) as bars:
            answers = trained.answers(rows, bars.on_progress)
    if out is not None:
        write_csv(answers, out)
    if as_json:
        show_json(answers)
        return
    _show(answers, trained)
    if out is not None:
        typer.echo(f"Answers: {out}")


def _show(answers: "Sequence[Answer]", trained: "Trained") -> None:
    """One line per answer, and the reasons for inputs that cannot be read."""
    from sgpa.inference.answers import UNREADABLE

    regression = "value" in answers[0]
    columns = (
        {"value": "value", "deviation": "± deviation", "model_deviation": "from the model"}
        | {"low_90": "90 % from", "high_90": "to"}
        if regression
        else {"label": "label", "probability": "prob.", "entropy": "entropy"}
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("input", overflow="fold")
    for heading in columns.values():
        table.add_column(heading, justify="left" if heading == "label" else "right")
    measured = "novelty" in answers[0]
    if measured:
        table.add_column("novelty", justify="right")
    table.add_column("trust")
    folder = _common_folder(answers)
    for answer in answers:
        shown = [answer[name] for name in columns]
        cells = [_cell(x, ".4g" if regression else ".3f") for x in shown]
        cells += [_cell(answer["novelty"], ".2f")] if measured else []
        trust = (
            "yes" if answer["trust"] else f"[bold red]no[/] ({escape(answer['reason'].partition(':')[0])})"
        )
        table.add_row(escape(_input(answer, folder)), *cells, trust)
    screen = Console()
    (screen if screen.is_terminal else Console(width=FILE_WIDTH)).print(table)  # lines of a file stay whole
    unreadable = [answer for answer in answers if answer["reason"].startswith(UNREADABLE)]
    for answer in unreadable[:MOST_REASONS]:
        typer.echo(f"{_input(answer, folder)}: {answer['reason']}")
    if len(unreadable) > MOST_REASONS:
        typer.echo(
            f"and {len(unreadable) - MOST_REASONS} more that cannot be read; --json and --out list all"
        )
    doubtful = [answer["reason"] for answer in answers if not answer["trust"]]
    if doubtful:
        typer.echo(f"Do not trust {len(doubtful)} of {len(answers)} answers.")
    for sentence in trained.rule.doubts:
        typer.echo(sentence)


def _cell(value: "str | float | None", form: str) -> str:
    return escape(value) if isinstance(value, str) else "–" if value is None else f"{value:{form}}"


def _common_folder(answers: "Sequence[Answer]") -> Path | None:
    """The folder that holds the files of all answers; None for texts, SMILES and paths of both kinds."""
    files = [Path(answer["file"]) for answer in answers if "text" not in answer and "smiles" not in answer]
    if not files or len({file.is_absolute() for file in files}) > 1:
        return None
    return Path(os.path.commonpath([file.parent for file in files]))


def _input(answer: "Answer", folder: Path | None) -> str:
    """The input of an answer, short enough for a table; files without the folder that they share."""
    text = answer.get("text", answer.get("smiles"))
    if text is None:
        file = Path(answer["file"])
        return str(file if folder is None else file.relative_to(folder))
    if not text:
        return f"row {answer['row']}"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
