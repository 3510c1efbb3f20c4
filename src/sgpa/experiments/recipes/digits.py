"""The demo: few digits, the default model and training, the same number of steps for every method."""

from sgpa.experiments.recipes.schema import Recipe
from sgpa.experiments.recipes.user_data import recipe_fields
from sgpa.experiments.tasks import DigitsConfig
from sgpa.models import PatchConfig
from sgpa.training.defaults import defaults_for

TASK = DigitsConfig()
STEPS = 2400  # fewer than the default: the demo takes about three minutes on two cores
_DEFAULTS = defaults_for(
    PatchConfig(image_size=8, channels=1, patch_size=2),  # 16 tokens
    TASK.train,
    outputs=10,
    steps=STEPS,
)

DIGITS = Recipe(
    name="digits",
    task=TASK,
    optim=_DEFAULTS.total,
    ensemble=3,
    ensembles=3,
    seeds=3,
    **recipe_fields(_DEFAULTS),
)
