"""`sgpa predict`: answers for new inputs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpa.cli.options import AsJson, Device, Run, rename_arguments_in_errors, saved_predictor, show_json
from sgpa.cli.progress import console

if TYPE_CHECKING:
    from sgpa.inference.answers import Answer, Trained

SHOWN = 60  # characters of a text in the table


def predict(
    run: Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Images or folders of images; for texts and SMILES .txt (one per line), .csv or .parquet.",
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
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Predict labels or values for new inputs, with uncertainty. Needs none of the training data.

    An answer is not trusted for one of two reasons. Unsure: its entropy (for values, its variance) is above a
    limit, chosen on held-out data so that at most 10 % of the trusted answers are wrong. Unfamiliar: the
    input is more novel than 95 % of held-out data.
    """
    from sgpa.core.devices import check_device
    from sgpa.inference.answers import write_csv

    check_device(device)
    saved = saved_predictor(run)
    with console.status("reading the model"):
        trained = saved.open(device)
    options = {"text_column": "--column", "smiles_column": "--column", "`samples`": "--samples"}
    with rename_arguments_in_errors(options), console.status("predicting"):
        if samples is not None:
            trained = trained.with_samples(samples)
        answers = trained.answers(trained.reader.read(files or [], text or [], column))
    if out is not None:
        write_csv(answers, out)
    if as_json:
        show_json(answers)
        return
    _show(answers, trained)
    if out is not None:
        typer.echo(f"Answers: {out}")


def _show(answers: "list[Answer]", trained: "Trained") -> None:
    """One line per answer."""
    regression = "value" in answers[0]
    columns = (
        {"value": "value", "deviation": "± deviation", "model_deviation": "from the model"}
        | {"data_deviation": "from the data"}
        if regression
        else {"label": "label", "probability": "probability", "entropy": "entropy"}
        | {"mutual_information": "mutual inf."}
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("input", overflow="fold")
    for heading in columns.values():
        table.add_column(heading, justify="left" if heading == "label" else "right")
    measured = "novelty" in answers[0]
    if measured:
        table.add_column("novelty", justify="right")
    table.add_column("trust")
    for answer in answers:
        shown = [answer[name] for name in columns]
        cells = [escape(x) if isinstance(x, str) else f"{x:.4g}" if regression else f"{x:.3f}" for x in shown]
        cells += [f"{answer['novelty']:.2f}"] if measured else []
        trust = "yes" if answer["trust"] else f"[bold red]no[/] ({answer['reason']})"
        table.add_row(escape(_input(answer)), *cells, trust)
    Console().print(table)
    doubtful = [answer["reason"] for answer in answers if not answer["trust"]]
    if doubtful:
        typer.echo(f"Do not trust {len(doubtful)} of {len(answers)} answers.")
    rule = trained.rule
    if rule.max_error is not None and not rule.guaranteed:
        typer.echo(
            f"The limit on entropy is an estimate: {rule.rows} held-out rows cannot show that at most "
            f"{rule.max_error:.0%} of the trusted answers are wrong."
        )


def _input(answer: "Answer") -> str:
    """The input of an answer, short enough for a table."""
    text = answer.get("text", answer.get("smiles"))
    if text is None:
        return str(answer["file"])
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
