"""Small trainings that several test files share."""

from dataclasses import replace

import torch

from sgpa.data import Dataset
from sgpa.methods import Mle, Sgpa
from sgpa.models import DotProductConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.training.optim import OptimConfig
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
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, 1, 4, 4, generator=generator) + 2.0 * (y - 1).view(-1, 1, 1, 1)
    return Dataset(x, y)


def trainers(method=SGPA, seeds=(0, 1, 5), directory=None, optim=OPTIM, **options):
    defaults = {"config": CONFIG, "train": blobs(30, 0), "validation": blobs(30, 1)}
    return [
        Trainer(
            method=method,
            optim=optim,
            seed=seed,
            directory=None if directory is None else directory / str(seed),
            **(defaults | options),
        )
        for seed in seeds
    ]


def assert_close(model, other, atol=2e-5):
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.allclose(a, b, atol=atol, rtol=1e-4), f"{name}: {(a - b).abs().max():.2g} apart"


class Stop(Exception):
    pass


def stop_at(epoch):
    def report(line):
        if line["epoch"] == epoch:
            raise Stop

    return report
