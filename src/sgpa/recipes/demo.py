"""The demo: few digits, a small vision Transformer, two methods with equal numbers of epochs."""

from dataclasses import replace

from sgpa.methods import Mle, Sgpa
from sgpa.models import KernelAttentionConfig, KernelConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.objectives import KlWeights
from sgpa.optim import OptimConfig
from sgpa.recipes.schema import Recipe

KERNEL = KernelConfig(name="ard-rbf", preset="authors")

DIGITS = Recipe(
    name="digits",
    model=ModelConfig(
        embedding=PatchConfig(image_size=8, channels=1, patch_size=2),  # 16 tokens
        depth=3,
        heads=4,
        width=64,
        dropout=0.1,
        outputs=10,
    ),
    mle=Mle(attention=KernelAttentionConfig(kernel=KERNEL)),
    optim=OptimConfig(epochs=150, batch_size=50, lr=3e-3, select="nll"),
    sgpa=Sgpa(attention=SgpaConfig(kernel=KERNEL, num_global=8), kl=KlWeights(g="1/N", a="1/N")),
    warm=OptimConfig(epochs=60, batch_size=50, lr=3e-3, select="nll"),
    sgpa_optim=OptimConfig(epochs=90, batch_size=50, lr=3e-3, select="nll"),
)


def scaled(recipe: Recipe, factor: float) -> Recipe:
    """The same recipe with all numbers of epochs multiplied, for a quick look."""

    def times(optim: OptimConfig) -> OptimConfig:
        return replace(optim, epochs=max(1, round(factor * optim.epochs)))

    return replace(
        recipe, optim=times(recipe.optim), warm=times(recipe.warm), sgpa_optim=times(recipe.sgpa_optim)
    )
