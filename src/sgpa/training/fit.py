"""Train a method on tensors with one call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core.errors import ConfigError, check_fields
from sgpa.core.inputs import Inputs
from sgpa.core.noise import check_seed
from sgpa.core.types import Predictor
from sgpa.data import Dataset
from sgpa.methods import Calibration, Ensemble, Method, Sgpa
from sgpa.models import ModelConfig, Transformer
from sgpa.training.fit_method import point_method, resolve_method, sparse_attention
from sgpa.training.optim import OptimConfig
from sgpa.training.plan import Plan, Stage
from sgpa.training.trainer import OnProgress, Trainer, silent

EPOCHS, BATCH_SIZE, LR = 100, 100, 5e-4  # where neither they nor `optim` are given
STAGE1_SHARE = 0.4  # of the epochs train a point model, whose weights the sparse GP starts from


def fit(
    inputs: Inputs,
    targets: Tensor,
    config: ModelConfig,
    *,
    method: str | Method = "sgpa",
    optim: OptimConfig | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    validation: float | tuple[Inputs, Tensor] | Dataset = 0.1,
    directory: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    on_progress: OnProgress = silent,
) -> Any:
    """Train a method on your own data.

    SGPA is trained in two stages: a point model with the same kernel for 40 % of the epochs, then the ELBO
    from its weights.

    Args:
        inputs: What the model reads, one row each: images [N, C, H, W], token ids [N, T], `Graphs`, `Words`.
        targets: Classes [N] (int) or values [N] (float).
        config: The Transformer. `config.attention` is the attention of the method: SGPA takes `SgpaConfig`,
            or `KernelAttentionConfig` for its own defaults with that kernel; other methods take
            `KernelAttentionConfig` or `DotProductConfig`.
        method: An id, one of mle, ts, mfvi, mcd, kflla, sngp, sgpa, de, sgpae, or a `Method`, which has an
            attention of its own.
        optim: All settings of the optimiser; its epochs are those of both stages of SGPA.
        epochs, batch_size, lr: Short for the most common settings (100, 100, 5e-4); not with `optim`.
        validation: The share of the rows that is held out to select the epoch, or held-out data.
        directory: Where the run is kept: call again with the same arguments to resume it, or to read the
            finished model. A directory with a model of other settings or data is refused.
        seed: Random seed.
        device: "cpu", "cuda" or "cuda:0".
        on_progress: Receives a dict after every epoch and about twice a second (with a key "step").

    Returns:
        What predicts: for sgpa, mle and mfvi the `Transformer` itself, with `predict` and `save_pretrained`;
        for other methods the method's predictor, with `predict`. To keep such a predictor, train it in a run
        directory (`sgpa train`).

    Example:
        >>> config = sgpa.ModelConfig(embedding=sgpa.PatchConfig(), outputs=10)  # doctest: +SKIP
        >>> model = sgpa.fit(images, labels, config, epochs=20, directory="runs/mine")  # doctest: +SKIP
        >>> model.predict(new_images).probabilities  # doctest: +SKIP
    """
    check_seed(seed)
    chosen, config = resolve_method(method, config)
    two_stages = isinstance(chosen.trains, Sgpa)
    settings = _optim(optim, epochs, batch_size, lr, least=2 if two_stages else 1, validation=validation)
    train, held_out = _split(Dataset(inputs, targets), validation, seed)
    plan = own_plan(chosen, settings)
    members = plan.members(seed)
    folder = None if directory is None else Path(directory)
    models = [
        train_plan(
            plan, config, train, held_out, seed=member, directory=folder, device=device,
            on_progress=on_progress, suffix=f"-{member}" if len(members) > 1 else "",
        )
        for member in members
    ]  # fmt: skip
    return _predictor(chosen, models, Calibration(train, held_out))


def own_plan(method: Method, optim: Callable[[int | None], OptimConfig]) -> Plan:
    """One stage, or for sparse-GP attention a point model first; `optim` gives the settings for n epochs."""
    trained, whole = method.trains, optim(None)
    if not isinstance(trained, Sgpa):
        return Plan(method, "own", (Stage(trained.id, trained, whole),))
    first = max(1, round(STAGE1_SHARE * whole.epochs))
    stages = (
        Stage("warm-start", point_method(trained.attention), optim(first)),
        Stage(trained.id, trained, optim(whole.epochs - first)),
    )
    return Plan(method, "own", stages)


def train_plan(
    plan: Plan,
    config: ModelConfig,
    train: Dataset,
    validation: Dataset,
    *,
    seed: int,
    directory: Path | None,
    device: str,
    on_progress: OnProgress,
    suffix: str = "",  # of the folders' names
) -> Transformer:
    """All stages of a plan, each from the weights of the last; returns the last model."""
    model: Transformer | None = None
    for stage in plan.stages:
        name = f"{stage.name}{suffix}"
        about = {"run": name, "epochs": stage.optim.epochs}
        model = Trainer(
            method=stage.method,
            config=stage.model(config),
            optim=stage.optim,
            train=train,
            validation=validation,
            seed=seed,
            directory=None if directory is None else directory / name,
            init_from=None if model is None else model.state_dict(),
            extra_selectors=stage.extra_selectors,
            device=device,
            on_progress=lambda line, about=about: on_progress(about | line),  # type: ignore[misc]
        ).fit()
    assert model is not None
    return model


def _optim(
    optim: OptimConfig | None,
    epochs: int | None,
    batch_size: int | None,
    lr: float | None,
    *,
    least: int,
    validation: float | object,
) -> Callable[[int | None], OptimConfig]:
    """Settings of the optimiser for a number of epochs, by default for all."""
    given = {"epochs": epochs, "batch_size": batch_size, "lr": lr}
    if optim is not None and (both := [name for name, value in given.items() if value is not None]):
        raise ConfigError(f"fit: {', '.join(both)} and optim are both given; set optim.{both[0]} instead")
    total = optim.epochs if optim is not None else EPOCHS if epochs is None else epochs
    share = validation if isinstance(validation, int | float) else 0.5
    check_fields(
        "fit",
        [
            ("epochs", total, total >= least, f"{least} or more"),
            ("validation", share, 0 < share < 1, "between 0 and 1, or held-out data"),
        ],
    )

    def settings(count: int | None) -> OptimConfig:
        n = total if count is None else count
        if optim is not None:
            return replace(optim, epochs=n)
        rate = LR if lr is None else lr
        return OptimConfig(
            epochs=n,
            batch_size=BATCH_SIZE if batch_size is None else batch_size,
            lr=rate,
            final_lr=rate / 50,
            select_every=max(1, n // 20),
        )

    return settings


def _split(
    data: Dataset, validation: float | tuple[Inputs, Tensor] | Dataset, seed: int
) -> tuple[Dataset, Dataset]:
    """Rows to train on, and rows held out to select the epoch."""
    if isinstance(validation, Dataset):
        return data, validation
    if isinstance(validation, tuple):
        return data, Dataset(*validation)
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    held_out = max(1, round(validation * len(order)))
    return data[order[held_out:]], data[order[:held_out]]


def _predictor(method: Method, models: Sequence[Transformer], data: Calibration) -> Predictor:
    """Calibrate the trained models, and combine them where the method is an ensemble."""
    predictors = [method.predictor(model, method.calibrate(model, data)) for model in models]
    if not isinstance(method, Ensemble):
        return predictors[0]
    return method.combine(predictors, method.calibrate_ensemble(predictors, data.validation))


# Only for experiments/user_data.py, until a user's data are a task like any other.

RUNS = {"sgpa": ("warm-start", "sgpa"), "mle": ("mle",)}  # the trainings each method is made of


@dataclass(frozen=True, kw_only=True)
class Fit:
    """SGPA, and the point model it is compared with, on the same rows."""

    epochs: int = EPOCHS
    batch_size: int = BATCH_SIZE
    lr: float = LR
    validation: float = 0.1
    seed: int = 0
    device: str = "cpu"
    directory: Path | None = None
    report: OnProgress = silent

    def __post_init__(self) -> None:
        self._settings()

    def sgpa(self, data: Dataset, config: ModelConfig) -> Transformer:
        """Maximum likelihood first, then the ELBO from there."""
        return self._train(Sgpa(attention=sparse_attention(config)), data, config)

    def mle(self, data: Dataset, config: ModelConfig) -> Transformer:
        """Maximum likelihood for all epochs."""
        return self._train(point_method(sparse_attention(config)), data, config)

    def split(self, data: Dataset) -> tuple[Dataset, Dataset]:
        """Rows to train on, and rows held out to select the epoch."""
        return _split(data, self.validation, self.seed)

    def _settings(self) -> Callable[[int | None], OptimConfig]:
        return _optim(None, self.epochs, self.batch_size, self.lr, least=2, validation=self.validation)

    def _train(self, method: Method, data: Dataset, config: ModelConfig) -> Transformer:
        def epochs_only(line: dict[str, Any]) -> None:
            if "step" not in line:
                self.report(line)

        return train_plan(
            own_plan(method, self._settings()), config, *self.split(data), seed=self.seed,
            directory=self.directory, device=self.device, on_progress=epochs_only,
        )  # fmt: skip
