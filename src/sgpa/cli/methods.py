"""`sgpa methods`: the methods there are."""

from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from sgpa.cli.options import AsJson, show_json
from sgpa.core.names import METHOD_NAMES


def methods(as_json: AsJson = False) -> None:
    """List the methods: what they do, which model they need and what they can predict."""
    rows = _methods()
    if as_json:
        show_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("id", "also", "name", "what it does", "after", "numbers", "models"):
        table.add_column(heading, no_wrap=heading not in ("what it does", "also"))
    for row in rows:
        numbers = "yes" if row["regression"] else "no"
        also = " ".join(row["aliases"]) or "-"
        table.add_row(
            row["id"], also, row["name"], row["what"], row["after"] or "-", numbers, str(row["models"])
        )
    Console().print(table)
    typer.echo("\nalso: other names on the command line; after: uses a model that this method trained;")
    typer.echo("numbers: predicts numbers as well as classes; models: trained for one prediction")


def _methods() -> list[dict[str, Any]]:
    from sgpa.methods import CATALOGUE, Ensemble

    rows = []
    for id, method in CATALOGUE.items():
        name = METHOD_NAMES[id]
        rows.append(
            {
                "id": id,
                "name": name.title,
                "aliases": list(name.aliases),
                "what": name.description,
                "trains": method.trains.id,
                "after": method.trains.id if method.trains is not method else None,
                "classification": True,
                "regression": method.regression,
                "models": method.size if isinstance(method, Ensemble) else 1,
            }
        )
    return rows
