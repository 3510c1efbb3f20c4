"""`sgpa methods`: the methods there are."""

import shutil
import textwrap
from typing import Any

import typer

from sgpa.cli.options import AsJson, show_json
from sgpa.core.names import METHOD_NAMES


def methods(as_json: AsJson = False) -> None:
    """List the methods: what they do, which model they need and what they can predict."""
    rows = _methods()
    if as_json:
        show_json(rows)
        return
    width = shutil.get_terminal_size().columns
    for row in rows:
        typer.echo(
            "\n".join(
                textwrap.fill(line, width, subsequent_indent="    ", break_on_hyphens=False)
                for line in _lines(row)
            )
        )


def _lines(row: dict[str, Any]) -> list[str]:
    """What a method does, then its other names, what it predicts and what it trains."""
    facts = [f"also {', '.join(row['aliases'])}"] if row["aliases"] else []
    facts.append("classes and numbers" if row["regression"] else "classes only")
    if row["models"] > 1:
        facts.append(f"{row['models']} models of {row['trains']} by default")
    elif row["after"]:
        facts.append(f"uses the model that {row['after']} trained")
    return [f"{row['id']}, {row['name']}: {row['what']}", f"    {'; '.join(facts)}"]


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
