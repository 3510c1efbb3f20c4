"""Training: the stages of a plan, one after another, each from the weights of the one before."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from sgpa.core.progress import OnProgress
from sgpa.experiments.runner.jobs import silent
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.models import Transformer, saving
from sgpa.training.logs import in_words
from sgpa.training.plan import Plan, Stage
from sgpa.training.trainer import Trainer

SHOWN = {"warm": "sgpa stage 1", "mle-after": "mle stage 2", "mcd-after": "mcd stage 2"}  # names of folders


def train(
    run_folder: RunFolder, plan: Plan, seed: int, on_progress: OnProgress = silent
) -> dict[int, Transformer]:
    """All stages of a plan for all its members; finished ones are read from disk.

    Returns:
        The trained models by the seed of the member, as the last stage's own method selected them.
    """
    models = {}
    for member in plan.members(seed):
        weights: Mapping[str, Tensor] | None = None
        for stage in range(len(plan.stages)):
            models[member] = train_stage(run_folder, plan, stage, member, on_progress, weights)
            weights = models[member].state_dict()
    return models


def train_stage(
    run_folder: RunFolder,
    plan: Plan,
    stage: int,
    seed: int,
    on_progress: OnProgress = silent,
    init_from: Mapping[str, Tensor] | None = None,
) -> Transformer:
    """One stage of a plan; a finished one is read from disk.

    `init_from` are the weights of the stage before; by default they are read from its folder.
    """
    current = plan.stages[stage]
    if stage and init_from is None:
        init_from = saving.load(run_folder.training(plan, plan.stages[stage - 1], seed) / "model")[1]
    finished = (run_folder.training(plan, current, seed) / "model" / "config.json").exists()
    model = _trainer(run_folder, plan, current, seed, on_progress, init_from if stage else None).fit()
    if finished:
        on_progress(label(plan, current, seed), 1, 1, "trained before")
    return model


def label(plan: Plan, stage: Stage, seed: int) -> str:
    """The name of a training where its progress is shown."""
    return shown_name(plan, SHOWN.get(stage.name, stage.name), seed)


def shown_name(plan: Plan, name: str, seed: int) -> str:
    """A piece of work where its progress is shown; the attention only if it is not the usual one."""
    return f"{name}, seed {seed}" if plan.attention == "kernel" else f"{plan.attention} {name}, seed {seed}"


def _trainer(
    run_folder: RunFolder,
    plan: Plan,
    stage: Stage,
    seed: int,
    on_progress: OnProgress,
    init_from: Mapping[str, Tensor] | None,
) -> Trainer:
    name, epochs = label(plan, stage, seed), stage.optim.epochs
    on_progress(name, 0, 100 * epochs, "reading the data")
    task = run_folder.task(seed)
    steps = -(-len(task.splits.train) // stage.optim.batch_size)

    def on_line(line: dict[str, Any]) -> None:
        if "step" in line:
            done = line["epoch"] - 1 + line["step"] / line["steps"]
        else:
            done, line = line["epoch"], line | {"step_seconds": line["seconds"] / steps}
            done = epochs if line.get("stopped_early") else done
        on_progress(name, round(100 * done), 100 * epochs, in_words(line, epochs))

    on_progress(name, 0, 100 * epochs, "starting")
    return Trainer(
        method=stage.method,
        config=stage.model(run_folder.model(task)),
        optim=stage.optim,
        train=task.splits.train,
        validation=task.splits.validation,
        seed=seed,
        directory=run_folder.training(plan, stage, seed),
        init_from=init_from,
        extra_selectors=stage.extra_selectors,
        device=run_folder.device,
        on_progress=on_line,
    )
