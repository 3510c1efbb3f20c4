"""The processes that torchrun started; a single process is its own leader.

The leader (rank 0) decides, writes files and reports progress; the others do their share of the work. If one
process fails, torchrun ends all of them, and every wait has a time limit.
"""

import atexit
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from sgpa.core.errors import ConfigError, SgpaError

TIMEOUT = timedelta(minutes=30)  # longest wait for the gradients of another process
LEADING = timedelta(days=1)  # longest wait for the leader, which also evaluates and writes
PATIENCE = timedelta(seconds=30)  # how long a failed process waits to learn whether all failed

T = TypeVar("T")
_control: list[Any] = []  # the group for messages; gradients have their own


def asked_for() -> bool:
    """Whether torchrun started this process as one of several."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR")
    return all(name in os.environ for name in names) and int(os.environ["WORLD_SIZE"]) > 1


def begin(device: str) -> None:
    """Join the other processes, if there are any; on GPUs "cuda" then means this process's own."""
    if asked_for() and not dist.is_initialized():
        cuda = device.startswith("cuda")
        if cuda and device != "cuda":
            raise ConfigError(f"device={device!r}: under torchrun say cuda; each process takes its own GPU")
        if cuda:
            _take_gpu(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", timeout=TIMEOUT)
        atexit.register(dist.destroy_process_group)
    if world() > 1 and not _control:
        _control.append(dist.new_group(backend="gloo", timeout=LEADING))


def _take_gpu(local: int) -> None:
    count = torch.cuda.device_count()
    if local >= count:
        raise ConfigError(f"this machine has {count} GPUs; start as many processes with --nproc_per_node")
    torch.cuda.set_device(local)


def world() -> int:
    """The number of processes."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, also before `begin`."""
    if world() > 1:
        return dist.get_rank()
    return int(os.environ["RANK"]) if asked_for() else 0


def leader() -> bool:
    """Whether this is the process that decides and writes."""
    return rank() == 0


def from_leader(work: Callable[[], T]) -> T:
    """The leader does the work; every process gets its result, or its error."""
    if world() == 1:
        return work()
    outcome: list[Any] = [None, None]
    if leader():
        try:
            outcome[0] = work()
        except SgpaError as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, src=0, group=_control[0], device=torch.device("cpu"))
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


def agreed(value: T) -> T:
    """The leader's value, for numbers that processes compute alike up to rounding."""
    return from_leader(lambda: value)


def wait() -> None:
    """Wait until all processes are here."""
    if world() > 1:
        dist.barrier(group=_control[0])


def all_fail() -> bool:
    """Called by a process whose work failed: whether all others failed at the same place."""
    if world() == 1:
        return True
    try:
        dist.monitored_barrier(group=_control[0], timeout=PATIENCE)
    except RuntimeError:
        return False
    return True


def summed(numbers: Tensor, error: SgpaError | None = None) -> Tensor:
    """The sum over processes of numbers [N]; an error that any process reports is raised in all of them."""
    flagged = torch.cat([numbers, numbers.new_tensor([float(error is not None)])])
    dist.all_reduce(flagged)
    if flagged[-1] > 0:
        errors: list[SgpaError | None] = [None] * world()
        dist.all_gather_object(errors, error, group=_control[0])
        raise next(each for each in errors if each is not None)
    return flagged[:-1]
