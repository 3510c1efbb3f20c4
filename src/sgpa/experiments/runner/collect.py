"""The results of several cells as one mapping, for `results.json` and for reports."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from sgpa.core.config import to_plain
from sgpa.core.errors import InputError
from sgpa.core.files import read_json, write_json
from sgpa.core.provenance import of_all, provenance
from sgpa.experiments.recipes import Recipe
from sgpa.experiments.runner.baselines import read_baselines
from sgpa.experiments.runner.run_folder import FILE, RunFolder
from sgpa.inference.saved import inside, read_metadata
from sgpa.methods import CATALOGUE


class CellRecord(TypedDict):
    """What is read of a record."""

    attention: str
    method: str
    seed: int


class CellResults(TypedDict):
    """`results.json` of a cell."""

    records: list[CellRecord]
    curves: list[dict[str, Any]]
    data: dict[str, Any]
    note: str | None


class SavedSource(TypedDict):
    """Where the results of a run folder come from."""

    command: str


class SavedResults(TypedDict):
    """`results.json` of a run folder."""

    title: str
    summary: str
    records: list[CellRecord]
    run: SavedSource


def collect(
    cells: Sequence[Path], recipe: Recipe, *, command: str = "", title: str = "", summary: str = ""
) -> dict[str, Any]:
    """The finished ones of some cells of one run folder: the same cells give the same mapping."""
    finished = [cell for cell in cells if (cell / "results.json").exists()]
    results = [read_json(cell / "results.json", CellResults) for cell in finished]
    methods = dict.fromkeys(record["method"] for one in results for record in one["records"])
    folders = [folder for cell in finished for folder in (*_trainings(cell), cell)]
    beside = read_baselines(finished[0].parents[1] if finished else None)
    return {
        "schema": 1,
        "title": title or f"{recipe.name}: {', '.join(methods)}",
        "summary": summary or " ".join(dict.fromkeys(one["note"] for one in results if one["note"])),
        "records": [record for one in (*results, beside) for record in one["records"]],
        "curves": [curve for one in (*results, beside) for curve in one["curves"]],
        "run": {
            "command": command,
            "recipe": _without_paths(recipe),
            "data": {name: digest for one in results for name, digest in one["data"].items()},
            **(of_all(folders) or provenance()),
            "timings": [
                *(
                    read_json(c / "timings.json", dict[str, Any])
                    for c in finished
                    if (c / "timings.json").exists()
                ),
                *beside["timings"],
            ],
        },
    }


def write_results(directory: Path, results: dict[str, Any]) -> dict[str, Any]:
    """Write collected results into a run folder; dates and times go to `timings.json`."""
    changing = ("date", "timings")
    run = {name: value for name, value in results["run"].items() if name not in changing}
    write_json(directory / "results.json", results | {"run": run})
    write_json(directory / "timings.json", {name: results["run"][name] for name in changing})
    return read_results(directory)


def read_results(directory: Path) -> dict[str, Any]:
    """The results of a run folder, with the times."""
    results = read_json(directory / "results.json", SavedResults)
    if (directory / "timings.json").exists():
        results["run"] |= read_json(directory / "timings.json", dict[str, Any])
    return dict(results)


def saved_results(path: Path) -> dict[str, Any]:
    """The results of a run folder, of one cell, or of a results.json."""
    if not path.exists():
        raise InputError(f"{path} does not exist; name the folder of a run, or its results.json")
    folder = path.parent if path.is_file() else path
    if path.is_dir() and (folder / FILE).exists():
        return folder_results(folder)
    file = path if path.is_file() else folder / "results.json"
    if not file.exists():
        raise InputError(f"{folder} holds no results; evaluate a run first, or name another folder")
    results = read_json(file, dict[str, Any])
    if "records" not in results:
        raise InputError(f"{file} holds no records; it is not the results of a run")
    if "schema" not in results and (folder / "run.json").exists():
        return collect([folder], RunFolder.at(folder.resolve().parents[1]).recipe)
    if file.name == "results.json" and (folder / "timings.json").exists():
        results["run"] = (results.get("run") or {}) | read_json(folder / "timings.json", dict[str, Any])
    return dict(results)


def folder_results(directory: Path) -> dict[str, Any]:
    """All finished cells of a run folder, whichever command ran them.

    Title and summary are those of `results.json` if it is about the same cells.
    """
    cells = sorted((f.parent for f in (directory / "cells").glob("*/results.json")), key=_order)
    if not cells:
        raise InputError(f"{directory} holds no finished cell; run `sgpa benchmark` or `sgpa evaluate` first")
    results = collect(cells, RunFolder.at(directory).recipe)
    if not (directory / "results.json").exists():
        return results
    saved = read_results(directory)
    if _cells(saved) != _cells(results):
        return results | {"run": saved["run"] | results["run"] | {"command": saved["run"]["command"]}}
    times = {"timings": results["run"]["timings"]}
    texts = {name: saved[name] for name in ("title", "summary")}
    return results | texts | {"run": results["run"] | saved["run"] | times}


def _without_paths(recipe: Recipe) -> Any:
    """The recipe as plain data, with the name of a user's data instead of their path: results are shared."""
    values = to_plain(recipe)
    if "path" in values["task"]:
        values["task"]["path"] = Path(values["task"]["path"]).name
    return values


def _cells(results: dict[str, Any]) -> set[tuple[Any, ...]]:
    return {(r["attention"], r["method"], r["seed"]) for r in results["records"]}


def _trainings(cell: Path) -> list[Path]:
    """The folders of a cell's trainings; version 0.1 did not note them."""
    metadata = read_metadata(cell) if (cell / "run.json").exists() else {}
    return [inside(cell, folder) for folder in metadata.get("trainings", ())]


def _order(cell: Path) -> tuple[str, int, int]:
    """By attention, method and seed."""
    metadata = read_metadata(cell)
    methods = list(CATALOGUE)
    rank = methods.index(metadata["method"]) if metadata["method"] in methods else len(methods)
    return metadata["attention"], rank, metadata["seed"]
