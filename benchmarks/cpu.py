"""What uncertainty costs on this CPU: a training step and a prediction of the paper's CIFAR-10 model.

All contenders run in turn, several times over, in one process; the table shows medians and ratios.
Usage: python -m benchmarks.cpu
"""

import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, PatchConfig
from sgpa.objectives import Progress
from sgpa.types import Batch

MODEL = ModelConfig(embedding=PatchConfig(), depth=5, heads=4, width=128)  # 64 tokens; M = 32 by default
CONTENDERS: dict[str, Method] = {
    "MLE, softmax attention": Mle(attention=DotProductConfig()),
    "MLE, kernel attention": Mle(),
    "SGPA": Sgpa(),
}
ROUNDS, BATCH, PREDICTED = 5, 100, 20


def stepper(method: Method) -> Callable[[], None]:
    """One training step on random images."""
    torch.manual_seed(0)
    model = method.build(MODEL)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], fused=True)
    batch = Batch(torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,)))

    def step() -> None:
        optimiser.zero_grad()
        method.loss(model, batch, Progress(0.5, 45_000)).total.backward()
        optimiser.step()

    return step


def predictor(method: Method) -> Callable[[], None]:
    """One prediction (ten samples where the method samples)."""
    model = method.build(MODEL).eval()
    images = torch.randn(PREDICTED, 3, 32, 32)
    return lambda: (model.predict(images), None)[1]


def medians(jobs: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Median seconds of every job, the jobs taking turns."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(ROUNDS):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the table."""
    steps = medians({name: stepper(method) for name, method in CONTENDERS.items()})
    predictions = medians({name: predictor(method) for name, method in CONTENDERS.items()})
    table = Table(title=f"CIFAR-10 model, {torch.get_num_threads()} threads, torch {torch.__version__}")
    for heading in ("", f"step, batch {BATCH} (s)", "ratio", f"predict {PREDICTED} (s)", "ratio"):
        table.add_column(heading, justify="right" if heading else "left")
    base = "MLE, kernel attention"
    for name in CONTENDERS:
        table.add_row(
            name,
            f"{steps[name]:.3f}",
            f"{steps[name] / steps[base]:.2f}",
            f"{predictions[name]:.3f}",
            f"{predictions[name] / predictions[base]:.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
