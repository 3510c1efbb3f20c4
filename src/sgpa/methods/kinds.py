"""Every class that a saved method is made of, by the name that files have for it."""

from sgpa.gp.objective import KlWeights
from sgpa.methods import CATALOGUE
from sgpa.models.config.model import KINDS as MODEL_KINDS

KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (*map(type, CATALOGUE.values()), KlWeights, *MODEL_KINDS.values())
}
