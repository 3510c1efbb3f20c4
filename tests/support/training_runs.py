"""Small trainings that several test files share."""

from dataclasses import replace

import torch

from sgpa.core.inputs import Batch
from sgpa.data import Dataset
from sgpa.gp.objective import Progress
from sgpa.methods import Mle, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.training.optim import OptimConfig, adam
from sgpa.training.steps.base import RunState, StepInfo, random_state
from sgpa.training.steps.plain import LocalPass, PlainStep
from sgpa.training.trainer import Trainer

CONFIG = ModelConfig(
    embedding=PatchConfig(image_size=4, channels=1, patch_size=2), depth=2, heads=2, width=8, outputs=3
)
OPTIM = OptimConfig(epochs=4, batch_size=8, lr=5e-3, select_every=2)
SGPA = Sgpa(attention=SgpaConfig(num_global=3))
METHODS = {
    "kernel-mle": Mle(),
    "sdp-mle": Mle(attention=DotProductConfig()),
    "sgpa": SGPA,
    "cheng-boots": Sgpa(attention=SgpaConfig(form="cheng-boots", num_global=3)),
    "standard": Sgpa(attention=SgpaConfig(form="standard")),
    "joint": Sgpa(attention=SgpaConfig(num_global=3, joint=True)),
    "two samples": replace(SGPA, samples=2),
}


def blobs(n, seed):
    """Three classes of 4 x 4 images that differ in their mean."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, 1, 4, 4, generator=generator) + 2.0 * (y - 1).view(-1, 1, 1, 1)
    return Dataset(x, y)


def trainer(directory=None, method=SGPA, optim=OPTIM, **options):
    defaults = {"config": CONFIG, "train": blobs(30, 0), "validation": blobs(30, 1), "seed": 3}
    return Trainer(method=method, optim=optim, directory=directory, **(defaults | options))


def run_state(method=SGPA, config=CONFIG, optim=OPTIM, batch=None, device="cpu"):
    """A model before its first step."""
    torch.manual_seed(0)
    model = method.build(config).to(device).train()
    method.initialise(model, blob_batch(24, 0).to(device) if batch is None else batch)
    return RunState("seed 0", model, adam(optim, model, dict(model.named_parameters())), random_state())


def blob_batch(rows, seed):
    data = blobs(rows, seed)
    return Batch(data.inputs, data.targets)


def step_info(at, dataset_size=45_000):
    return StepInfo(at, 3e-3 * (1 - 0.1 * at), Progress(0.1 + 0.1 * at, dataset_size))


def plain_step(state, method, optim=OPTIM):
    return PlainStep(state, LocalPass(state, method), optim)


def make_steps(step, batches, first=0):
    """One step per batch, in one epoch."""
    with step:
        results = [step.step(batch, step_info(first + i)) for i, batch in enumerate(batches)]
    step.close()
    return results


def assert_same_step(one, other, results, others, rtol=1e-4):
    """Two runs made one step from equal weights: losses, KL weights and gradients agree.

    Adam's first moment after the first step is 0.1 times the gradient.
    """
    for a, b in zip(results, others, strict=True):
        torch.testing.assert_close(a.parts, b.parts, rtol=1e-5, atol=1e-5)
        for x, y in ((a.weight_g, b.weight_g), (a.weight_a, b.weight_a)):
            assert abs(float(x) - float(y)) <= 1e-6 * abs(float(y))
    scale = max(float(s["exp_avg"].abs().max()) for s in other.optimiser.state.values())
    for (name, p), q in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
        a, b = one.optimiser.state.get(p, {}), other.optimiser.state.get(q, {})
        assert float(a.get("step", 1)) == float(b.get("step", 1)) == 1, name
        zero = torch.zeros_like(p)
        a, b = (moments.get("exp_avg", zero) for moments in (a, b))
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * scale, msg=lambda t, n=name: f"{n}: {t}")


def assert_same_predictions(one, other, inputs, atol=1e-3):
    a, b = (model.eval().predict(inputs).probabilities for model in (one, other))
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


class Stop(Exception):
    pass


def stop_at(epoch):
    """Raises at the end of an epoch."""

    def on_progress(line):
        if line["epoch"] == epoch and "step" not in line:
            raise Stop

    return on_progress


def epoch_lines(lines):
    """An `on_progress` that collects the lines of epochs."""
    return lambda line: None if "step" in line else lines.append(line)
