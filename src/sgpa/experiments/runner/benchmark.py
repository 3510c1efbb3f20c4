"""A grid of methods and seeds: finished cells are never done again, shared trainings are done once."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from sgpa.core.config import plain
from sgpa.core.errors import ConfigError
from sgpa.core.files import read_json, write_json
from sgpa.core.provenance import of_all, provenance
from sgpa.experiments.runner import cells
from sgpa.experiments.runner.executors.processes import Processes
from sgpa.experiments.runner.executors.torchrun import Ranks, follow
from sgpa.experiments.runner.jobs import Announce, Executor, Failure, InProcess, Job, run_jobs
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.methods import Ensemble
from sgpa.training import process_group
from sgpa.training.plan import Plan


@dataclass(frozen=True)
class Outcome:
    """What a benchmark came to: everything that was measured, and what failed."""

    results: dict[str, Any]
    failures: list[Failure]


def benchmark(
    place: RunFolder,
    plans: Sequence[Plan],
    *,
    seeds: int | None = None,
    workers: int = 1,
    retry: bool = False,
    announce: Announce = cells.silent,
    tell: Callable[[str], None] = lambda _: None,
    command: str = "",
    title: str = "",
    summary: str = "",
    executor: AbstractContextManager[Executor] | None = None,
) -> Outcome:
    """Train and test every plan for every seed, and write `results.json` and `timings.json`.

    `workers` processes share the work, or whatever `executor` says; those that torchrun started do every
    training together.
    """
    process_group.begin(place.device)
    seeds = seeds or place.recipe.seeds

    def lead() -> Outcome:
        jobs = jobs_of(_anywhere(place), plans, seeds)
        with executor or _executor(workers, announce) as running:
            running.ready(place.directory, place.device)
            failures = run_jobs(jobs, running, place.directory / "failed", retry=retry, tell=tell)
        return Outcome(collect(place, plans, seeds, command, title, summary), failures)

    if executor is not None and process_group.world() > 1:
        raise ConfigError("processes that torchrun started share every training; leave the executor out")
    process_group.from_leader(place.claim)
    if not process_group.leader():
        follow()
    return process_group.from_leader(lead)


def _anywhere(place: RunFolder) -> RunFolder:
    """The same place for whoever works in another folder."""
    data = None if place.data_dir is None else place.data_dir.resolve()
    return replace(place, directory=place.directory.resolve(), data_dir=data)


def _executor(workers: int, announce: Announce) -> AbstractContextManager[Executor]:
    if process_group.world() > 1:
        return Ranks(announce)
    return Processes(workers, announce) if workers > 1 else nullcontext(InProcess(announce))


def grid(plans: Sequence[Plan], seeds: int, ensembles: int) -> list[tuple[Plan, int]]:
    """Every plan with every seed."""
    return [
        (plan, seed)
        for plan in plans
        for seed in range(ensembles if isinstance(plan.method, Ensemble) else seeds)
    ]


def jobs_of(place: RunFolder, plans: Sequence[Plan], seeds: int) -> list[Job]:
    """The trainings that unfinished cells need, each once, and the tests of those cells."""
    open_cells = [
        (plan, seed)
        for plan, seed in grid(plans, seeds, place.recipe.ensembles)
        if not (place.cell(plan, seed) / "results.json").exists()
    ]
    wanted: dict[str, tuple[Plan, int, list[int]]] = {}  # each training: plan, step, seeds
    for plan, seed in open_cells:
        for step, training in enumerate(plan.stages):
            _, _, members = wanted.setdefault(f"{plan.attention}-{training.name}", (plan, step, []))
            members += [member for member in plan.members(seed) if member not in members]
    jobs: list[Job] = []
    named: dict[tuple[str, str, int], str] = {}  # the job that trains a model
    for name, (plan, step, members) in wanted.items():
        for member in members:
            label = f"{name}-{member}"
            needs = (named[plan.attention, plan.stages[step - 1].name, member],) if step else ()
            named[plan.attention, plan.stages[step].name, member] = label
            jobs.append(Job(label, partial(_train, place, plan, step, member), needs))
    for plan, seed in open_cells:
        last = plan.stages[-1].name
        needed = {named[plan.attention, last, member] for member in plan.members(seed)}
        work = partial(cells.assess, place, plan, seed)
        jobs.append(Job(f"test-{plan.name}-{seed}", work, tuple(sorted(needed)), alone=True))
    return jobs


def _train(place: RunFolder, plan: Plan, step: int, seed: int, announce: Announce) -> None:
    cells.train(place, plan, step, (seed,), announce)


def collect(
    place: RunFolder, plans: Sequence[Plan], seeds: int, command: str = "", title: str = "", summary: str = ""
) -> dict[str, Any]:
    """All finished cells in one file: the same runs give the same bytes. Times go to a file of their own."""
    found, timings, folders = [], [], []
    for plan, seed in grid(plans, seeds, place.recipe.ensembles):
        folder = place.cell(plan, seed)
        if (folder / "results.json").exists():
            found.append(read_json(folder / "results.json"))
            timings.append(read_json(folder / "timings.json"))
            folders += [*place.folders(plan, seed), folder]
    facts = of_all(folders) or provenance()
    date = facts.pop("date")
    results = {
        "schema": 1,
        "title": title or f"{place.recipe.name}: {', '.join(dict.fromkeys(p.method.id for p in plans))}",
        "summary": summary or " ".join(dict.fromkeys(cell["note"] for cell in found if cell["note"])),
        "records": [record for cell in found for record in cell["records"]],
        "curves": [curve for cell in found for curve in cell["curves"]],
        "run": {
            "command": command,
            "recipe": plain(place.recipe),
            "data": {name: mark for cell in found for name, mark in cell["data"].items()},
            **facts,
        },
    }
    write_json(place.directory / "results.json", results)
    write_json(place.directory / "timings.json", {"date": date, "timings": timings})
    return read_results(place.directory)


def read_results(directory: Path) -> dict[str, Any]:
    """The results of a folder with the times beside them, as a report wants them."""
    results = read_json(directory / "results.json")
    if (directory / "timings.json").exists():
        results["run"] |= read_json(directory / "timings.json")
    return dict(results)
