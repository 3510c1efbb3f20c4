"""Settings that follow from the kind of data and the number of rows, where the user gives none.

`sgpa.fit`, `sgpa train images | text | molecules` and the demo share them. They were chosen by experiments on
300 to 1,200 rows: a few thousand steps with a high learning rate, strong weight decay, and an SGPA stage that
starts near the point model (Cheng-Boots form, small initial variance, few global keys). Photographs are
augmented (`sgpa.data.images.augmentation`), have attention pooling and a longer first stage.
"""

import logging
from dataclasses import dataclass, replace
from typing import Any

from sgpa.core.errors import check_fields
from sgpa.gp.objective import KlWeights
from sgpa.methods import Sgpa
from sgpa.models import (
    FeatureConfig,
    GraphConfig,
    KernelAttentionConfig,
    KernelConfig,
    ModelConfig,
    PatchConfig,
    SgpaConfig,
    TokenConfig,
)
from sgpa.models.config.embedding import EmbeddingConfig
from sgpa.training.optim import MOST, OptimConfig

log = logging.getLogger(__name__)

VALIDATION_SHARE = 0.15  # of the rows are held out to select the epoch and the method
MIN_ROWS = 10  # in all, held-out rows included
EPOCHS = 20  # at least, whatever the number of steps
VALIDATIONS = 20  # of a stage
PATIENCE = 12  # validations without improvement that end a stage
PATCHES = 8  # along a side of an image, about
KL_A = 3e-4  # weight of the amortised KL
INITIAL_VARIANCE_SCALE = 0.3
FINAL_LR = 1e-5


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Numbers that depend on the kind of inputs."""

    epochs: int = EPOCHS  # at least, whatever the number of steps
    kl_a: float = KL_A  # weight of the amortised KL
    steps: int  # of both stages
    batch_size: int
    lr: float
    weight_decay: float = 0.3
    stage1_share: float = 0.2  # of the steps train a point model; the sparse GP starts from its weights
    stage2_rate: float = 1.0  # the rate of the second stage, as a share of `lr`
    steps_per_row: float = 0.0  # for many rows, up to `most_steps`
    most_steps: int = 0
    many_share: float | None = None  # `stage1_share` where `steps_per_row` decides the steps

    def steps_for(self, rows: int) -> int:
        """Steps of both stages for a number of training rows."""
        return max(self.steps, min(self.most_steps, round(self.steps_per_row * rows)))

    def share_for(self, rows: int) -> float:
        """The share of the first stage for a number of training rows."""
        if self.many_share is None or self.steps_for(rows) == self.steps:
            return self.stage1_share
        return self.many_share


SHORT = Kind(steps=6000, batch_size=50, lr=3e-3)  # images of at most `FEW` patches
IMAGES = Kind(steps=4000, batch_size=50, lr=3e-3, stage1_share=0.35, steps_per_row=2, most_steps=6000)
TEXTS = Kind(steps=600, batch_size=32, lr=1e-3)
LONG_TEXTS = Kind(steps=60, epochs=4, batch_size=32, lr=5e-5)  # that start as logistic regression
FEATURES = Kind(steps=200, epochs=7, batch_size=32, lr=1e-3, kl_a=3e-3)  # of a frozen network
GRAPHS = Kind(
    steps=600,
    batch_size=50,
    lr=2e-3,
    weight_decay=0.0,
    stage1_share=0.35,
    stage2_rate=0.25,
    steps_per_row=1.5,
    most_steps=6000,
    many_share=0.67,
)
FEW = 25
LONG = 256  # tokens of a text
GROUPS = 128  # that the tokens of long texts are averaged to, at most
GROUP = 4  # neighbouring tokens of long texts that are averaged to one, at least
FEATURE_DROP = 0.3  # of the tokens of features
MANY_GRAPHS = 1000  # training rows from which on neighbours are added up before the first layer
ROUNDS = 2  # in so many rounds


def kind_of(embedding: EmbeddingConfig) -> Kind:
    """The numbers for a kind of inputs. Long sequences get fewer steps, because each costs more."""
    if isinstance(embedding, PatchConfig):
        return SHORT if embedding.max_tokens <= FEW else IMAGES
    if isinstance(embedding, FeatureConfig):
        return FEATURES
    if isinstance(embedding, TokenConfig) and embedding.linear_start and embedding.max_tokens > LONG:
        return LONG_TEXTS
    return GRAPHS if isinstance(embedding, GraphConfig) else TEXTS


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """A model with kernel attention, and how SGPA is trained from it.

    Example:
        >>> chosen = defaults_for(PatchConfig(image_size=8, channels=1, patch_size=2), rows=255, outputs=10)
        >>> chosen.stage1.epochs, chosen.stage2.epochs, chosen.method.attention.form
        (240, 960, 'cheng-boots')
    """

    model: ModelConfig
    method: Sgpa
    stage1: OptimConfig  # a point model
    stage2: OptimConfig  # the ELBO, from its weights
    total: OptimConfig  # all epochs in one stage
    stage1_share: float  # of the steps


def defaults_for(
    embedding: EmbeddingConfig,
    rows: int,
    *,
    outputs: int,
    likelihood: str = "categorical",
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    stage1_share: float | None = None,
) -> Defaults:
    """The model and the training for a kind of inputs.

    Args:
        embedding: What the inputs are: `PatchConfig`, `TokenConfig`, `WordsConfig`, `FeatureConfig` or
            `GraphConfig`.
        rows: Training rows, without those held out.
        outputs: Number of classes, or 1 for regression.
        likelihood: `categorical` or `laplace`.
        steps, epochs: Of both stages together; at most one of them.
        batch_size, lr: Of the optimiser.
        stage1_share: The share of the steps that train the point model; depends on the kind by default.

    Returns:
        All settings; those that were given are kept.
    """
    both = steps is not None and epochs is not None
    check_fields(
        "fit",
        [
            ("steps", steps, not both, "none, where epochs is given"),
            ("steps", steps, steps is None or 2 <= steps <= 1000 * MOST, f"2 to {1000 * MOST}"),
            ("epochs", epochs, epochs is None or 1 <= epochs <= MOST, f"1 to {MOST}"),
            ("batch_size", batch_size, batch_size is None or batch_size >= 1, "1 or more"),
            ("stage1_share", stage1_share, stage1_share is None or 0 < stage1_share < 1, "between 0 and 1"),
        ],
    )
    if isinstance(embedding, GraphConfig) and rows >= MANY_GRAPHS:
        embedding = replace(embedding, message_passing=ROUNDS)
    kind, attention = kind_of(embedding), attention_for(embedding)
    share = kind.share_for(rows) if stage1_share is None else stage1_share
    batch = equal_batches(rows, min(kind.batch_size, max(8, rows // 4))) if batch_size is None else batch_size
    per_epoch = -(-rows // batch)
    if epochs is None:
        epochs = max(
            2,
            round(steps / per_epoch) if steps else max(kind.epochs, round(kind.steps_for(rows) / per_epoch)),
        )
    first = max(1, min(epochs - 1, round(share * epochs)))

    def optim(epochs: int, rate_share: float = 1.0) -> OptimConfig:
        rate = rate_share * (kind.lr if lr is None else lr)
        return OptimConfig(
            epochs=epochs,
            batch_size=batch,
            lr=rate,
            final_lr=min(FINAL_LR, rate),
            weight_decay=kind.weight_decay,
            select_every=max(1, epochs // VALIDATIONS),
            patience=PATIENCE,
        )

    return Defaults(
        model=replace(model_for(embedding), outputs=outputs, likelihood=likelihood),
        method=Sgpa(
            attention=attention,
            kl=KlWeights(g="1/N", a=kind.kl_a),
            initial_variance_scale=INITIAL_VARIANCE_SCALE,
        ),
        stage1=optim(first),
        stage2=optim(max(1, epochs - first), kind.stage2_rate),
        total=optim(epochs),
        stage1_share=share,
    )


def equal_batches(rows: int, batch_size: int) -> int:
    """A batch size near the given one that leaves no small last batch, whose gradient would be noise.

    >>> equal_batches(255, 50)
    51
    """
    return -(-rows // max(1, round(rows / batch_size)))


def attention_for(embedding: EmbeddingConfig) -> SgpaConfig:
    """Cheng-Boots attention with few global keys; heads of images and texts start with local attention."""
    return SgpaConfig(form="cheng-boots", kernel=kernel_for(embedding), num_global=8)


def kernel_for(embedding: EmbeddingConfig) -> KernelConfig:
    """Position-aware keys where tokens have positions."""
    if isinstance(embedding, PatchConfig):
        return KernelConfig(locality=(1.0, 1.0, 2.0, 3.0))
    if isinstance(embedding, GraphConfig):
        return KernelConfig()
    return KernelConfig(locality=tuple(2.0**i for i in range(8)))  # from neighbours to the whole text


def model_for(embedding: EmbeddingConfig) -> ModelConfig:
    """The architecture for a kind of inputs."""
    size: dict[str, Any] = {"depth": 1, "heads": 8, "width": 128, "pooling": "sequence"}  # texts
    if isinstance(embedding, PatchConfig):
        pooling = "mean" if embedding.max_tokens <= FEW else "sequence"
        size = {"depth": 2, "heads": 4, "width": 64, "pooling": pooling}
    elif isinstance(embedding, FeatureConfig):
        size = {"depth": 1, "heads": 4, "width": 64, "pooling": "sequence"}
    elif isinstance(embedding, GraphConfig):
        size = {"depth": 4, "heads": 4, "width": 64, "pooling": "sequence"}
    attention = KernelAttentionConfig(kernel=kernel_for(embedding))
    return ModelConfig(embedding=embedding, attention=attention, dropout=0.1, **size)


def group_for(tokens: int) -> int:
    """How many neighbouring tokens of texts are averaged to one, by the number of tokens of the longest.

    >>> group_for(60), group_for(512), group_for(1024)
    (1, 4, 8)
    """
    return 1 if tokens <= LONG else max(GROUP, -(-tokens // GROUPS))


def patch_size(size: int) -> int:
    """The patch size that cuts an image into about 8 x 8 patches, of 2 x 2 pixels or more where possible."""
    divisors = [d for d in range(1, size) if size % d == 0] or [1]
    larger = [d for d in divisors if d >= 2] or divisors
    chosen = min(larger, key=lambda d: abs(size // d - PATCHES))
    if chosen == 1 and size > 2 * PATCHES:
        log.warning(
            "images of %d x %d pixels can only be cut into single pixels, which are %d tokens and slow; a "
            "side that is a multiple of %d is cut into %d",
            size,
            size,
            size**2,
            PATCHES,
            PATCHES**2,
        )
    return chosen
