"""The kernels of a compiled training step and of a served prediction on a GPU, by time.

Usage: python -m benchmarks.profile_step [--kernels 16]
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.steps import GLOBAL_KEYS, INFO, random_batch, run_state, step_of
from sgpa.inference.serve import serve
from sgpa.methods import McDropout, Method, Mle, Sgpa
from sgpa.models import SgpaConfig

RUNS, PREDICTED = 10, 200


def show(name: str, job: Callable[[], object], kernels: int) -> None:
    """Print the kernels that take most of the time of a job."""
    for _ in range(6):
        job()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(RUNS):
            job()
        torch.cuda.synchronize()
    events = sorted(profiler.key_averages(), key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in events) / 1e3 / RUNS
    launches = sum(e.count for e in events) / RUNS
    print(f"\n{name}: {total:.2f} ms of {launches:.0f} kernels")
    for e in events[:kernels]:
        print(f"{e.self_device_time_total / 1e3 / RUNS:8.3f} ms {e.count / RUNS:6.0f} x  {e.key[:110]}")


def main() -> None:
    """Compile, replay and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=16)
    args = parser.parse_args()
    sgpa = Sgpa(attention=SgpaConfig(num_global=GLOBAL_KEYS))
    steps: dict[str, Method] = {"MLE, kernel": Mle(), "SGPA": sgpa}
    for name, method in steps.items():
        with step_of("compiled", run_state(method), method) as step:
            show(f"step, {name}", partial(step.step, random_batch(), INFO), args.kernels)
    predictions: dict[str, tuple[Method, Method]] = {"MC dropout": (McDropout(), Mle()), "SGPA": (sgpa, sgpa)}
    inputs = random_batch(PREDICTED).inputs
    for name, (method, trained) in predictions.items():
        predictor = method.predictor(run_state(trained).model)
        served = serve(predictor, PREDICTED)  # type: ignore[arg-type]
        show(f"prediction, {name}", partial(served.predict, inputs), args.kernels)


if __name__ == "__main__":
    main()
