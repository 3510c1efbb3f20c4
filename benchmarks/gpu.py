"""Time training steps and predictions on one GPU: by method, sequence length and number of global keys.

Usage: python -m benchmarks.gpu [--out runs/speed] [--parts model,tokens,inducing] [--tokens 64,512]
       [--inducing 8,16] [--processes 8] [--patience 400] [--device cuda] [--quick]
Every job is compiled in its own process, several at once. When all are ready they are timed one at a time, in
three rounds. A number is the median of the rounds' medians. Results are merged into speed.json of the folder
after every round. `python -m benchmarks.speed.page FOLDER/speed.json` writes the page. `--quick` uses tiny
sizes, to try the benchmark itself.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cpu import sparse
from benchmarks.gpu_tasks import QUICK, Sizes, Task, make
from benchmarks.naive_sgpa import NAME
from benchmarks.round_robin import Worker, prepare, rounds
from benchmarks.speed.record import Record, Row
from sgpa.experiments.recipes import find
from sgpa.experiments.timing import BASE, CONTENDERS, DROPOUT, SGPA, SOFTMAX

ROUNDS = 3


@dataclass(frozen=True)
class Wanted:
    """A row of speed.json, and the tasks that fill it."""

    row: Row
    step: Task
    predict: Task | None = None


def by_method(sizes: Sizes, device: str) -> Iterator[Wanted]:
    """All methods at the sizes of the recipe. MC dropout trains like MLE; that step is timed once."""
    recipe = find(sizes.recipe)
    M, T = sparse(recipe).attention.num_global, recipe.model.embedding.max_tokens
    row = Row(part="model", name="", tokens=T, num_global=M, batch=sizes.rows, predicted=sizes.predicted)
    for name in (*CONTENDERS, NAME):
        task = Task(name=name, sizes=sizes, device=device, keys=M if name in (SGPA, NAME) else 0)
        trained = replace(task, name=BASE) if name == DROPOUT else task
        yield Wanted(replace(row, name=name), trained, replace(task, predicts=True))


def by_length(sizes: Sizes, device: str) -> Iterator[Wanted]:
    """Longer sequences with a constant number of tokens per step."""
    for T in sizes.lengths:
        row = Row(
            part="tokens", name="", tokens=T, num_global=sizes.sequence_keys, batch=sizes.total // T or 1
        )
        for name in (SOFTMAX, BASE, SGPA, *([NAME] if sizes.whole >= T else [])):
            yield Wanted(replace(row, name=name), Task(name=name, sizes=sizes, device=device, tokens=T))


def by_global_keys(sizes: Sizes, device: str) -> Iterator[Wanted]:
    """SGPA with different numbers of global inducing points, and MLE with none."""
    T = find(sizes.recipe).model.embedding.max_tokens
    for M in sizes.keys:
        row = Row(part="inducing", name="", tokens=T, num_global=M, batch=sizes.rows)
        for name in (BASE, SGPA, NAME):
            task = Task(name=name, sizes=sizes, device=device, keys=0 if name == BASE else M)
            yield Wanted(replace(row, name=name), task)


PARTS: dict[str, Callable[[Sizes, str], Iterator[Wanted]]] = {
    "model": by_method,
    "tokens": by_length,
    "inducing": by_global_keys,
}


def measure(wanted: Sequence[Wanted], record: Record, processes: int, patience: float) -> None:
    """Time every task once, and write the rows after every round."""
    tasks = dict.fromkeys(task for w in wanted for task in (w.step, w.predict) if task is not None)
    longest_first = sorted(tasks, key=lambda task: (task.name == NAME, task.name != SGPA))
    started = time.monotonic()

    def report(worker: Worker) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {worker.task}: {worker.error or 'ready'}", flush=True)

    workers = prepare(longest_first, make, processes, patience, report)
    try:
        by_task = {worker.task: worker for worker in workers}
        for _ in rounds(workers, ROUNDS):
            for w in wanted:
                record.add(filled(w, by_task))
    finally:
        for worker in workers:
            worker.stop()


def filled(wanted: Wanted, by_task: Mapping[Task, Worker]) -> Row:
    """The row with the results so far."""
    step = by_task[wanted.step]
    predict = None if wanted.predict is None else by_task[wanted.predict]
    return replace(
        wanted.row,
        step=median_time(step),
        peak=step.peak,
        predict=None if predict is None else median_time(predict),
        error=step.error or (None if predict is None else predict.error),
    )


def median_time(worker: Worker) -> float | None:
    """Median seconds; None before the first run."""
    return statistics.median(worker.times) if worker.times else None


def numbers(text: str) -> tuple[int, ...]:
    """Comma-separated integers."""
    return tuple(int(word) for word in text.split(","))


def parts(text: str) -> list[str]:
    """Comma-separated names of parts."""
    names = text.split(",")
    if unknown := set(names) - set(PARTS):
        raise argparse.ArgumentTypeError(f"unknown part {', '.join(unknown)}; use {', '.join(PARTS)}")
    return names


def main(arguments: list[str] | None = None) -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/speed"))
    parser.add_argument("--parts", type=parts, default=list(PARTS), help="of model, tokens and inducing")
    parser.add_argument("--tokens", type=numbers, help="lengths of the sequences")
    parser.add_argument("--inducing", type=numbers, help="numbers of global keys")
    parser.add_argument(
        "--processes", type=int, default=8, help="processes that compile at once; 0: use this one"
    )
    parser.add_argument(
        "--patience", type=float, default=400.0, help="seconds until a job that is not ready counts as failed"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(arguments)
    sizes = QUICK if args.quick else Sizes()
    sizes = replace(sizes, lengths=args.tokens or sizes.lengths, keys=args.inducing or sizes.keys)
    record, started = Record(args.out), time.monotonic()
    wanted = [w for part in args.parts for w in PARTS[part](sizes, args.device)]
    measure(wanted, record, args.processes, args.patience)
    for w in wanted:
        row = record.rows[w.row.key]
        result = row.error or f"step {1e3 * (row.step or 0):.2f} ms"
        print(f"{row.part}, T={row.tokens}, M={row.num_global}, {row.name}: {result}")
    print(f"written to {record.path} after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
