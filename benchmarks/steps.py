"""What recording the training step as a CUDA graph gains, and compiling it first, for one model and for five.

Usage: python -m benchmarks.steps [--repeats 50] [--members 1 5]
Prints a Markdown table; every number is measured in this run. Also prints how far the weights of recorded
and of compiled training are from those of plain training after as many steps: recording changes nothing; a
compiled step has products with weights in TF32.
"""

import argparse

import torch

from benchmarks.together import MODELS, OPTIM, batches, members, seconds
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import DotProductConfig, SgpaConfig
from sgpa.training.steps.captured import Captured
from sgpa.training.steps.compiled import Compiled
from sgpa.training.steps.plain import Member, Stacked


def apart(some: list[Member], others: list[Member]) -> float:
    """The largest difference of two weights."""
    return max(
        float((a - b).abs().max())
        for x, y in zip(some, others, strict=True)
        for a, b in zip(x.model.parameters(), y.model.parameters(), strict=True)
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--members", type=int, nargs="+", default=[1, 5])
    args = parser.parse_args()
    config, rows, keys = MODELS["cifar10"]
    methods: dict[str, Method] = {
        "MLE, dot product": Mle(attention=DotProductConfig()),
        "MLE, kernel": Mle(),
        "SGPA": Sgpa(attention=SgpaConfig(num_global=keys)),
    }
    print(f"cifar10 model, batch {rows}, {torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print(
        "| | members | plain (ms) | recorded (ms) | compiled (ms) | recorded / plain | compiled / plain ",
        end="",
    )
    print("| difference, recorded | difference, compiled |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for name, method in methods.items():
        for count in args.members:
            given = batches(config, rows, count, "cuda")
            times, made = [], []
            for kind in (Stacked, Captured, Compiled):
                made.append(members(method, config, count, "cuda"))
                stepper = kind(made[-1], method, OPTIM)
                times.append(seconds([stepper], [given], args.repeats, "cuda"))
                stepper.close()
            plain, recorded, compiled = times
            cells = [*(f"{1e3 * t:.2f}" for t in times), f"{recorded / plain:.2f}", f"{compiled / plain:.2f}"]
            cells += [f"{apart(made[0], other):.0e}" for other in made[1:]]
            print(f"| {name} | {count} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
