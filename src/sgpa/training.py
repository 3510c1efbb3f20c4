"""One training loop for every method: steps, schedule, selection, checkpoints, resume."""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa import metrics
from sgpa.checkpoints import load_run, save_run
from sgpa.data import Dataset
from sgpa.diagnostics import diagnose
from sgpa.errors import NumericalError, check_fields
from sgpa.files import read_tensors, write_tensors
from sgpa.methods import Method, Predictor
from sgpa.models import ModelConfig, Transformer, to_json
from sgpa.models.pretrained import warm_start
from sgpa.objectives import Progress
from sgpa.optim import OptimConfig
from sgpa.types import Classification, Loss, Prediction

CHECKPOINT_SECONDS = 5.0  # at most so much work is lost when a run dies


Report = Callable[[dict[str, Any]], None]  # receives each epoch's line of the log


@dataclass
class Trainer:
    """Trains one model with one method. Everything random follows from `seed`.

    With a `directory` the run leaves `log.jsonl`, `checkpoint.safetensors`, `best.safetensors` and, once
    finished, `model/`; started again with the same settings it goes on where it stopped, and gives the
    same result as if it had not.
    """

    method: Method
    config: ModelConfig
    optim: OptimConfig
    train: Dataset
    validation: Dataset
    seed: int = 0
    directory: Path | None = None
    warm: dict[str, Tensor] | None = None  # weights of a trained point model to start from
    device: str = "cpu"
    report: Report = lambda _: None

    def fit(self) -> Transformer:
        """Train to the end and return the selected model in evaluation mode."""
        if (finished := self.finished) is not None:
            return Transformer.from_pretrained(finished).to(self.device)
        check_device(self.device)
        torch.manual_seed(self.seed)
        train, validation = self.train.to(self.device), self.validation.to(self.device)
        model = self.method.build(self.config).to(self.device)
        for data in (train, validation):
            model.likelihood.check(data.targets, model.config.outputs)
        parameters = [p for p in model.parameters() if p.requires_grad]
        optimiser = torch.optim.Adam(parameters, lr=self.optim.lr, fused=True)
        checkpoint = self._path("checkpoint.safetensors")
        if checkpoint is not None and checkpoint.exists():
            note = load_run(checkpoint, model, optimiser, self.fingerprint)
        else:
            if self.warm is not None:
                warm_start(model, self.warm)
            model.likelihood.initialise(train.targets)
            self.method.initialise(model, next(train.batches(INITIAL_BATCH, self.seed)))
            note = {"fingerprint": self.fingerprint, "epoch": 0, "best": None, "best_epoch": 0}
        self._cut_log(note["epoch"])
        best = self._read_best(note)
        saved = time.monotonic()
        for epoch in range(note["epoch"] + 1, self.optim.epochs + 1):
            line = self._epoch(model, optimiser, train, epoch)
            looks = self._looks_at(epoch)
            if looks:
                scores = validate(self.method.predictor(model), validation)
                line["validation"] = scores
                score = self._score(scores, epoch)
                if note["best"] is None or score < note["best"]:
                    note |= {"best": score, "best_epoch": epoch}
                    best = {name: value.detach().clone() for name, value in model.state_dict().items()}
                    self._write_best(best)
                line["layers"] = [asdict(d) for d in diagnose(model, validation.inputs[:DIAGNOSED])]
            note["epoch"] = epoch
            self._log(line)
            if checkpoint is not None and (looks or time.monotonic() - saved > CHECKPOINT_SECONDS):
                save_run(checkpoint, model, optimiser, note)
                saved = time.monotonic()
            self.report(line)
        assert best is not None
        model.load_state_dict(best)
        if self.directory is not None:
            model.save_pretrained(self.directory / "model")
        return model.eval()

    def _epoch(
        self, model: Transformer, optimiser: torch.optim.Adam, train: Dataset, epoch: int
    ) -> dict[str, Any]:
        """One pass over the training data; returns the line for the log."""
        model.train()
        started = time.monotonic()
        steps = -(-len(train) // self.optim.batch_size)
        sums = torch.zeros(3, device=self.device)
        for i, batch in enumerate(train.batches(self.optim.batch_size, self.seed * 1_000_003 + epoch)):
            step = (epoch - 1) * steps + i
            for group in optimiser.param_groups:
                group["lr"] = self.optim.lr_at(step, steps)
            progress = Progress(step / max(1, steps * self.optim.epochs - 1), len(train))
            loss = self.method.loss(model, batch, progress)
            optimiser.zero_grad(set_to_none=True)
            loss.total.backward()
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients)
            self._require_finite(model, loss, norm, step)
            if self.optim.clip is not None:
                torch.nn.utils.clip_grads_with_norm_(model.parameters(), self.optim.clip, norm)
            optimiser.step()
            sums += len(batch) * torch.stack([loss.nll.detach(), loss.kl_g.detach(), loss.kl_a.detach()])
        nll, kl_g, kl_a = (sums / len(train)).tolist()
        return {
            "epoch": epoch,
            "lr": optimiser.param_groups[0]["lr"],
            "nll": nll,
            "kl_g": kl_g,
            "kl_a": kl_a,
            "weight_g": loss.weight_g,
            "weight_a": loss.weight_a,
            "loss": nll + loss.weight_g * kl_g + loss.weight_a * kl_a,
            "seconds": time.monotonic() - started,
        }

    def _require_finite(self, model: Transformer, loss: Loss, norm: Tensor, step: int) -> None:
        if torch.isfinite(loss.total.detach() + norm):
            return
        parts = {"nll": loss.nll, "kl_g": loss.kl_g, "kl_a": loss.kl_a}
        bad = [name for name, value in parts.items() if not value.isfinite()]
        bad += [n for n, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
        raise NumericalError(
            f"step {step + 1}: {bad[0] if bad else 'the gradient norm'} is not finite; lower the learning "
            f"rate (lr={self.optim.lr:g}) or set a gradient bound (clip); the last checkpoint is kept"
        )

    # ---- files ------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Names the settings and the data of the run."""
        settings = [
            repr(self.method),
            to_json(self.config),
            asdict(self.optim),
            self.seed,
            [len(self.train), len(self.validation)],
            float(self.train.targets.double().sum()),
            None if self.warm is None else sorted((n, float(w.double().sum())) for n, w in self.warm.items()),
        ]
        return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]

    @property
    def finished(self) -> Path | None:
        """The saved model, if the run has come to its end."""
        model, note = self._path("model"), self._path("checkpoint.safetensors")
        if model is None or note is None or not (model / "config.json").exists() or not note.exists():
            return None
        return model if read_tensors(note)[1]["fingerprint"] == self.fingerprint else None

    def _path(self, name: str) -> Path | None:
        return None if self.directory is None else self.directory / name

    def _looks_at(self, epoch: int) -> bool:
        return epoch % self.optim.select_every == 0 or epoch == self.optim.epochs

    def _score(self, scores: dict[str, float], epoch: int) -> float:
        """The number to minimise."""
        if self.optim.select == "last":
            return -float(epoch)
        value = scores.get(self.optim.select)
        allowed = ", ".join((*scores, "last"))
        check_fields("optim", [("select", self.optim.select, value is not None, allowed)])
        assert value is not None
        return -value if self.optim.select == "accuracy" else value

    def _write_best(self, weights: dict[str, Tensor]) -> None:
        if path := self._path("best.safetensors"):
            write_tensors(path, weights)

    def _read_best(self, note: dict[str, Any]) -> dict[str, Tensor] | None:
        path = self._path("best.safetensors")
        if note["best"] is None or path is None:
            return None
        return read_tensors(path)[0]

    def _log(self, line: dict[str, Any]) -> None:
        if path := self._path("log.jsonl"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def _cut_log(self, epoch: int) -> None:
        """Forget what was logged after the checkpoint: those epochs are run again."""
        if (path := self._path("log.jsonl")) and path.exists():
            lines = list(read_log(path))
            kept = [json.dumps(line) + "\n" for line in lines if line["epoch"] <= epoch]
            path.write_text("".join(kept), encoding="utf-8")


INITIAL_BATCH = 512  # rows a method may look at to set initial values
DIAGNOSED = 64  # rows the diagnostics look at


def check_device(name: str) -> None:
    """One clear line for a device that is not there."""
    known = ["cpu"] + [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    fine = name in known or (name == "cuda" and len(known) > 1)
    check_fields("trainer", [("device", name, fine, ", ".join(known))])


def validate(predictor: Predictor, data: Dataset) -> dict[str, float]:
    """Validation metrics of a predictor."""
    return score(predictor.predict(data.inputs), data.targets)


def score(prediction: Prediction, targets: Tensor) -> dict[str, float]:
    """The metrics that selection may use."""
    if isinstance(prediction, Classification):
        p = prediction.probabilities.cpu()
        return {"accuracy": metrics.accuracy(p, targets.cpu()), "nll": metrics.nll(p, targets.cpu())}
    f, b = prediction.samples.cpu(), float(prediction.scale)
    return {
        "mae": metrics.mae(f.mean(0), targets.cpu()),
        "nll": metrics.laplace_mixture_nll(f, b, targets.cpu()),
    }


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log; a last line that was cut short is left out."""
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(text)
        except json.JSONDecodeError:
            return


def seconds(log: Path) -> float:
    """Training time from a log: a run that was resumed counts whole."""
    return float(sum(line["seconds"] for line in read_log(log)))


def history(log: Path) -> dict[str, Any]:
    """A log as columns; what is measured every few epochs only is null in between."""
    lines = list(read_log(log))
    layers = [line.get("layers") for line in lines]
    depth = max((len(found) for found in layers if found), default=0)
    names = ("kl_g", "kl_a", "variance", "snr", "off_diagonal")
    return {
        **{key: [line[key] for line in lines] for key in ("epoch", "nll", "kl_g", "kl_a")},
        "validation": [line.get("validation", {}).get("nll") for line in lines],
        "layers": {
            name: [[layer[name] for layer in found] if found else [None] * depth for found in layers]
            for name in names
        },
    }


def in_words(line: dict[str, Any], epochs: int) -> str:
    """An epoch's line of the log as a progress bar shows it."""
    kl = f"  KL_g {line['kl_g']:.0f}  KL_a {line['kl_a']:.1f}" if line["kl_g"] else ""
    return f"epoch {line['epoch']}/{epochs}  nll {line['nll']:.3f}{kl}"
