"""Time of a plain, a captured and a compiled training step on a GPU.

Usage: python -m benchmarks.steps [--repeats 50]
Prints a Markdown table; every number is measured in this run. The last column is how far the gradient of a
compiled step is from that of the plain one: products with weights are in TF32.
"""

import argparse
import statistics
import time

import torch

from sgpa.core.inputs import Batch
from sgpa.gp.objective import Progress
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.training.optim import OptimConfig, adam
from sgpa.training.steps.base import RunState, StepInfo, TrainingStep, random_state
from sgpa.training.steps.body import EagerBody
from sgpa.training.steps.captured import CapturedStep
from sgpa.training.steps.compiled import CompiledBody
from sgpa.training.steps.plain import LocalPass, PlainStep

CONFIG = ModelConfig(embedding=PatchConfig(), depth=5, heads=4, width=128)  # the paper's for CIFAR-10
ROWS, GLOBAL_KEYS = 100, 32
OPTIM = OptimConfig(epochs=1, batch_size=ROWS)
INFO = StepInfo(0, 1e-4, Progress(0.5, 45_000))
METHODS: dict[str, Method] = {
    "MLE, dot product": Mle(attention=DotProductConfig()),
    "MLE, kernel": Mle(),
    "SGPA": Sgpa(attention=SgpaConfig(num_global=GLOBAL_KEYS)),
}
KINDS = ("plain", "captured", "compiled")


def run_state(method: Method, device: str = "cuda") -> RunState:
    """A fresh model with a fresh optimiser."""
    torch.manual_seed(0)
    model = method.build(CONFIG).to(device).train()
    return RunState("benchmark", model, adam(OPTIM, model, dict(model.named_parameters())), random_state())


def random_batch(rows: int = ROWS, device: str = "cuda") -> Batch:
    """Random images and labels."""
    e = CONFIG.embedding
    assert isinstance(e, PatchConfig)
    images = torch.randn(rows, e.channels, e.image_size, e.image_size)
    return Batch(images, torch.randint(0, CONFIG.outputs, (rows,))).to(device)


def step_of(kind: str, state: RunState, method: Method) -> TrainingStep:
    """A way to make steps, by name."""
    if kind == "plain":
        return PlainStep(state, LocalPass(state, method), OPTIM)
    body = CompiledBody if kind == "compiled" else EagerBody
    return CapturedStep(state, method, OPTIM, body(state, method, OPTIM))


def seconds(step: TrainingStep, batch: Batch, repeats: int) -> float:
    """Median time of one step, after a warm-up."""
    times = []
    with step:
        for i in range(repeats + 5):
            started = time.perf_counter()
            step.step(batch, INFO)
            torch.cuda.synchronize()
            if i >= 5:
                times.append(time.perf_counter() - started)
    step.close()
    return statistics.median(times)


def first_gradient(kind: str, method: Method, batch: Batch) -> torch.Tensor:
    """The gradient of the first step, from Adam's first moments."""
    state = run_state(method)
    step = step_of(kind, state, method)
    with step:
        step.step(batch, INFO)
    step.close()
    return torch.cat([10 * moments["exp_avg"].flatten() for moments in state.optimiser.state.values()])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    args = parser.parse_args()
    print(f"CIFAR-10 model, batch {ROWS}, {torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| | plain (ms) | captured (ms) | compiled (ms) | captured / plain | compiled / plain ", end="")
    print("| gradient error, compiled |\n|---|--:|--:|--:|--:|--:|--:|")
    for name, method in METHODS.items():
        batch = random_batch()
        plain, captured, compiled = (
            seconds(step_of(kind, run_state(method), method), batch, args.repeats) for kind in KINDS
        )
        g, other = (first_gradient(kind, method, batch) for kind in ("plain", "compiled"))
        cells = [f"{1e3 * t:.2f}" for t in (plain, captured, compiled)]
        cells += [f"{captured / plain:.2f}", f"{compiled / plain:.2f}"]
        print(f"| {name} | {' | '.join(cells)} | {float((g - other).norm() / g.norm()):.0e} |", flush=True)


if __name__ == "__main__":
    main()
