"""`sgpa audit`: how calibrated somebody's classifier is, and what would change it."""

from pathlib import Path
from typing import Annotated

import typer

from sgpa.cli.options import Device, command_line, rename_arguments_in_errors, require_writable
from sgpa.cli.progress import ProgressBars, console
from sgpa.experiments.audit.checks import check_data, read_kind

LEAST = 60  # rows; `sgpa.experiments.audit.rows.MIN_ROWS`, which imports torch


def audit(
    model: Annotated[
        Path,
        typer.Argument(
            help="A folder that save_pretrained of Hugging Face transformers wrote: a classifier of texts or "
            "images.",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path,
        typer.Argument(
            help="Rows with labels that the model was not trained on: CSV, TSV or Parquet of texts, or a "
            "folder with one sub-folder of images per class.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; runs/audit-<model> by default.")
    ] = None,
    train: Annotated[
        Path | None,
        typer.Option(help="Rows that the model was trained on, for statistics; labels are not read."),
    ] = None,
    column: Annotated[str | None, typer.Option(help="The column of texts; guessed by default.")] = None,
    label: Annotated[str | None, typer.Option(help="The column of labels; guessed by default.")] = None,
    max_rows: Annotated[
        int, typer.Option(min=LEAST, help="Rows to use; larger data sets are subsampled by class.")
    ] = 2000,
    seed: Annotated[int, typer.Option(help="Random seed, 0 or more.")] = 0,
    device: Device = "cpu",
) -> None:
    """Audit a trained classifier: accuracy, calibration, unfamiliar inputs, and what would improve them.

    Writes one page and one JSON file with temperature, vector and structured matrix scaling, last-layer
    Laplace, MC dropout and SGPA side by side, and one recommendation. The model is not changed, and nothing
    is downloaded or sent.
    """
    kind = read_kind(model)
    check_data(kind, data)
    if train is not None:
        check_data(kind, train)
    out = out or Path("runs") / f"audit-{model.resolve().name}"
    require_writable(out)
    from sgpa.experiments.audit.audit import audit as run
    from sgpa.report.audit import write_audit

    options = {"text_column": "--column", "label_column": "--label", "max_rows": "--max-rows"}
    with rename_arguments_in_errors(options), ProgressBars(resumes=False) as bars:
        result = run(
            model,
            data,
            train=train,
            text_column=column,
            label_column=label,
            max_rows=max_rows,
            seed=seed,
            device=device,
            on_progress=bars.on_progress,
            announce=lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True),
        )
        page = write_audit(result.as_dict(), out, command_line())
    for sentence in result.recommendation:
        typer.echo(sentence)
    typer.echo(f"Page: {page}")
