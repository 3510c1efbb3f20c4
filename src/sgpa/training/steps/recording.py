"""How a step is recorded: the tensors it reads and writes, and CUDA graphs."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sgpa.core.inputs import Batch, tensors_of


@dataclass(frozen=True)
class Registers:
    """Tensors at fixed addresses through which a recorded step reads and writes."""

    lr: Tensor  # []
    fraction: Tensor  # of the training that is done   []
    skipped: Tensor  # steps that changed nothing       []
    outcome: Tensor  # nll, kl_g, kl_a and the weights of the two KL parts   [5]

    @staticmethod
    def on(device: torch.device) -> "Registers":
        """Registers on a device, all zero."""
        lr, fraction, skipped = (torch.zeros((), device=device) for _ in range(3))
        return Registers(lr, fraction, skipped, torch.zeros(5, device=device))


class Recorder(Protocol):
    """How work is recorded."""

    def check(self, rehearsal: Callable[[], object]) -> None:
        """Raise `RuntimeError` or `TypeError` if the work waits for a value."""
        ...

    def record(self, work: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
        """A function that repeats the work; `RuntimeError` where it cannot be recorded."""
        ...


class CudaGraphs:
    """Records work as CUDA graphs. They never run at the same time, so they share their memory."""

    def __init__(self) -> None:
        self.pool: Any = None

    def check(self, rehearsal: Callable[[], object]) -> None:
        """Run the rehearsal with every synchronisation of the processor with the GPU an error."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.synchronize()
        with warnings.catch_warnings():  # torch says once that this mode is a prototype
            warnings.filterwarnings("ignore", message="Synchronization debug mode")
            torch.cuda.set_sync_debug_mode("error")
        try:
            rehearsal()
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    def record(self, work: Callable[[], None], generator: torch.Generator) -> Callable[[], None]:
        """The replay of a graph that draws from the generator."""
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(generator)
        with torch.cuda.graph(graph, pool=self.pool):
            work()
        self.pool = self.pool or graph.pool()
        return graph.replay


@dataclass(frozen=True)
class Recorded:
    """The recorded step for batches of one shape."""

    batch: Batch  # at fixed addresses
    replay: Callable[[], None]

    def load(self, batch: Batch) -> None:
        """Put a batch where the recording reads it."""
        for into, tensor in zip(tensors_of(self.batch.inputs), tensors_of(batch.inputs), strict=True):
            into.copy_(tensor)
        self.batch.targets.copy_(batch.targets)
