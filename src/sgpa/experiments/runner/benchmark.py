"""A grid of methods and seeds: finished cells are not run again, shared trainings are run once."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sgpa.core.errors import ConfigError, check_fields
from sgpa.core.progress import OnProgress
from sgpa.experiments.recipes.schema import MAX_RUNS
from sgpa.experiments.runner.baselines import evaluate_baselines
from sgpa.experiments.runner.collect import collect, write_results
from sgpa.experiments.runner.evaluate import evaluate_cell
from sgpa.experiments.runner.executors.in_process import InProcess
from sgpa.experiments.runner.executors.processes import Processes
from sgpa.experiments.runner.executors.torchrun import Ranks, follow
from sgpa.experiments.runner.jobs import Executor, Failure, Job, run_jobs, silent
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.experiments.runner.train import train_stage
from sgpa.methods import Ensemble
from sgpa.training import process_group
from sgpa.training.lock import locked
from sgpa.training.plan import Plan

MAX_WORKERS = 1000


@dataclass(frozen=True)
class Outcome:
    """The results of a benchmark, and the jobs that failed."""

    results: dict[str, Any]
    failures: list[Failure]


def benchmark(
    run_folder: RunFolder,
    plans: Sequence[Plan],
    *,
    seeds: int | None = None,
    workers: int = 1,
    retry: bool = False,
    on_progress: OnProgress = silent,
    command: str = "",
    title: str = "",
    summary: str = "",
    baselines: bool = False,
    executor: AbstractContextManager[Executor] | None = None,
) -> Outcome:
    """Train and test every plan for every seed, and write `results.json` and `timings.json`.

    Args:
        run_folder: The recipe and its folder.
        plans: The methods to compare.
        seeds: Runs of each method; the recipe's number by default. Ensembles have a number of their own.
        workers: Processes that share the work. Processes that torchrun started share every training.
        retry: Run jobs again that failed in an earlier call.
        on_progress: Called with the name of a job, how much is done, of how much, and a note.
        command, title, summary: Shown in the report.
        baselines: Test logistic regression beside the methods.
        executor: Runs the jobs instead of `workers` processes.

    Example:
        run_folder = RunFolder.of("digits", Path("runs/digits"))
        outcome = benchmark(run_folder, plans(run_folder.recipe, ("mle", "sgpa")), seeds=3)
    """
    process_group.begin(run_folder.device)
    seeds = run_folder.recipe.seeds if seeds is None else seeds
    limits = {"seeds": (seeds, MAX_RUNS), "workers": (workers, MAX_WORKERS)}
    check_fields(
        "benchmark", [(n, value, 1 <= value <= most, f"1 to {most}") for n, (value, most) in limits.items()]
    )
    cells = grid(plans, seeds, run_folder.recipe.ensembles)

    def lead() -> Outcome:
        jobs = jobs_of(_absolute(run_folder), cells)
        with executor or _executor(workers, on_progress) as running:
            running.ready(run_folder.directory, run_folder.device)
            failures = run_jobs(jobs, running, run_folder.directory / "failed", retry=retry)
        if baselines:
            evaluate_baselines(run_folder, range(seeds))
        folders = [run_folder.cell(plan, seed) for plan, seed in cells]
        name = f"{run_folder.recipe.name}: {', '.join(dict.fromkeys(plan.method.id for plan in plans))}"
        texts = {"command": command, "title": title or name, "summary": summary}
        results = collect(folders, run_folder.recipe, **texts)
        return Outcome(write_results(run_folder.directory, results), failures)

    if executor is not None and process_group.world() > 1:
        raise ConfigError("processes that torchrun started share every training; leave the executor out")
    run_folder.check()
    with locked(run_folder.directory):
        process_group.from_leader(run_folder.claim)
        if not process_group.leader():
            follow()
        return process_group.from_leader(lead)


def grid(plans: Sequence[Plan], seeds: int, ensembles: int) -> list[tuple[Plan, int]]:
    """Every plan with every seed."""
    return [
        (plan, seed)
        for plan in plans
        for seed in range(ensembles if isinstance(plan.method, Ensemble) else seeds)
    ]


def jobs_of(run_folder: RunFolder, cells: Sequence[tuple[Plan, int]]) -> list[Job]:
    """The trainings that unfinished cells need, each once, and the tests of those cells."""
    unfinished = [
        (plan, seed) for plan, seed in cells if not (run_folder.cell(plan, seed) / "results.json").exists()
    ]
    members = [(plan, member) for plan, seed in unfinished for member in plan.members(seed)]
    trainings: dict[str, Job] = {}
    for plan, member in members:
        for stage in range(len(plan.stages)):
            name = _training(plan, stage, member)
            before = (_training(plan, stage - 1, member),) if stage else ()
            trainings.setdefault(name, Job(name, partial(_train, run_folder, plan, stage, member), before))
    tests = []
    for plan, seed in unfinished:
        last = len(plan.stages) - 1
        needs = tuple(sorted({_training(plan, last, member) for member in plan.members(seed)}))
        work = partial(evaluate_cell, run_folder, plan, seed)
        tests.append(Job(f"test-{plan.name}-{seed}", work, needs, alone=True))
    return [*trainings.values(), *tests]


def _training(plan: Plan, stage: int, seed: int) -> str:
    return f"{plan.attention}-{plan.stages[stage].name}-{seed}"


def _train(run_folder: RunFolder, plan: Plan, stage: int, seed: int, on_progress: OnProgress) -> None:
    train_stage(run_folder, plan, stage, seed, on_progress)


def _absolute(run_folder: RunFolder) -> RunFolder:
    """The same folder for processes that work in another directory."""
    data = None if run_folder.data_dir is None else run_folder.data_dir.resolve()
    return replace(run_folder, directory=run_folder.directory.resolve(), data_dir=data)


def _executor(workers: int, on_progress: OnProgress) -> AbstractContextManager[Executor]:
    if process_group.world() > 1:
        return Ranks(on_progress)
    return Processes(workers, on_progress) if workers > 1 else nullcontext(InProcess(on_progress))
