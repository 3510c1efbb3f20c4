"""Train a method on arrays with one call."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sgpa.core.arguments import checked
from sgpa.core.devices import check_device
from sgpa.core.errors import ConfigError, check_fields
from sgpa.core.noise import check_seed
from sgpa.data import Dataset
from sgpa.data.dataset import Augment
from sgpa.data.images.augmentation import augmentation_for
from sgpa.evaluation.curves import still_falls
from sgpa.methods import Calibration, Method, Mfvi, Sgpa
from sgpa.models import KernelAttentionConfig, ModelConfig, Transformer
from sgpa.training.compare import best_stage, refit_scale, warn_if_worse
from sgpa.training.defaults import VALIDATION_SHARE, Defaults, defaults_for
from sgpa.training.fit_data import as_data, check_rows, infer_embedding, split
from sgpa.training.fit_display import Display, estimate_seconds, in_words
from sgpa.training.fit_folder import save_choice
from sgpa.training.fit_method import AUTO, check_method, point_method, resolve_method
from sgpa.training.fit_targets import Classes
from sgpa.training.fitted import Fitted
from sgpa.training.left_out import LeftOut
from sgpa.training.lock import locked
from sgpa.training.optim import OptimConfig
from sgpa.training.plan import Plan, Stage
from sgpa.training.trainer import OnProgress, Trainer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StageResult:
    """The model of one stage, and its errors of held-out rows where numbers are predicted."""

    method: Method
    model: Transformer
    left_out: LeftOut | None


@checked
def fit(
    inputs: Any,
    targets: Any = None,
    config: ModelConfig | None = None,
    *,
    method: str | Method = AUTO,
    optim: OptimConfig | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    stage1_share: float | None = None,
    validation: Any = VALIDATION_SHARE,
    augment: str | Augment | None = AUTO,
    directory: str | Path | None = None,
    seed: int = 0,
    device: str = "cpu",
    on_progress: OnProgress | None = None,
) -> Fitted:
    """Train a method on your own data.

    Settings that are not given follow from the kind of data and the number of rows
    (`sgpa.training.defaults`). SGPA is trained in two stages: a point model with the same kernel, then the
    ELBO from its weights. A stage ends early when the NLL of held-out rows stops
    improving, and its best epoch is kept.

    Args:
        inputs: What the model reads, one row each: images [N, C, H, W] (uint8 or float), token ids [N, T],
            as tensors, NumPy arrays or lists; or `Graphs`, `Words`. Or all rows with their targets: a
            `DataLoader` or data set of torch, or an `sgpa.data.Dataset`; then `targets` is left out.
        targets: Classes [N] (integers or words) or values [N] (float); [N, 1] is accepted.
        config: The Transformer; by default it is chosen for the inputs. `config.attention` is the attention
            of the method: SGPA takes `SgpaConfig`, or `KernelAttentionConfig` for the default form with that
            kernel; other methods take `KernelAttentionConfig` or `DotProductConfig`.
        method: "auto": SGPA, or its point model with a temperature where that is better on held-out rows. Or
            an id, one of mle, ts, vs, ms, mfvi, mcd, kflla, posthoc, sngp, sgpa, sgpah, de, sgpae; or a
            `Method`, which has an attention of its own.
        optim: All settings of the optimiser; its epochs are those of both stages of SGPA.
        steps: Steps of training, both stages together. This and the next three are not for use with `optim`.
        epochs: Passes over the training rows, instead of `steps`.
        batch_size: Rows of a step.
        lr: Initial learning rate.
        stage1_share: The share of the steps that train the point model from which SGPA starts; by default a
            fifth, for photographs a third.
        validation: The share of the rows that is held out to select epoch and method, or held-out data: a
            pair (inputs, targets), a `DataLoader` or a data set.
        augment: "auto": photographs of 16 pixels a side and more get 3-Augment, other images of that size are
            shifted; flips and changes of colour only where the training rows do not speak against them
            (`sgpa.data.images.augmentation`). Or a function of a batch of inputs and a `torch.Generator`;
            or None.
        directory: Where the run is kept: call again with the same arguments to resume it, or to read the
            finished model. A directory with a model of other settings or data is refused.
        seed: Random seed.
        device: "cpu", "cuda" or "cuda:0".
        on_progress: Receives a dict after every epoch and about twice a second (with a key "step"). By
            default a terminal shows a bar with the time left, other outputs a line every half minute.

    Returns:
        What predicts, with its limits of trust (`Fitted`). Its attribute `chosen` is the id of the method
        that was kept ("ts" is a point model with a temperature), `classes` the names of classes that were
        given as words, `model` the `Transformer`. With auto, `comparison` has the held-out NLL of both, and
        both models. `save_pretrained` saves it; `sgpa.load` opens that folder, or `directory`, again.

    Example:
        >>> model = sgpa.fit(images, labels)  # doctest: +SKIP
        >>> answer = model.predict(new_images)  # doctest: +SKIP
        >>> answer.probabilities, answer.trust, answer.reason  # doctest: +SKIP
    """
    check_seed(seed)
    check_device(device)
    check_method(method)
    data, classes = as_data(
        inputs, targets, regression=config is not None and config.likelihood != "categorical"
    )
    train, held_out = split(data, validation, seed, classes, directory)
    regression = data.targets.is_floating_point()
    shared = isinstance(validation, float)
    check_rows(train, held_out, split=shared, classes=classes)
    _check_optim(optim, {"steps": steps, "epochs": epochs, "batch_size": batch_size, "lr": lr})
    train = replace(train, augment=_augmentation(augment, train))
    defaults = defaults_for(
        infer_embedding(data.inputs) if config is None else config.embedding,
        len(train),
        outputs=1 if regression else int(data.targets.max()) + 1,
        likelihood="laplace" if regression else "categorical",
        steps=steps, epochs=epochs, batch_size=batch_size, lr=lr, stage1_share=stage1_share,
    )  # fmt: skip
    if config is None:  # a method that is given as an object brings its own attention
        own = not isinstance(method, str)
        config = replace(defaults.model, attention=KernelAttentionConfig()) if own else defaults.model
    chosen, config = resolve_method(method, config, defaults.method)
    plan = plan_on_user_data(chosen, defaults, optim, whole=steps is not None or epochs is not None)
    total = (optim or defaults.total).epochs
    least = len(plan.stages)
    check_fields("fit", [("epochs", total, total >= least, f"{least} or more")])
    folder = None if directory is None else Path(directory)
    with nullcontext() if folder is None else locked(folder):
        fitted = _train(
            chosen, plan, config, Calibration(train, held_out),
            auto=method == AUTO, classes=classes, folder=folder, seed=seed, device=device,
            on_progress=on_progress,
        )  # fmt: skip
        save_choice(folder, fitted)
    return fitted


def _train(
    method: Method, plan: Plan, config: ModelConfig, data: Calibration, *, auto: bool, classes: Classes,
    folder: Path | None, seed: int, device: str, on_progress: OnProgress | None,
) -> Fitted:  # fmt: skip
    """Train all members of a plan, with a bar where the caller shows no progress, and calibrate them."""
    members = plan.members(seed)
    epochs = len(members) * sum(stage.optim.epochs for stage in plan.stages)
    with Display(epochs, shown=on_progress is None) as display:
        show_line = display.show if display.shown else log.info
        if display.shown or log.isEnabledFor(logging.INFO):
            seconds = in_words(estimate_seconds(plan, config, data.train, seed, device))
            rows, held_out = len(data.train), len(data.validation)
            show_line(f"training on {rows} rows, {held_out} held out: at most {seconds}")
        stages = [
            train_plan(
                plan, config, data.train, data.validation, seed=member, directory=folder, device=device,
                on_progress=on_progress or display.on_progress,
                suffix=f"-{member}" if len(members) > 1 else "",
            )
            for member in members
        ]  # fmt: skip
        fitted = _chosen(method, stages, data, auto=auto, classes=classes)
        if fitted.comparison is not None:
            show_line(str(fitted.comparison))
        for sentence in fitted.doubts:
            show_line(sentence)
        if (fall := still_falls(display.validation)) is not None:
            show_line(
                f"held-out NLL still fell at the end, by {fall:.3f} in the last fifth: more than these "
                f"{plan.steps(len(data.train)):,} steps may help"
            )
    return fitted


def _chosen(
    method: Method, stages: Sequence[list[StageResult]], data: Calibration, *, auto: bool, classes: Classes
) -> Fitted:
    """What predicts.

    Args:
        method: What was trained.
        stages: The models of all stages, for each member.
        data: Training and held-out rows.
        auto: Whether to return the better of the first and the last stage.
        classes: Names of the classes, if they have any.
    """
    first, last = stages[0][0], stages[0][-1]
    if auto:
        comparison = best_stage(first.model, last.model, data.validation)
        best = last if comparison.chosen == "sgpa" else first
        facts = {"chosen": comparison.chosen, "comparison": comparison}
        return Fitted.of(best.method, [best.model], data, left_out=best.left_out, classes=classes, **facts)
    if isinstance(method, Sgpa):
        warn_if_worse([stage.model for stage in stages[0]], data.validation)
    models = [member[-1].model for member in stages]
    for model in models:
        refit_scale(model, data.validation)
    return Fitted.of(method, models, data, left_out=last.left_out, classes=classes)


def _augmentation(augment: str | Augment | None, train: Dataset) -> Augment | None:
    """The augmentation of the training rows: what was given, what suits images, or that of the data set."""
    if callable(augment) or augment is None:
        return augment
    check_fields("fit", [("augment", augment, augment == AUTO, "auto, a function, or None")])
    return train.augment or augmentation_for(train.inputs, train.targets)


def plan_on_user_data(method: Method, defaults: Defaults, optim: OptimConfig | None, *, whole: bool) -> Plan:
    """One stage, or for sparse-GP attention a point model first.

    `optim` replaces the default optimiser. Without it, methods of one stage have as many epochs as the point
    model of SGPA, which overfits with more; all epochs where `whole`, and for MFVI.
    """
    trained = method.trains
    if not isinstance(trained, Sgpa):
        single = defaults.total if whole or isinstance(trained, Mfvi) else defaults.stage1
        return Plan(method, "own", (Stage(trained.id, trained, optim or single),))
    first, second = (
        (defaults.stage1, defaults.stage2) if optim is None else optim.split(defaults.stage1_share)
    )
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
) -> list[StageResult]:
    """The models of all stages of a plan, each trained from the weights of the one before."""
    trained: list[StageResult] = []
    for stage in plan.stages:
        name = f"{stage.name}{suffix}"
        metadata = {"run": name, "epochs": stage.optim.epochs}
        trainer = Trainer(
            method=stage.method,
            config=stage.model(config),
            optim=stage.optim,
            train=train,
            validation=validation,
            seed=seed,
            directory=None if directory is None else directory / name,
            init_from=trained[-1].model.state_dict() if trained else None,
            extra_selectors=stage.extra_selectors,
            device=device,
            on_progress=lambda line, metadata=metadata: on_progress(metadata | line),  # type: ignore[misc]
        )
        model = trainer.fit()
        trained.append(StageResult(stage.method, model, trainer.left_out))
    return trained


def _check_optim(optim: OptimConfig | None, given: dict[str, Any]) -> None:
    if optim is not None and (both := [name for name, value in given.items() if value is not None]):
        raise ConfigError(f"fit: {', '.join(both)} and optim are both given; set optim.{both[0]} instead")
