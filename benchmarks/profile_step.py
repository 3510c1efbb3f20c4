"""Where the time of a recorded SGPA training step goes: the kernels that take most of it.

Usage: python -m benchmarks.profile_step
"""

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.together import MODELS, MOMENT, OPTIM, batches, members
from sgpa.captured import Captured
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import SgpaConfig

STEPS = 10


def main() -> None:
    """Record, replay and print."""
    config, rows, keys = MODELS["cifar10"]
    methods: dict[str, Method] = {"MLE": Mle(), "SGPA": Sgpa(attention=SgpaConfig(num_global=keys))}
    for name, method in methods.items():
        given = batches(config, rows, 1, "cuda")
        with Captured(members(method, config, 1, "cuda"), method, OPTIM) as stepper:
            for _ in range(6):
                stepper.step(given, MOMENT)
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                for _ in range(STEPS):
                    stepper.step(given, MOMENT)
                torch.cuda.synchronize()
        events = sorted(profiler.key_averages(), key=lambda e: -e.self_device_time_total)
        total = sum(e.self_device_time_total for e in events) / 1e3 / STEPS
        launches = sum(e.count for e in events) / STEPS
        print(f"\n{name}: {total:.2f} ms of kernels, {launches:.0f} kernels a step")
        for e in events[:16]:
            print(f"{e.self_device_time_total / 1e3 / STEPS:8.3f} ms {e.count / STEPS:6.0f} x  {e.key[:110]}")


if __name__ == "__main__":
    main()
