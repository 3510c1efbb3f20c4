"""The short way: tensors in, a calibrated Transformer out."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from sgpa.data import Dataset
from sgpa.errors import check_fields
from sgpa.methods import Mle, Sgpa
from sgpa.models import KernelAttentionConfig, ModelConfig, SgpaConfig, Transformer
from sgpa.optim import OptimConfig
from sgpa.training import Report, Trainer
from sgpa.types import Inputs

WARM_SHARE = 0.4  # of the epochs train a point model, whose weights the sparse GP starts from


def fit(
    inputs: Inputs,
    targets: Tensor,
    config: ModelConfig,
    *,
    epochs: int = 100,
    batch_size: int = 100,
    lr: float = 5e-4,
    validation: float = 0.1,
    seed: int = 0,
    device: str = "cpu",
    directory: str | Path | None = None,
    report: Report = lambda _: None,
) -> Transformer:
    """Train SGPA on your own data: maximum likelihood first, then the ELBO from there.

    A random share `validation` of the rows picks the epoch to keep, by NLL. With a `directory` the run
    can be stopped and goes on when called again; `report` receives a line of numbers after every epoch.
    If `config` asks for another attention than SGPA, its kernel is used with SGPA's defaults.
    """
    warm_epochs = round(WARM_SHARE * epochs)
    check_fields(
        "fit",
        [
            ("epochs", epochs, epochs >= 2, "2 or more"),
            ("validation", validation, 0 < validation < 1, "between 0 and 1"),
        ],
    )
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    held_out = max(1, round(validation * len(order)))
    data = Dataset(inputs, targets)
    attention = config.attention if isinstance(config.attention, SgpaConfig) else SgpaConfig()
    if isinstance(config.attention, KernelAttentionConfig):
        attention = replace(attention, kernel=config.attention.kernel, tied=config.attention.tied)
    point = Mle(attention=KernelAttentionConfig(kernel=attention.kernel, tied=attention.tied))

    def train(name: str, method: Mle | Sgpa, epochs: int, warm: dict[str, Tensor] | None) -> Transformer:
        return Trainer(
            method=method,
            config=config,
            optim=OptimConfig(epochs=max(1, epochs), batch_size=batch_size, lr=lr, final_lr=lr / 50),
            train=data[order[held_out:]],
            validation=data[order[:held_out]],
            seed=seed,
            directory=None if directory is None else Path(directory) / name,
            warm=warm,
            device=device,
            report=report,
        ).fit()

    weights = train("warm-start", point, warm_epochs, None).state_dict()
    return train("sgpa", Sgpa(attention=attention), epochs - warm_epochs, weights)
