"""Many CIFAR-10 trainings at once on one GPU, to compare settings of the objective.

Every run's training step is captured as a CUDA graph; the graphs are replayed on streams of their own.
Usage: python -m benchmarks.cifar10_lab DATA_DIR OUT_DIR --warm 50 --epochs 50 --minutes 9
"""

import argparse
import io
import json
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image

from sgpa import metrics
from sgpa.data import Dataset
from sgpa.diagnostics import diagnose
from sgpa.methods import Mle, Sgpa
from sgpa.models import KernelConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.models.pretrained import warm_start
from sgpa.objectives import KlWeights, Progress
from sgpa.types import Batch, Loss

MEAN, STD = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])
MODEL = ModelConfig(embedding=PatchConfig(), depth=5, heads=4, width=128, dropout=0.1, pooling="mean")


def read(files):
    images, labels = [], []
    for file in files:
        table = pq.read_table(file)
        images += [np.asarray(Image.open(io.BytesIO(x["bytes"].as_py()))) for x in table["img"]]
        labels += table["label"].to_pylist()
    pixels = torch.tensor(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return Dataset((pixels - MEAN.view(3, 1, 1)) / STD.view(3, 1, 1), torch.tensor(labels))


class Run:
    """One model whose training step is a graph on its own stream."""

    def __init__(self, name, method, train, seed, warm=None, lr=5e-4, final=1e-5):
        self.name, self.method, self.train, self.seed, self.lr, self.final = (
            name,
            method,
            train,
            seed,
            lr,
            final,
        )
        torch.manual_seed(seed)
        self.model = method.build(MODEL).cuda()
        if warm is not None:
            warm_start(self.model, warm)
        method.initialise(self.model, Batch(train.inputs[:512], train.targets[:512]))
        self.stream = torch.cuda.Stream()
        self.x, self.y = train.inputs[:100].clone(), train.targets[:100].clone()
        self.rate = torch.tensor(lr, device="cuda")
        self.weights = torch.zeros(2, device="cuda")
        params = [p for p in self.model.parameters() if p.requires_grad]
        self.opt = torch.optim.Adam(params, lr=self.rate, capturable=True)
        self.sums = torch.zeros(3, device="cuda")
        self.graph = None

    def _loss(self):
        loss = self.method.loss(self.model, Batch(self.x, self.y), Progress(1.0, len(self.train)))
        return Loss(loss.nll, loss.kl_g, loss.kl_a)

    def _step(self):
        loss = self._loss()
        total = loss.nll + self.weights[0] * loss.kl_g + self.weights[1] * loss.kl_a
        self.opt.zero_grad(set_to_none=False)
        total.backward()
        self.opt.step()
        self.sums += torch.stack([loss.nll.detach(), loss.kl_g.detach(), loss.kl_a.detach()])

    def capture(self):
        self.model.train()
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self._step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self._step()
        torch.cuda.synchronize()

    def replay(self, fraction, rows):
        with torch.cuda.stream(self.stream):
            kl = getattr(self.method, "kl", None)
            if kl is not None:
                self.weights.copy_(
                    torch.tensor(kl.at(Progress(fraction, len(self.train))), device="cpu"), non_blocking=True
                )
            self.rate.fill_(self.lr + (self.final - self.lr) * fraction)
            self.x.copy_(self.train.inputs[rows])
            self.y.copy_(self.train.targets[rows])
            self.graph.replay()


def fit(runs, epochs, deadline, log):
    steps = len(runs[0].train) // 100
    for run in runs:
        run.capture()
    for epoch in range(epochs):
        started = time.monotonic()
        order = torch.randperm(len(runs[0].train), device="cuda")
        for run in runs:
            run.sums.zero_()
        torch.cuda.synchronize()
        for i in range(steps):
            fraction = (epoch * steps + i) / (epochs * steps)
            for run in runs:
                run.replay(fraction, order[100 * i : 100 * i + 100])
        torch.cuda.synchronize()
        sums = {run.name: [round(v, 4) for v in (run.sums / steps).tolist()] for run in runs}
        if epoch % 5 == 4 or epoch == 0:
            print(f"epoch {epoch + 1} {time.monotonic() - started:.1f}s", sums, flush=True)
        log.append({"epoch": epoch + 1, "sums": sums})
        if time.monotonic() > deadline:
            print("out of time", flush=True)
            break


def evaluate(run, test):
    p = run.model.predict(test.inputs)
    q, y = p.probabilities.double().cpu(), test.targets.cpu()
    q = q / q.sum(-1, keepdim=True)
    out = {
        "accuracy": metrics.accuracy(q, y),
        "nll": metrics.nll(q, y),
        "ece": metrics.ece(q, y),
        "mce": metrics.mce(q, y),
    }
    noisy = test.inputs + 0.4 * torch.randn(
        test.inputs.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(0)
    )
    r = run.model.predict(noisy).probabilities.double().cpu()
    out["noisy_nll"] = metrics.nll(r / r.sum(-1, keepdim=True), y)
    layers = [
        "/".join(
            "-" if v is None else f"{v:.2f}" for v in (d.kl_g, d.kl_a, d.variance, d.snr, d.off_diagonal)
        )
        for d in diagnose(run.model.eval(), test.inputs[:256])
    ]
    print(run.name, {k: round(v, 4) for k, v in out.items()}, "kl_g/kl_a/var/snr/off:", layers, flush=True)
    return out | {"layers": layers}


def settings(warm):
    authors = KernelConfig(preset="authors")
    base = Sgpa(attention=SgpaConfig(kernel=authors), kl=KlWeights())
    chosen = {
        "a=1/N": (base, "authors"),
    }
    return {name: (method, warm[kind]) for name, (method, kind) in chosen.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--warm", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=9)
    args = parser.parse_args()
    deadline = time.monotonic() + 60 * args.minutes
    torch.backends.cuda.matmul.allow_tf32 = False
    started = time.monotonic()
    train = read(sorted(args.data.glob("**/train-*.parquet")))
    test = read(sorted(args.data.glob("**/test-*.parquet"))).to("cuda")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    train = train[order[: int(0.9 * len(train))]].to("cuda")
    print(f"data in {time.monotonic() - started:.0f}s: {len(train)} {len(test)}", flush=True)
    log, results = [], {}
    mle = {
        "mle authors": Mle(),
    }
    first = [Run(name, method, train, 0) for name, method in mle.items()]
    fit(first, args.warm, deadline, log)
    for run in first:
        results[run.name] = evaluate(run, test)
    warm = {r.name.split()[1]: {k: v.clone() for k, v in r.model.state_dict().items()} for r in first}
    second = [Run(name, method, train, 0, start) for name, (method, start) in settings(warm).items()]
    fit(second, args.epochs, deadline, log)
    for run in second:
        results[run.name] = evaluate(run, test)
        name = run.name.replace(" ", "_").replace("/", "").replace("=", "")
        run.model.save_pretrained(args.out / name) if "mle" not in name else None
    (args.out / "lab.json").write_text(json.dumps({"log": log, "results": results}))


if __name__ == "__main__":
    main()
