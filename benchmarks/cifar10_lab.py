"""Settings of the objective side by side: short CIFAR-10 trainings on one GPU, for the lab book.

Every run's training step is captured as a CUDA graph and replayed on a stream of its own, so that a
handful of runs share the card. Not the paper's protocol: short, one split, no selection.
Usage: python -m benchmarks.cifar10_lab DATA OUT --runs 1/N a=1e-4 --warm 50 --epochs 50 --minutes 9
"""

import argparse
import io
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

from sgpa.core.inputs import Batch
from sgpa.data import Dataset
from sgpa.evaluation.evaluate import evaluate as evaluate_predictor
from sgpa.evaluation.results import Subject
from sgpa.gp.objective import KlWeights, Progress
from sgpa.methods import Method, Mle, Sgpa
from sgpa.models import KernelAttentionConfig, KernelConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.models.saving import warm_start
from sgpa.training.diagnostics import diagnose

MEAN, STD = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
MODEL = ModelConfig(embedding=PatchConfig(), depth=5, heads=4, width=128)
BATCH, LR, FINAL_LR = 100, 5e-4, 1e-5
MIXING = KernelConfig(preset="mixing")
AS_PRINTED = SgpaConfig(init="paper")
RUNS: dict[str, Method] = {
    "mle": Mle(),
    "mle-mixing": Mle(attention=KernelAttentionConfig(kernel=MIXING)),
    "1/N": Sgpa(),
    "1/N-unplaced": Sgpa(place=False),
    "1/N-mixing": Sgpa(attention=SgpaConfig(kernel=MIXING)),
    "a=0-mixing": Sgpa(attention=SgpaConfig(kernel=MIXING), kl=KlWeights(a=0.0)),
    "a=0": Sgpa(kl=KlWeights(a=0.0)),
    "a=1e-4": Sgpa(kl=KlWeights(a=1e-4)),
    "a=1e-3": Sgpa(kl=KlWeights(a=1e-3)),
    "as-printed": Sgpa(attention=AS_PRINTED, kl=KlWeights(g=1.0, a=1.0), place=False),
}


def read(files: Iterable[Path]) -> Dataset:
    """Images and labels of Parquet files in the hub's layout, normalised."""
    images, labels = [], []
    for file in files:
        table = pq.read_table(file)
        images += [np.asarray(Image.open(io.BytesIO(row["bytes"].as_py()))) for row in table["img"]]
        labels += table["label"].to_pylist()
    pixels = torch.tensor(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return Dataset((pixels - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1), torch.tensor(labels))


class Run:
    """One model whose training step is a graph on its own stream."""

    def __init__(self, name: str, train: Dataset, warm: dict[str, Tensor] | None) -> None:
        self.name, self.method, self.train = name, RUNS[name], train
        torch.manual_seed(0)
        self.model = self.method.build(MODEL).cuda()
        if warm is not None:
            warm_start(self.model, warm)
        self.method.initialise(self.model, next(train.batches(512, 0)))
        self.stream, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self.batch = next(train.batches(BATCH, 0))
        self.lr, self.weights = torch.tensor(LR, device="cuda"), torch.zeros(2, device="cuda")
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimiser = torch.optim.Adam(parameters, lr=self.lr, capturable=True)
        self.sums = torch.zeros(3, device="cuda")  # nll, kl_g, kl_a

    def step(self) -> None:
        """Forward, backward and update; the KL weights are read from a tensor so that they can change."""
        loss = self.method.loss(self.model, self.batch, Progress(1.0, len(self.train)))
        parts = torch.stack([loss.nll, loss.kl_g, loss.kl_a])
        self.optimiser.zero_grad(set_to_none=False)
        (parts[0] + self.weights @ parts[1:]).backward()
        self.optimiser.step()
        self.sums += parts.detach()

    def capture(self) -> None:
        """Warm up, then record one step."""
        self.model.train()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.step()
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.step()
        torch.cuda.synchronize()

    def replay(self, fraction: float, rows: Tensor) -> None:
        """One step on other rows, at another moment of training."""
        with torch.cuda.stream(self.stream):
            if isinstance(self.method, Sgpa):
                weights = self.method.kl.at(Progress(fraction, len(self.train)))
                for i, weight in enumerate(weights):
                    self.weights[i].fill_(weight)
            self.lr.fill_(LR + (FINAL_LR - LR) * fraction)
            batch = Batch(self.train.inputs[rows], self.train.targets[rows])
            for kept, new in ((self.batch.inputs, batch.inputs), (self.batch.targets, batch.targets)):
                kept.copy_(new)  # type: ignore[union-attr]
            self.graph.replay()


def fit(runs: list[Run], epochs: int, deadline: float, log: list[dict[str, Any]]) -> None:
    """Train all runs for so many epochs, or until the time is up."""
    steps = len(runs[0].train) // BATCH
    for run in runs:
        run.capture()
    for epoch in range(epochs):
        started = time.monotonic()
        for run in runs:
            run.sums.zero_()
        order = torch.randperm(len(runs[0].train), device="cuda")
        torch.cuda.synchronize()
        for i in range(steps):
            for run in runs:
                run.replay((epoch * steps + i) / (epochs * steps), order[BATCH * i : BATCH * (i + 1)])
        torch.cuda.synchronize()
        means = {run.name: [round(v, 4) for v in (run.sums / steps).tolist()] for run in runs}
        log.append({"epoch": epoch + 1, "seconds": time.monotonic() - started, "nll, kl_g, kl_a": means})
        if epoch % 5 == 4:
            print(log[-1], flush=True)
        if time.monotonic() > deadline:
            print("out of time", flush=True)
            return


def evaluate(run: Run, test: Dataset) -> dict[str, Any]:
    """Clean test metrics and a look into the layers."""
    subject = Subject("cifar10", "kernel", run.name, 0)
    records = evaluate_predictor(run.model, subject, test).records
    found = {record["metric"]: round(record["value"], 4) for record in records}
    layers = [vars(layer) for layer in diagnose(run.model.eval(), test.inputs[:256])]
    print(run.name, found, layers, flush=True)
    return found | {"layers": layers}


def main() -> None:
    """Warm starts first, then the runs asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--runs", nargs="+", default=["1/N"], choices=list(RUNS))
    parser.add_argument("--warm", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=9.0)
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes
    train = read(sorted(args.data.glob("**/train-*.parquet")))
    test = read(sorted(args.data.glob("**/test-*.parquet"))).to("cuda")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    train = train[order[: len(train) * 9 // 10]].to("cuda")
    log: list[dict[str, Any]] = []
    starts = [Run(name, train, None) for name in sorted({start(name) for name in args.runs})]
    fit(starts, args.warm, deadline, log)
    results = {f"warm {run.name}": evaluate(run, test) for run in starts}
    weights = {run.name: run.model.state_dict() for run in starts}
    runs = [Run(name, train, weights[start(name)]) for name in args.runs]
    fit(runs, args.epochs, deadline, log)
    for run in runs:
        results[run.name] = evaluate(run, test)
        run.model.save_pretrained(args.out / run.name.replace("/", "").replace("=", ""))
    (args.out / "lab.json").write_text(json.dumps({"log": log, "results": results}))


def start(name: str) -> str:
    """The point model a run starts from."""
    return "mle-mixing" if "mixing" in name else "mle"


if __name__ == "__main__":
    main()
