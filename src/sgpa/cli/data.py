"""`sgpa data`: which data sets there are, where they are, and how to get them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sgpa.cli.options import AsJson, DataDir, Device, show_json
from sgpa.cli.progress import ProgressBars, console

data_app = typer.Typer(
    help="Find, fetch and check the data sets.", no_args_is_help=True, epilog="Example: sgpa data list"
)
Name = Annotated[str, typer.Argument(help="A data set; `sgpa data list` shows them.", show_default=False)]


@data_app.command("list", epilog="Example: sgpa data list --data-dir data")
def list_sets(
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Show all data sets: what they are, how many rows they have and where they were found."""
    from sgpa.data.sources import SOURCES

    states = [_state(name, data_dir) for name in SOURCES]
    if as_json:
        show_json([state.plain() for state in states])
        return
    table = Table("name", "what", "rows", "found", "prepared", box=None, pad_edge=False)
    for state in states:
        rows = "\n".join(f"{split} {_count(*seen)}" for split, seen in state.rows.items())
        found = str(state.folder) if state.folder else "-"
        prepared = state.problem or ("yes" if state.prepared else "no" if not state.folder else "in part")
        table.add_row(state.name, state.what, rows, escape(found), escape(prepared))
    table.add_row(
        "digits", "handwritten digits 8 x 8, 10 classes", "all 1,797", "ships with scikit-learn", "yes"
    )
    Console().print(table)
    if not all(state.prepared for state in states):
        console.print("To get one: sgpa data prepare NAME", highlight=False)


