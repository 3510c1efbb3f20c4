"""The command line: parse arguments, call the package, show the outcome."""

from inspect import getdoc
from typing import Annotated, Any

import typer

from sgpa.cli.audit import audit
from sgpa.cli.benchmark import benchmark
from sgpa.cli.data import data_app
from sgpa.cli.demo import demo
from sgpa.cli.evaluate import evaluate
from sgpa.cli.export import export
from sgpa.cli.methods import methods
from sgpa.cli.options import show_error
from sgpa.cli.predict import predict
from sgpa.cli.recipes import recipes
from sgpa.cli.report import report
from sgpa.cli.signals import terminable
from sgpa.cli.time import bench, time
from sgpa.cli.train import train_app
from sgpa.core.errors import SgpaError, out_of_memory

ABOUT = "Transformers with calibrated uncertainty: attention as a sparse Gaussian process."
EXAMPLES: dict[Any, str] = {  # every command, with the example that its help ends with
    demo: "sgpa demo --out runs/demo --methods all --seeds 3",
    recipes: "sgpa recipes cifar10",
    methods: "sgpa methods --json",
    evaluate: "sgpa evaluate runs/cifar10/cells/kernel-sgpa-0",
    predict: "sgpa predict runs/photos holiday/ --out predictions.csv",
    audit: "sgpa audit my-model reviews.csv --out runs/audit",
    export: "sgpa export runs/cifar10/cells/kernel-sgpa-0 models/cifar10",
    benchmark: "sgpa benchmark cifar10 --methods mle,sgpa --seeds 5 --workers 2",
    report: "sgpa report runs/cifar10 runs/imdb --out runs/report",
    time: "sgpa time --model digits --repeats 20",
}

app = typer.Typer(
    help=ABOUT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog="Example: sgpa demo",
)


@app.callback(invoke_without_command=True, help=ABOUT)
def version(show: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Print the version if asked to."""
    if show:
        from sgpa import __version__

        typer.echo(__version__)
        raise typer.Exit


def help_of(command: Any) -> str:
    """The docstring of a command, with one line per paragraph: the terminal breaks them."""
    return "\n\n".join(" ".join(part.split()) for part in (getdoc(command) or "").split("\n\n"))


for _command, _example in EXAMPLES.items():
    app.command(help=help_of(_command), epilog=f"Example: {_example}")(_command)
app.command(hidden=True)(bench)
app.add_typer(train_app, name="train")
app.add_typer(data_app, name="data")


def main() -> None:
    """Entry point: an expected error is one line and exit status 2; an interrupt is 130, SIGTERM 143.

    So is memory that runs out.
    """
    try:
        with terminable():
            app(standalone_mode=True)
    except (SgpaError, OSError) as error:
        show_error(error)
        raise SystemExit(2) from None
    except (MemoryError, RuntimeError) as error:
        if (text := out_of_memory(error)) is None:
            raise
        show_error(text)
        raise SystemExit(2) from None
