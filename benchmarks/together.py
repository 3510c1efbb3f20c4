"""What five models cost when they train together, against one model and against five in turn.

Usage: python -m benchmarks.together [--device cuda] [--members 5] [--repeats 20] [--model cifar10]
Prints a Markdown table; every ratio is measured in this run, as the median of repeated steps.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from sgpa.core.inputs import Batch
from sgpa.data import Dataset
from sgpa.gp.objective import Progress
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.plain import Member, PlainStep, Stacked, StepInfo, random_state

MODELS = {
    "digits": (
        ModelConfig(embedding=PatchConfig(image_size=8, channels=1, patch_size=2), depth=3, width=64),
        50,
        8,
    ),
    "cifar10": (ModelConfig(embedding=PatchConfig(), depth=5, heads=4, width=128), 100, 32),
}
OPTIM = OptimConfig(epochs=1)
MOMENT = StepInfo(0, 1e-4, Progress(0.5, 45_000))


def members(method: Method, config: ModelConfig, count: int, device: str) -> list[Member]:
    """Fresh models with fresh optimisers."""
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        model = method.build(config).to(device).train()
        optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], fused=True)
        made.append(Member(f"seed {seed}", model, optimiser, random_state()))
    return made


def batches(config: ModelConfig, size: int, count: int, device: str) -> list[Batch]:
    """A random batch for each member."""
    e = config.embedding
    assert isinstance(e, PatchConfig)
    shape = (size, e.channels, e.image_size, e.image_size)
    data = [Dataset(torch.randn(shape), torch.randint(0, 10, (size,))) for _ in range(count)]
    return [Batch(d.inputs.to(device), d.targets.to(device)) for d in data]


def seconds(
    steppers: Sequence[PlainStep | Stacked], given: list[list[Batch]], repeats: int, device: str
) -> float:
    """Median time of one step of all the steppers."""
    taken = []
    with ExitStack() as stack:
        for stepper in steppers:
            stack.enter_context(stepper)
        for i in range(repeats + 3):
            started = time.perf_counter()
            for stepper, batch in zip(steppers, given, strict=True):
                stepper.step(batch, MOMENT)
            if device == "cuda":
                torch.cuda.synchronize()
            if i >= 3:
                taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--model", choices=list(MODELS), default="cifar10")
    args = parser.parse_args()
    config, rows, keys = MODELS[args.model]
    methods: dict[str, Method] = {
        "MLE, dot product": Mle(attention=DotProductConfig()),
        "MLE, kernel": Mle(),
        "SGPA": Sgpa(attention=SgpaConfig(num_global=keys)),
    }
    hardware = (
        torch.cuda.get_device_name() if args.device == "cuda" else f"{torch.get_num_threads()} CPU threads"
    )
    print(
        f"{args.model} model, batch {rows}, {args.members} members, {hardware}, torch {torch.__version__}\n"
    )
    print("| | one model (ms) | together (ms) | in turn (ms) | together / one | together / in turn |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, method in methods.items():
        given = batches(config, rows, args.members, args.device)
        own = [[b] for b in given]
        one, *_ = fresh = members(method, replace(config), args.members, args.device)
        alone = seconds([PlainStep(one, method, OPTIM)], own[:1], args.repeats, args.device)
        turn = seconds(
            [PlainStep(m, method, OPTIM) for m in fresh], own, max(3, args.repeats // 4), args.device
        )
        together = seconds([Stacked(fresh, method, OPTIM)], [given], args.repeats, args.device)
        print(
            f"| {name} | {1e3 * alone:.1f} | {1e3 * together:.1f} | {1e3 * turn:.1f} "
            f"| {together / alone:.2f} | {together / turn:.2f} |"
        )


if __name__ == "__main__":
    main()
