"""Joins the results of several runs, such as the cells of a benchmark, into one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sgpa.core.errors import InputError
from sgpa.report.schema import check_types
from sgpa.report.tables import tasks

CELL = ("dataset", "augmentation", "attention", "method", "seed")
RECORD = (*CELL, "evaluation", "shift", "metric")
CURVE = (*CELL, "kind", "shift")
TIMING = CELL

Results = Mapping[str, Any]


def check(results: Results) -> None:
    """Raise unless the results have schema 1 and hold records."""
    if results.get("schema") != 1:
        raise InputError(f"results have schema {results.get('schema')!r}; this version reads schema 1")
    if not results.get("records"):
        raise InputError("results hold no records; evaluate a trained model first")
    check_types(results)


def merge(results: Sequence[Results], variants: Sequence[str] = ()) -> dict[str, Any]:
    """Join the records, curves and timings of several runs.

    Args:
        results: contents of results.json files. Two runs may hold different metrics of one cell (data set,
            augmentation, attention, method and seed) but not the same metric twice. Where runs record
            fingerprints of their data (`run["data"]`, by data set), these must agree.
        variants: a name for each run, to compare runs of one method with different settings.

    Returns:
        One results dict; its title and summary are the first ones given.

    Example:
        >>> runs = [json.loads(path.read_text()) for path in paths]  # doctest: +SKIP
        >>> write_report(merge(runs), Path("runs/benchmark"))  # doctest: +SKIP
    """
    if not results:
        raise InputError("there are no results to merge; give at least one")
    for each in results:
        check(each)
    if variants:
        if len(set(variants)) != len(results):
            raise InputError(f"{len(set(variants))} different names were given for {len(results)} runs")
        results = [_named(each, name) for each, name in zip(results, variants, strict=True)]
    data = _same_data(results)
    records = _apart([each["records"] for each in results], RECORD, "metric")
    curves = _apart([each.get("curves") or [] for each in results], CURVE, "kind")
    times = _apart([timings(each) for each in results], TIMING, "")
    run = _runs([each.get("run") or {} for each in results])
    return {
        "schema": 1,
        "title": next((each["title"] for each in results if each.get("title")), ""),
        "summary": next((each["summary"] for each in results if each.get("summary")), ""),
        "records": records,
        "curves": curves,
        "run": run | ({"data": data} if data else {}) | ({"timings": times} if times else {}),
    }


def _named(results: Results, name: str) -> Results:
    """The results with every method renamed to 'method:name'."""
    run = dict(results.get("run") or {})
    if "seconds" in run:
        run["seconds"] = {f"{method}:{name}": seconds for method, seconds in run["seconds"].items()}
    if "timings" in run:
        run["timings"] = _called(run["timings"], name)
    curves = _called(results.get("curves") or [], name)
    return {**results, "records": _called(results["records"], name), "curves": curves, "run": run}


def _called(items: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    return [{**item, "method": f"{item['method']}:{name}"} for item in items]


def _key(item: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    """The columns that identify an item; absent, null and 'none' count as empty."""
    return tuple("" if item.get(name) in (None, "none") else item[name] for name in names)


def _apart(
    parts: Sequence[Sequence[Mapping[str, Any]]], names: Sequence[str], what: str
) -> list[Mapping[str, Any]]:
    """All items in order; raises for an item that two runs hold."""
    seen: dict[tuple[Any, ...], int] = {}
    for number, items in enumerate(parts, start=1):
        for item in items:
            first = seen.setdefault(_key(item, names), number)
            if first != number:
                cell = ", ".join(f"{name} {item[name]}" for name in CELL if item.get(name) not in (None, ""))
                detail = f" ({item[what]}{_under(item)})" if what else ""
                raise InputError(
                    f"results {first} and {number} both hold {cell}{detail}; merge every cell once, or give "
                    "each run a name"
                )
    return [item for items in parts for item in items]


def _under(item: Mapping[str, Any]) -> str:
    return f" under {item['shift']}" if item.get("shift") else ""


def timings(results: Results) -> list[dict[str, Any]]:
    """Timings with their task, which is that of the records where a run has only one."""
    given = (results.get("run") or {}).get("timings") or []
    named = tasks(results["records"])
    if len(named) > 1 and any("dataset" not in timing for timing in given):
        raise InputError("a timing lacks its dataset, and the run has several; give each timing a dataset")
    return [{"dataset": named[0][0], "augmentation": named[0][1], **timing} for timing in given]


def _same_data(results: Sequence[Results]) -> dict[str, Any]:
    """The fingerprints of all data sets; raises where two runs disagree."""
    fingerprints: dict[str, Any] = {}
    for number, each in enumerate(results, start=1):
        for dataset, mark in ((each.get("run") or {}).get("data") or {}).items():
            marks = mark if isinstance(mark, Mapping) else {"": mark}
            known = fingerprints.setdefault(dataset, {})
            for part, value in marks.items():
                if known.setdefault(part, value) != value:
                    where = f"{dataset} ({part})" if part else dataset
                    raise InputError(
                        f"results {number} use different data from the earlier results: {where} is {value}, "
                        f"before it was {known[part]}; evaluate all methods on the same data"
                    )
    return {dataset: known[""] if list(known) == [""] else known for dataset, known in fingerprints.items()}


def _runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Facts of all runs: one value where they agree, a list of distinct values where they do not."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for run in runs for name in run if name not in ("data", "timings")):
        given = [fact for run in runs for fact in _listed(run.get(name))]
        if name == "seconds":  # by method: joined, unless two runs trained the same one
            methods = [method for seconds in given for method in seconds]
            if len(methods) == len(set(methods)):
                merged[name] = {method: s for seconds in given for method, s in seconds.items()}
            continue
        distinct = list({json.dumps(fact, sort_keys=True, default=str): fact for fact in given}.values())
        if distinct:
            merged[name] = distinct[0] if len(distinct) == 1 else distinct
    return merged


def _listed(fact: Any) -> list[Any]:
    """A fact of one run as a list; a merged run has a list of them, a run without the fact has none."""
    return fact if isinstance(fact, list) else [fact] if fact else []
