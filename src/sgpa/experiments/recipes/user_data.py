"""Recipes for a user's own images, texts and molecules, with the defaults of `sgpa.fit`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sgpa.core.errors import check_fields
from sgpa.data.texts.tokenizer import MAX_TOKENS
from sgpa.experiments.recipes.schema import Recipe
from sgpa.experiments.tasks import ImageFolderConfig, MoleculeTableConfig, TextTableConfig
from sgpa.methods import CATALOGUE
from sgpa.models import (
    FeatureConfig,
    GraphConfig,
    KernelAttentionConfig,
    KernelConfig,
    PatchConfig,
    TokenConfig,
)
from sgpa.models.config.embedding import EmbeddingConfig
from sgpa.training.defaults import FEATURE_DROP, Defaults, defaults_for, group_for, patch_size

UserData = ImageFolderConfig | TextTableConfig | MoleculeTableConfig


def user_recipe(
    task: UserData,
    rows: int,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    methods: Sequence[str] = ("sgpa",),
    max_error: float | None = None,
    tokens: int = MAX_TOKENS,
) -> Recipe:
    """The recipe for a user's data; sizes that the data decide are set when they are read.

    Beside SGPA point methods train as long as its first stage, and share that training with it. Without
    SGPA every method trains for all steps, as in `sgpa.fit`.

    Args:
        task: The folder or the table.
        rows: Training rows, which decide the number of epochs where neither `steps` nor `epochs` is given.
        steps, epochs: Of a training; of SGPA of both stages together.
        batch_size, lr: Of the optimiser.
        methods: Ids of the methods to train.
        max_error: The share of wrong answers among the trusted ones that is accepted; for numbers the reach
            of the 90 % interval that is trusted. By default it follows from the held-out rows.
        tokens: Of the longest text.

    >>> user_recipe(ImageFolderConfig(path="photos"), rows=240, epochs=50).stage1.epochs
    18
    """
    check_fields("train", [("epochs", epochs, epochs is None or epochs >= 2, "2 or more")])
    regression = isinstance(task, MoleculeTableConfig)
    defaults = defaults_for(
        embedding_for(task, tokens),
        rows,
        outputs=1 if regression else 10,
        likelihood="laplace" if regression else "categorical",
        steps=steps,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
    )
    shared = recipe_fields(defaults)
    two_stages = any(CATALOGUE[method].trains.id == "sgpa" for method in methods)
    return Recipe(
        name=task.dataset,
        task=task,
        optim=defaults.stage1 if two_stages else defaults.total,
        seeds=1,
        methods=tuple(methods),
        refit_scale=regression,
        max_error=max_error,
        **shared,
    )


def recipe_fields(defaults: Defaults) -> dict[str, Any]:
    """The fields of a recipe that defaults decide. The kernel is a field of its own."""
    attention = defaults.method.attention
    return {
        "model": replace(defaults.model, attention=KernelAttentionConfig()),
        "kernel": attention.kernel,
        "stage1": defaults.stage1,
        "stage2": defaults.stage2,
        "sgpa": replace(defaults.method, attention=replace(attention, kernel=KernelConfig())),
    }


def embedding_for(task: UserData, tokens: int = MAX_TOKENS) -> EmbeddingConfig:
    """What a model of this data reads; the data decide widths, vocabulary and types of atoms."""
    if not isinstance(task, MoleculeTableConfig) and task.backbone is not None:
        return FeatureConfig(width=1, drop=FEATURE_DROP)
    if isinstance(task, ImageFolderConfig):
        return PatchConfig(image_size=task.size, patch_size=patch_size(task.size))
    if isinstance(task, TextTableConfig):
        return TokenConfig(
            vocabulary=task.vocabulary,
            max_tokens=MAX_TOKENS,
            embedding_width=128,
            scale=0.3,
            drop=0.3,
            linear_start=True,
            group=group_for(tokens),
        )
    return GraphConfig(
        node_types=1, edge_types=1, identifier_width=task.width, endpoint_types=True, undirected=True
    )
