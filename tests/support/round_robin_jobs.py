"""Jobs of all kinds for test_turns.py, where other processes find them."""

import os
import time
from contextlib import contextmanager

import torch
from benchmarks.round_robin import CalibratedMethod


@contextmanager
def make(task):
    if task == "dies":
        os._exit(3)
    if task == "fails":
        raise ValueError("first line\nsecond line")
    if task == "needs much":
        raise torch.OutOfMemoryError("CUDA out of memory")
    if task == "slow":
        time.sleep(1.0)
    turns = iter(range(1, 10))

    def turn():
        number = next(turns)
        if task == "fails later" and number == 2:
            raise FileNotFoundError("gone")
        return float(number) if task == "counts" else float(os.getpid())

    yield CalibratedMethod(turn, peak=7)
