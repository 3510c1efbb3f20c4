"""The folder of `fit`: the chosen predictor, beside the trainings."""

from pathlib import Path

from sgpa.core.files import write_json
from sgpa.methods.kinds import KINDS
from sgpa.training import process_group
from sgpa.training.fitted import Fitted

CHOSEN, MODEL = "chosen.json", "model"


def save_choice(folder: Path | None, fitted: Fitted) -> None:
    """Write the predictor, which `sgpa.load` opens, and what was chosen.

    A method of one's own is not saved: nothing could read it.
    """
    if folder is None or not process_group.leader():
        return
    if type(fitted.method).__name__ in KINDS:
        fitted.save_pretrained(folder / MODEL)
    nll = {} if fitted.comparison is None else dict(fitted.comparison.nll)
    facts = {"chosen": fitted.chosen, "held_out_nll": nll, "classes": list(fitted.classes)}
    write_json(folder / CHOSEN, facts)
