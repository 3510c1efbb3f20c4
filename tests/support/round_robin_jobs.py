"""Jobs for test_round_robin.py, in a module that other processes can import."""

import os
import threading
from contextlib import contextmanager

import torch
from benchmarks.round_robin import ReadyJob

RELEASED = threading.Event()  # lets the job "never ready" end


@contextmanager
def make(task):
    if task == "dies":
        os._exit(3)
    if task == "fails":
        raise ValueError("first line\nsecond line")
    if task == "out of memory":
        raise torch.OutOfMemoryError("CUDA out of memory")
    if task == "never ready":
        RELEASED.wait()
    runs = iter(range(1, 10))

    def run():
        number = next(runs)
        if task == "fails in round 2" and number == 2:
            raise FileNotFoundError("gone")
        return float(number) if task == "counts" else float(os.getpid())

    yield ReadyJob(run, peak=7)