@data_app.command(epilog="Example: sgpa data prepare cifar10")
def prepare(
    name: Name,
    data_dir: DataDir = None,
    own_copy: Annotated[
        Path | None,
        typer.Option(
            "--from",
            exists=True,
            help="An official archive you have already, or for mini_imagenet a folder of images by class.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Fetch a data set from its official address, check it and convert it to Parquet, once.

    A download that broke off goes on where it stopped. Without --data-dir the set is kept in the cache.
    """
    from sgpa.data import sources

    terms = sources.source(name).terms
    with ProgressBars() as bars:
        folder = sources.prepare(name, data_dir, own_copy=own_copy, progress=bars.announce)
    typer.echo(f"{name} is ready: {folder}\nTerms: {terms}")


@data_app.command(epilog="Example: sgpa data verify cifar10 --data-dir data")
def verify(name: Name, data_dir: DataDir = None) -> None:
    """Check the files of a data set: rows, columns and, where they are known, checksums.

    Exit status 1 where a split is missing, 2 where something is wrong.
    """
    from sgpa.data import sources

    checked = sources.verify(name, data_dir)
    for part in checked:
        if part.files:
            sums = f"{part.checksums} of {len(part.files)} checksums known and right"
            count = _count(part.rows, part.expected)
            typer.echo(f"{name} {part.split}: {count} rows, columns right, {sums} ({part.files[0].parent})")
        else:
            typer.echo(f"{name} {part.split}: missing")
    if not all(part.files for part in checked):
        raise typer.Exit(1)


@data_app.command(epilog="Example: sgpa data corrupt cifar10")
def corrupt(name: Name, data_dir: DataDir = None) -> None:
    """Corrupt the test images of CIFAR-10 or CIFAR-100 once, for all runs that are tested on them: 2.3 GB.

    Without this every test makes them again, which takes a minute or two of all cores. Files have the layout
    of the published ones, which are used instead where they lie beside it, in CIFAR-10-C or CIFAR-100-C.
    """
    from sgpa.core.errors import InputError
    from sgpa.data.corruptions import ready
    from sgpa.data.images.cifar import OUTSIDE, load_images

    if name not in OUTSIDE:
        raise InputError(f"corrupt: {name!r} has no corrupted set; choose {' or '.join(OUTSIDE)}")
    with ProgressBars() as bars:
        bars.announce(f"corrupt {name}", 0, 1, "reading the images")
        images, _ = load_images(name, "test", data_dir)

        def tell(kind: str, done: int, total: int) -> None:
            bars.announce(f"corrupt {name}", done, total, kind)

        folder = ready.make(name, images, data_dir, tell=tell)
    typer.echo(f"{name}, corrupted: {folder}")


@data_app.command("language-model", epilog="Example: sgpa data language-model --minutes 60")
def language_model(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the texts.")] = 10,
    minutes: Annotated[
        float | None, typer.Option(help="Stop after so much training, whatever has been read.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Sentences in a step; a GPU has room for 1024.")
    ] = 256,
    out: Annotated[
        Path | None, typer.Option(help="Where to keep it; where CoLA looks for it by default.")
    ] = None,
    data_dir: DataDir = None,
    device: Device = "cpu",
) -> None:
    """Train the language model whose features CoLA's sentences are read with, on IMDB's texts.

    All 50,000 of them, without their labels; none is a sentence of CoLA.

    A training that was stopped goes on where it was.
    """
    from sgpa.core.devices import check_device
    from sgpa.data.language_model.features import language_model_dir
    from sgpa.data.language_model.training import LanguageProgress, LanguageRecipe, train_language_model
    from sgpa.data.sources import find
    from sgpa.data.texts.tokenized import read_unlabelled

    check_device(device)
    recipe = LanguageRecipe(epochs=epochs, batch_size=batch_size, minutes=minutes)
    folder = out or language_model_dir()
    files = [*find("imdb", "train", data_dir), *find("imdb", "test", data_dir)]
    with ProgressBars() as bars:
        work, heard = "language model", {"perplexity": ""}
        bars.announce(work, 0, 1000, "reading the texts")
        texts = [text for file in files for text in read_unlabelled(file)]
        bars.announce(work, 0, 1000, f"finding the words of {len(texts):,} texts")

        def tell(line: LanguageProgress) -> None:
            timed = line.seconds / (60 * minutes) if minutes else 0.0
            share = min(1.0, max(line.step / line.steps, timed))
            if line.perplexity is not None:
                heard["perplexity"] = f"  held-out perplexity {line.perplexity:.1f}"
            note = f"step {line.step:,}/{line.steps:,}  loss {line.loss:.3f}{heard['perplexity']}"
            bars.announce(work, int(1000 * share), 1000, note)  # 1000 at the end alone

        model = train_language_model(texts, recipe=recipe, directory=folder, device=device, report=tell)
    model.save(folder)
    typer.echo(f"Language model: {folder}")


@dataclass(frozen=True)
class _State:
    """One line of the list; `rows` has those seen and those of the whole set, by split."""

    name: str
    what: str
    terms: str
    rows: dict[str, tuple[int, int]]
    folder: Path | None = None
    problem: str = ""

    @property
    def prepared(self) -> bool:
        return not self.problem and all(seen for seen, _ in self.rows.values())

    def plain(self) -> dict[str, Any]:
        rows = {split: {"found": seen, "whole": whole} for split, (seen, whole) in self.rows.items()}
        return {
            "name": self.name,
            "what": self.what,
            "rows": rows,
            "found": str(self.folder) if self.folder else None,
            "prepared": self.prepared,
            "problem": self.problem or None,
            "terms": self.terms,
        }


def _state(name: str, data_dir: Path | None) -> _State:
    from sgpa.core.errors import InputError
    from sgpa.data import sources

    known = sources.SOURCES[name]
    nothing = {split: (0, whole) for split, whole in known.rows.items()}
    folder = next(
        (root / name for root in sources.roots(data_dir) if any((root / name).glob("*.parquet"))), None
    )
    if folder is None:
        return _State(name, known.what, known.terms, nothing)
    try:
        checked = sources.verify(name, data_dir, checksums=False)
    except InputError as error:
        return _State(name, known.what, known.terms, nothing, folder, str(error))
    rows = {part.split: (part.rows, part.expected) for part in checked}
    return _State(name, known.what, known.terms, rows, folder)


def _count(seen: int, whole: int) -> str:
    return f"{whole:,}" if seen == whole else f"{seen:,} of {whole:,}"
