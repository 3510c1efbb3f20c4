"""The folder of `fit`: what was chosen, and the chosen model, beside the trainings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sgpa.core.files import write_json
from sgpa.models import Transformer
from sgpa.training import process_group

CHOSEN, MODEL = "chosen.json", "model"


def save_choice(
    folder: Path | None, predictor: Any, chosen: str, classes: Sequence[str], nll: Mapping[str, float]
) -> None:
    """Write the chosen method and, where it is a single model, that model: `sgpa.load` opens it."""
    if folder is None or not process_group.leader():
        return
    if isinstance(predictor, Transformer):
        predictor.save_pretrained(folder / MODEL)
    facts = {"chosen": chosen, "held_out_nll": dict(nll), "classes": list(classes)}
    write_json(folder / CHOSEN, facts)
