"""What recording the training step as a CUDA graph gains, for one model and for five together.

Usage: python -m benchmarks.captured [--repeats 50]
Prints a Markdown table; every ratio is measured in this run. Also prints how far the weights of recorded and
plain training are apart after as many steps.
"""

import argparse

import torch

from benchmarks.together import MODELS, OPTIM, batches, members, seconds
from sgpa.captured import Captured
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import DotProductConfig, SgpaConfig
from sgpa.stepping import Stacked


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=50)
    args = parser.parse_args()
    config, rows, keys = MODELS["cifar10"]
    methods: dict[str, Method] = {
        "MLE, dot product": Mle(attention=DotProductConfig()),
        "MLE, kernel": Mle(),
        "SGPA": Sgpa(attention=SgpaConfig(num_global=keys)),
    }
    print(f"cifar10 model, batch {rows}, {torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| | members | plain (ms) | recorded (ms) | recorded / plain | largest difference |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, method in methods.items():
        for count in (1, 5):
            given = batches(config, rows, count, "cuda")
            plain, recorded = (members(method, config, count, "cuda") for _ in range(2))
            slow = seconds([Stacked(plain, method, OPTIM)], [given], args.repeats, "cuda")
            fast = seconds([Captured(recorded, method, OPTIM)], [given], args.repeats, "cuda")
            apart = max(
                float((a - b).abs().max())
                for x, y in zip(plain, recorded, strict=True)
                for a, b in zip(x.model.parameters(), y.model.parameters(), strict=True)
            )
            print(
                f"| {name} | {count} | {1e3 * slow:.2f} | {1e3 * fast:.2f} "
                f"| {fast / slow:.2f} | {apart:.0e} |"
            )


if __name__ == "__main__":
    main()
