"""Train a method on arrays with one call."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sgpa.core.errors import ConfigError, check_fields
from sgpa.core.files import write_json
from sgpa.core.inputs import Inputs
from sgpa.core.noise import check_seed
from sgpa.core.types import Predictor
from sgpa.data import Dataset
from sgpa.methods import Calibration, Ensemble, Method, Mfvi, Sgpa
from sgpa.models import ModelConfig, Transformer
from sgpa.training import process_group
from sgpa.training.compare import best_stage, refit_scale, warn_if_worse
from sgpa.training.defaults import STAGE1_SHARE, VALIDATION_SHARE, Defaults, defaults_for
from sgpa.training.fit_data import as_inputs, as_targets, check_rows, infer_embedding
from sgpa.training.fit_display import Display, estimate_seconds, in_words
from sgpa.training.fit_method import AUTO, point_method, resolve_method
from sgpa.training.optim import OptimConfig
from sgpa.training.plan import Plan, Stage
from sgpa.training.trainer import OnProgress, Trainer

log = logging.getLogger(__name__)


def fit(
    inputs: Inputs | Any,
    targets: Any,
    config: ModelConfig | None = None,
    *,
    method: str | Method = AUTO,
    optim: OptimConfig | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    stage1_share: float = STAGE1_SHARE,
    validation: float | tuple[Any, Any] | Dataset = VALIDATION_SHARE,
    directory: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> Any:
    """Train a method on your own data.

    Settings that are not given follow from the kind of data and the number of rows
    (`sgpa.training.defaults`). SGPA is trained in two stages: a point model with the same kernel for a fifth
    of the steps, then the ELBO from its weights. A stage ends early when the NLL of held-out rows stops
    improving, and its best epoch is kept.

    Args:
        inputs: What the model reads, one row each: images [N, C, H, W] (uint8 or float), token ids [N, T],
            as tensors, NumPy arrays or lists; or `Graphs`, `Words`.
        targets: Classes [N] (integers or words) or values [N] (float); [N, 1] is accepted.
        config: The Transformer; by default it is chosen for the inputs. `config.attention` is the attention
            of the method: SGPA takes `SgpaConfig`, or `KernelAttentionConfig` for the default form with that
            kernel; other methods take `KernelAttentionConfig` or `DotProductConfig`.
        method: "auto": SGPA, or its point model with a temperature where that is better on held-out rows. Or
            an id, one of mle, ts, mfvi, mcd, kflla, sngp, sgpa, de, sgpae; or a `Method`, which has an
            attention of its own.
        optim: All settings of the optimiser; its epochs are those of both stages of SGPA.
        steps, epochs, batch_size, lr: Short for the most common settings; not with `optim`.
        stage1_share: The share of the steps that train the point model from which SGPA starts.
        validation: The share of the rows that is held out to select epoch and method, or held-out data.
        directory: Where the run is kept: call again with the same arguments to resume it, or to read the
            finished model. A directory with a model of other settings or data is refused.
        seed: Random seed.
        device: "cpu", "cuda" or "cuda:0".
        on_progress: Receives a dict after every epoch and about twice a second (with a key "step"). By
            default a terminal shows a bar with the time left.

    Returns:
        What predicts. With auto, sgpa, mle and mfvi it is the `Transformer` itself, with `predict` and
        `save_pretrained`; with other methods the method's predictor, with `predict`. Its attribute `chosen`
        is the id of the method that was kept ("ts" is a point model with a temperature), `classes` the names
        of classes that were given as words. With auto, `comparison` has the held-out NLL of both.

    Example:
        >>> model = sgpa.fit(images, labels)  # doctest: +SKIP
        >>> model.predict(new_images).probabilities, model.chosen  # doctest: +SKIP
    """
    check_seed(seed)
    y, classes = as_targets(targets)
    data = Dataset(as_inputs(inputs), y)
    if config is not None and config.likelihood != "categorical":
        data = Dataset(data.inputs, y.float())
    train, held_out = _split(data, validation, seed, classes)
    regression = data.targets.is_floating_point()
    if config is not None:
        regression = config.likelihood != "categorical"
    check_rows(train, held_out, split=isinstance(validation, float), regression=regression)
    _check_optim(optim, {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr})
    defaults = defaults_for(
        infer_embedding(data.inputs) if config is None else config.embedding,
        len(train),
        outputs=1 if regression else int(data.targets.max()) + 1,
        likelihood="laplace" if regression else "categorical",
        steps=steps, epochs=epochs, batch_size=batch_size, lr=lr, stage1_share=stage1_share,
    )  # fmt: skip
    chosen, config = resolve_method(method, config or defaults.model, defaults.method)
    plan = own_plan(chosen, defaults, optim, stage1_share, whole=steps is not None or epochs is not None)
    total = (optim or defaults.total).epochs
    least = len(plan.stages)
    check_fields("fit", [("epochs", total, total >= least, f"{least} or more")])
    folder = None if directory is None else Path(directory)
    members = plan.members(seed)
    with Display(len(members) * sum(stage.optim.epochs for stage in plan.stages)) as display:
        if display.active or log.isEnabledFor(logging.INFO):
            seconds = estimate_seconds(plan, config, train, seed)
            text = f"training on {len(train)} rows, {len(held_out)} held out: at most {in_words(seconds)}"
            (display.show if display.active and on_progress is None else log.info)(text)
        stages = [
            train_plan(
                plan, config, train, held_out, seed=member, directory=folder, device=device,
                on_progress=on_progress or display.on_progress,
                suffix=f"-{member}" if len(members) > 1 else "",
            )
            for member in members
        ]  # fmt: skip
    facts: dict[str, Any] = {"chosen": chosen.id, "classes": classes}
    predictor: Predictor
    if method == AUTO:
        predictor, comparison = best_stage(stages[0][0], stages[0][-1], held_out)
        log.info("%s", comparison)
        facts |= {"chosen": comparison.chosen, "comparison": comparison}
        if folder is not None and process_group.leader():
            scores = {"chosen": comparison.chosen, "held_out_nll": dict(comparison.nll)}
            write_json(folder / "chosen.json", scores | {"classes": list(classes)})
    else:
        if isinstance(chosen, Sgpa):
            warn_if_worse(stages[0], held_out)
        predictor = _predictor(chosen, [models[-1] for models in stages], Calibration(train, held_out))
    vars(predictor).update(facts)
    return predictor


def own_plan(
    method: Method, defaults: Defaults, optim: OptimConfig | None, stage1_share: float, *, whole: bool
) -> Plan:
    """One stage, or for sparse-GP attention a point model first.

    `optim` replaces the default optimiser. Without it, methods of one stage have as many epochs as the point
    model of SGPA, which overfits with more; all epochs where `whole`, and for MFVI.
    """
    trained = method.trains
    if not isinstance(trained, Sgpa):
        single = defaults.total if whole or isinstance(trained, Mfvi) else defaults.stage1
        return Plan(method, "own", (Stage(trained.id, trained, optim or single),))
    first, second = (defaults.stage1, defaults.stage2) if optim is None else optim.split(stage1_share)
    stages = (
        Stage("warm-start", point_method(trained.attention), first),
        Stage(trained.id, trained, second),
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
) -> list[Transformer]:
    """The models of all stages of a plan, each trained from the weights of the one before."""
    models: list[Transformer] = []
    for stage in plan.stages:
        name = f"{stage.name}{suffix}"
        about = {"run": name, "epochs": stage.optim.epochs}
        trainer = Trainer(
            method=stage.method,
            config=stage.model(config),
            optim=stage.optim,
            train=train,
            validation=validation,
            seed=seed,
            directory=None if directory is None else directory / name,
            init_from=models[-1].state_dict() if models else None,
            extra_selectors=stage.extra_selectors,
            device=device,
            on_progress=lambda line, about=about: on_progress(about | line),  # type: ignore[misc]
        )
        models.append(trainer.fit())
    return models


def _check_optim(optim: OptimConfig | None, given: dict[str, Any]) -> None:
    if optim is not None and (both := [name for name, value in given.items() if value is not None]):
        raise ConfigError(f"fit: {', '.join(both)} and optim are both given; set optim.{both[0]} instead")


def _split(
    data: Dataset, validation: float | tuple[Any, Any] | Dataset, seed: int, classes: Sequence[str]
) -> tuple[Dataset, Dataset]:
    """Rows to train on, and rows held out to select the epoch."""
    if isinstance(validation, Dataset):
        return data, validation
    if isinstance(validation, tuple):
        targets, words = as_targets(validation[1], "validation targets")
        if words:
            known = [classes.index(word) if word in classes else -1 for word in words]
            check_fields("fit", [("validation", words, -1 not in known, f"classes {', '.join(classes)}")])
            targets = torch.tensor(known)[targets]
        return data, Dataset(as_inputs(validation[0], "validation inputs"), targets.to(data.targets.dtype))
    check_fields("fit", [("validation", validation, 0 < validation < 1, "between 0 and 1, or held-out data")])
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    held_out = max(1, round(validation * len(order)))
    return data[order[held_out:]], data[order[:held_out]]


def _predictor(method: Method, models: Sequence[Transformer], data: Calibration) -> Predictor:
    """Calibrate the trained models, and combine them where the method is an ensemble."""
    for model in models:
        refit_scale(model, data.validation)
    predictors = [method.predictor(model, method.calibrate(model, data)) for model in models]
    if not isinstance(method, Ensemble):
        return predictors[0]
    return method.combine(predictors, method.calibrate_ensemble(predictors, data.validation))
