"""The short way: tensors in, a calibrated Transformer out."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from sgpa.core.errors import check_fields
from sgpa.core.inputs import Inputs
from sgpa.data import Dataset
from sgpa.methods import Mle, Sgpa
from sgpa.models import KernelAttentionConfig, ModelConfig, SgpaConfig, Transformer
from sgpa.training.optim import OptimConfig
from sgpa.training.trainer import Report, Trainer

RUNS = {"sgpa": ("warm-start", "sgpa"), "mle": ("mle",)}  # the trainings each method is made of
WARM_SHARE = 0.4  # of the epochs train a point model, whose weights the sparse GP starts from


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How to train on one's own data, SGPA or the point model it is compared with.

    A random share `validation` of the rows picks the epoch to keep, by NLL. With a `directory` a run can be
    stopped and goes on when called again; `report` receives a line of numbers after every epoch.
    """

    epochs: int = 100
    batch_size: int = 100
    lr: float = 5e-4
    validation: float = 0.1
    seed: int = 0
    device: str = "cpu"
    directory: Path | None = None
    report: Report = lambda _: None

    def __post_init__(self) -> None:
        check_fields(
            "fit",
            [
                ("epochs", self.epochs, self.epochs >= 2, "2 or more"),
                ("validation", self.validation, 0 < self.validation < 1, "between 0 and 1"),
            ],
        )

    def sgpa(self, data: Dataset, config: ModelConfig) -> Transformer:
        """Maximum likelihood first, then the ELBO from there: `epochs` in all."""
        attention = sgpa_attention(config)
        warm_epochs = max(1, round(WARM_SHARE * self.epochs))
        weights = self._train("warm-start", point(attention), data, config, warm_epochs).state_dict()
        method = Sgpa(attention=attention)
        return self._train("sgpa", method, data, config, self.epochs - warm_epochs, weights)

    def mle(self, data: Dataset, config: ModelConfig) -> Transformer:
        """Maximum likelihood all the way."""
        return self._train("mle", point(sgpa_attention(config)), data, config, self.epochs)

    def split(self, data: Dataset) -> tuple[Dataset, Dataset]:
        """Rows to train on, and rows held out to pick the epoch."""
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(self.seed))
        held_out = max(1, round(self.validation * len(order)))
        return data[order[held_out:]], data[order[:held_out]]

    def _train(
        self,
        name: str,
        method: Mle | Sgpa,
        data: Dataset,
        config: ModelConfig,
        epochs: int,
        warm: dict[str, Tensor] | None = None,
    ) -> Transformer:
        train, validation = self.split(data)
        return Trainer(
            method=method,
            config=config,
            optim=OptimConfig(
                epochs=epochs,
                batch_size=self.batch_size,
                lr=self.lr,
                final_lr=self.lr / 50,
                select_every=max(1, epochs // 20),
            ),
            train=train,
            validation=validation,
            seed=self.seed,
            directory=None if self.directory is None else self.directory / name,
            warm=warm,
            device=self.device,
            report=lambda line: self.report({"run": name, "epochs": epochs} | line),
        ).fit()


def fit(
    inputs: Inputs,
    targets: Tensor,
    config: ModelConfig,
    *,
    directory: str | Path | None = None,
    report: Report = lambda _: None,
    epochs: int = 100,
    batch_size: int = 100,
    lr: float = 5e-4,
    validation: float = 0.1,
    seed: int = 0,
    device: str = "cpu",
) -> Transformer:
    """Train SGPA on your own data. The arguments are those of `Fit`.

    If `config` asks for kernel attention, its kernel is used with SGPA's defaults.
    """
    how = Fit(
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        validation=validation,
        seed=seed,
        device=device,
        directory=None if directory is None else Path(directory),
        report=report,
    )
    return how.sgpa(Dataset(inputs, targets), config)


def sgpa_attention(config: ModelConfig) -> SgpaConfig:
    """The sparse-GP attention a config asks for, or the one that belongs to its kernel."""
    if isinstance(config.attention, SgpaConfig):
        return config.attention
    if isinstance(config.attention, KernelAttentionConfig):
        return replace(SgpaConfig(), kernel=config.attention.kernel, tied=config.attention.tied)
    return SgpaConfig()


def point(attention: SgpaConfig) -> Mle:
    """The point model with the same kernel."""
    return Mle(attention=KernelAttentionConfig(kernel=attention.kernel, tied=attention.tied))
