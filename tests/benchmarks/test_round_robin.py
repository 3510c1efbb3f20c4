"""Jobs are prepared in parallel and run one at a time; a job that fails does not stop the others."""

import os

import pytest

from benchmarks import round_robin
from support.round_robin_jobs import RELEASED, make

PATIENCE = 1e6  # seconds: no test waits for it


def run(tasks, processes=0):
    reported = []
    workers = round_robin.prepare(tasks, make, processes, PATIENCE, reported.append)
    assert sorted(worker.task for worker in reported) == sorted(tasks)
    assert list(round_robin.rounds(workers, 3)) == [0, 1, 2]
    stop(workers)
    return {worker.task: worker for worker in workers}


def stop(workers):
    for worker in workers:
        worker.stop()
        worker.process.join()


def test_jobs_run_in_turn_and_errors_are_reported_in_one_line():
    workers = run(["fails", "counts", "out of memory", "fails in round 2"])
    counts = workers["counts"]
    assert (counts.times, counts.error, counts.peak) == ([1.0, 2.0, 3.0], None, 7)
    assert workers["fails"].error == "ValueError: first line"
    assert workers["out of memory"].error == "out of memory"
    assert workers["fails in round 2"].error == "FileNotFoundError: gone"
    assert len(workers["fails in round 2"].times) == 1


def test_job_that_is_not_ready_in_time_is_left_out(monkeypatch):
    now = [0.0]

    def wait(pipes, timeout):
        """No pipe becomes readable before the deadline."""
        now[0] += timeout
        return []

    monkeypatch.setattr(round_robin, "wait", wait)
    monkeypatch.setattr(round_robin.time, "monotonic", lambda: now[0])
    reported = []
    workers = round_robin.prepare(["never ready"], make, 0, PATIENCE, reported.append)
    monkeypatch.undo()
    assert [worker.error for worker in workers] == ["not ready in time"]
    assert reported == workers
    assert list(round_robin.rounds(workers, 1)) == [0]
    assert workers[0].times == []
    RELEASED.set()
    stop(workers)


@pytest.mark.slow
def test_jobs_run_in_their_own_processes_and_a_dead_process_is_reported():
    workers = run(["pid", "dies"], processes=2)
    assert workers["dies"].error == "its process died"
    assert len(workers["pid"].times) == 3
    assert workers["pid"].times[0] != os.getpid()
