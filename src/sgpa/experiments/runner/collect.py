"""Results that runs have left behind, as a report wants them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgpa.core.config import plain
from sgpa.core.errors import InputError
from sgpa.core.files import read_json
from sgpa.core.provenance import of_all
from sgpa.experiments.runner.benchmark import read_results
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.methods import CATALOGUE


def saved_results(path: Path) -> dict[str, Any]:
    """The results of a folder of runs, of one cell, of a run of one's own data, or of a results.json."""
    if not path.exists():
        raise InputError(f"{path} does not exist; name the folder of a run, or its results.json")
    folder = path.parent if path.is_file() else path
    if path.is_dir() and (folder / "recipe.json").exists():
        return folder_results(folder)
    file = path if path.is_file() else folder / "results.json"
    if not file.exists():
        raise InputError(f"{folder} holds no results; evaluate a run first, or name another folder")
    found = read_json(file)
    if not isinstance(found, dict) or "records" not in found:
        raise InputError(f"{file} holds no records; it is not the results of a run")
    if "schema" not in found and (folder / "run.json").exists():
        return cell_results([folder])
    return read_results(folder) if file.name == "results.json" else found


def folder_results(directory: Path) -> dict[str, Any]:
    """All finished cells of a folder, whichever command made them.

    Title, summary and facts are those that a benchmark wrote, if its cells are all there is.
    """
    cells = sorted((f.parent for f in (directory / "cells").glob("*/results.json")), key=_order)
    if not cells:
        raise InputError(f"{directory} holds no finished cell; run `sgpa benchmark` or `sgpa evaluate` first")
    found = cell_results(cells)
    if not (directory / "results.json").exists():
        return found
    benchmark = read_results(directory)
    if len(benchmark["records"]) == len(found["records"]):
        return benchmark
    return found | {"run": benchmark["run"] | found["run"]}


def cell_results(cells: Sequence[Path]) -> dict[str, Any]:
    """Some cells of one folder as one set of results."""
    found = [read_json(cell / "results.json") for cell in cells]
    recipe = RunFolder.at(cells[0].resolve().parents[1]).recipe
    methods = dict.fromkeys(record["method"] for one in found for record in one["records"])
    timings = [read_json(cell / "timings.json") for cell in cells if (cell / "timings.json").exists()]
    return {
        "schema": 1,
        "title": f"{recipe.name}: {', '.join(methods)}",
        "summary": " ".join(dict.fromkeys(one["note"] for one in found if one["note"])),
        "records": [record for one in found for record in one["records"]],
        "curves": [curve for one in found for curve in one["curves"]],
        "run": {
            "recipe": plain(recipe),
            "data": {name: mark for one in found for name, mark in one["data"].items()},
            "timings": timings,
            **of_all(cells),
        },
    }


def _order(cell: Path) -> tuple[str, int, int]:
    """By attention, method and seed."""
    about = read_json(cell / "run.json")
    methods = list(CATALOGUE)
    rank = methods.index(about["method"]) if about["method"] in methods else len(methods)
    return about["attention"], rank, about["seed"]
