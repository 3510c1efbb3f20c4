"""The folder of `fit`: what was chosen, and the chosen model, beside the trainings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sgpa.core.files import write_json
from sgpa.models import Transformer
from sgpa.training import process_group
from sgpa.training.compare import Comparison

CHOSEN, MODEL = "chosen.json", "model"


def save_choice(
    folder: Path | None,
    predictor: Any,
    classes: Sequence[str],
    *,
    chosen: str,
    comparison: Comparison | None = None,
) -> None:
    """Write the chosen method and, where it is a single model, that model: `sgpa.load` opens it."""
    if folder is None or not process_group.leader():
        return
    if isinstance(predictor, Transformer):
        predictor.save_pretrained(folder / MODEL)
    nll = {} if comparison is None else dict(comparison.nll)
    facts = {"chosen": chosen, "held_out_nll": nll, "classes": list(classes)}
    write_json(folder / CHOSEN, facts)
