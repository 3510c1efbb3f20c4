"""Jobs are made ready side by side and run one at a time; one that fails does not stop the others."""

import os

from benchmarks import round_robin
from support.round_robin_jobs import make


def run(tasks, processes=0, patience=60.0):
    told = []
    workers = round_robin.prepare(tasks, make, processes, patience, told.append)
    assert sorted(w.task for w in told) == sorted(tasks)
    rounds = list(round_robin.rounds(workers, 3))
    assert rounds == [0, 1, 2]
    for worker in workers:
        worker.stop()
        worker.process.join(10)
        assert not worker.process.is_alive()
    return {worker.task: worker for worker in workers}


def test_all_take_turns_and_failures_are_told_in_a_line():
    found = run(["fails", "counts", "needs much", "fails later"])
    assert (found["counts"].times, found["counts"].error, found["counts"].peak) == ([1.0, 2.0, 3.0], None, 7)
    assert found["fails"].error == "ValueError: first line"
    assert found["needs much"].error == "out of memory"
    assert found["fails later"].error == "FileNotFoundError: gone"
    assert len(found["fails later"].times) == 1


def test_what_is_not_ready_in_time_is_left_behind():
    found = run(["counts", "slow"], patience=0.5)
    assert found["slow"].error == "not ready in time"
    assert found["slow"].times == []
    assert found["counts"].times == [1.0, 2.0, 3.0]


def test_processes_of_their_own_and_one_that_dies():
    found = run(["pid", "dies"], processes=2)
    assert found["dies"].error == "its process died"
    assert len(found["pid"].times) == 3
    assert found["pid"].times[0] != os.getpid()
