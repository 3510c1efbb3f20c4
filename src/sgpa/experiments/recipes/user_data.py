"""Recipes for a user's own images, texts and molecules."""

from collections.abc import Sequence
from pathlib import Path

from sgpa.core.errors import check_fields
from sgpa.data.texts.tokenizer import MAX_TOKENS
from sgpa.experiments.recipes.schema import Recipe
from sgpa.experiments.tasks import ImageFolderConfig, MoleculeTableConfig, TaskConfig, TextTableConfig
from sgpa.methods import Sgpa
from sgpa.models import GraphConfig, KernelConfig, ModelConfig, PatchConfig, SgpaConfig, TokenConfig
from sgpa.training.optim import OptimConfig

STAGE1_SHARE = 0.4  # of the epochs train a point model; the sparse GP starts from its weights
PATCHES = 8  # along a side of an image, about
METHODS = ("sgpa",)


def images(
    path: Path,
    *,
    size: int = 32,
    epochs: int = 100,
    batch_size: int = 100,
    lr: float = 5e-4,
    seed: int = 0,
    methods: Sequence[str] = METHODS,
) -> Recipe:
    """The recipe for a folder with one sub-folder of images per class.

    >>> images(Path("photos"), epochs=50).stage1.epochs
    20
    """
    return _recipe(
        ImageFolderConfig(path=str(path.resolve()), size=size, split_seed=seed),
        ModelConfig(
            embedding=PatchConfig(image_size=size, patch_size=patch_size(size)), depth=5, heads=4, width=128
        ),
        KernelConfig(locality=(1.0, 1.0, 2.0, 3.0)),
        SgpaConfig(),
        epochs,
        batch_size,
        lr,
        methods,
    )


def texts(
    path: Path,
    *,
    text_column: str | None = None,
    label_column: str | None = None,
    vocabulary: int = 8000,
    epochs: int = 20,
    batch_size: int = 32,
    lr: float = 1e-3,
    seed: int = 0,
    methods: Sequence[str] = METHODS,
) -> Recipe:
    """The recipe for a table of texts and labels; columns are found by their names unless given."""
    embedding = TokenConfig(
        vocabulary=vocabulary, max_tokens=MAX_TOKENS, embedding_width=128, scale=0.3, drop=0.3
    )
    return _recipe(
        TextTableConfig(
            path=str(path.resolve()),
            text_column=text_column,
            label_column=label_column,
            vocabulary=vocabulary,
            split_seed=seed,
        ),
        ModelConfig(embedding=embedding, depth=1, heads=8, width=128, pooling="sequence"),
        KernelConfig(locality=tuple(2.0**i for i in range(8))),  # from neighbours to the whole text
        SgpaConfig(num_global=50),
        epochs,
        batch_size,
        lr,
        methods,
    )


def molecules(
    path: Path,
    *,
    smiles_column: str | None = None,
    target_column: str | None = None,
    epochs: int = 100,
    batch_size: int = 64,
    lr: float = 4e-4,
    seed: int = 0,
    methods: Sequence[str] = METHODS,
) -> Recipe:
    """The recipe for a table of SMILES and numbers; columns are found by their names unless given."""
    task = MoleculeTableConfig(
        path=str(path.resolve()), smiles_column=smiles_column, target_column=target_column, split_seed=seed
    )
    embedding = GraphConfig(node_types=1, edge_types=1, identifier_width=task.width, endpoint_types=True)
    return _recipe(
        task,
        ModelConfig(
            embedding=embedding,
            depth=4,
            heads=8,
            width=80,
            pooling="sequence",
            outputs=1,
            likelihood="laplace",
        ),
        KernelConfig(),
        SgpaConfig(num_global=10),
        epochs,
        batch_size,
        lr,
        methods,
    )


def _recipe(
    task: TaskConfig,
    model: ModelConfig,
    kernel: KernelConfig,
    attention: SgpaConfig,
    epochs: int,
    batch_size: int,
    lr: float,
    methods: Sequence[str],
) -> Recipe:
    """The settings that all user data share; sizes that the data decide are set when they are read."""
    check_fields("train", [("epochs", epochs, epochs >= 2, "2 or more")])

    def optim(epochs: int) -> OptimConfig:
        every = max(1, epochs // 20)
        return OptimConfig(epochs=epochs, batch_size=batch_size, lr=lr, final_lr=lr / 50, select_every=every)

    stage1 = max(1, round(STAGE1_SHARE * epochs))
    return Recipe(
        name=task.dataset,
        task=task,
        model=model,
        kernel=kernel,
        optim=optim(epochs),
        stage1=optim(stage1),
        stage2=optim(epochs - stage1),
        sgpa=Sgpa(attention=attention),
        seeds=1,
        methods=tuple(methods),
    )


def patch_size(size: int) -> int:
    """The patch size that cuts an image into about 8 x 8 patches."""
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    return min(divisors, key=lambda d: abs(size // d - PATCHES))
