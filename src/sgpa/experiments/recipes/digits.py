"""The demo: few digits, a small vision Transformer, the same number of epochs for every method."""

from sgpa.experiments.recipes.schema import Recipe
from sgpa.experiments.tasks import DigitsConfig
from sgpa.gp.objective import KlWeights
from sgpa.methods import Sgpa
from sgpa.models import KernelConfig, ModelConfig, PatchConfig, SgpaConfig
from sgpa.training.optim import OptimConfig

DIGITS = Recipe(
    name="digits",
    task=DigitsConfig(),
    model=ModelConfig(
        embedding=PatchConfig(image_size=8, channels=1, patch_size=2),  # 16 tokens
        depth=3,
        heads=4,
        width=64,
        dropout=0.1,
        outputs=10,
    ),
    kernel=KernelConfig(locality=(1.0, 1.0, 2.0, 3.0)),
    optim=OptimConfig(epochs=150, batch_size=50, lr=3e-3, weight_decay=0.3, select="nll"),
    stage1=OptimConfig(epochs=60, batch_size=50, lr=3e-3, weight_decay=0.3, select="nll"),
    stage2=OptimConfig(epochs=90, batch_size=50, lr=3e-3, weight_decay=0.3, select="nll"),
    sgpa=Sgpa(attention=SgpaConfig(num_global=8), kl=KlWeights(g="1/N", a=3e-4)),
    ensemble=3,
    ensembles=3,
    seeds=3,
)
