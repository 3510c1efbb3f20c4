"""The folder of `fit`: the chosen predictor, beside the trainings."""

from pathlib import Path

from sgpa.core.config import from_plain, to_plain
from sgpa.core.errors import ConfigError
from sgpa.core.files import write_json
from sgpa.methods import Method
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
    if _readable(fitted.method):
        fitted.save_pretrained(folder / MODEL)
    nll = {} if fitted.comparison is None else dict(fitted.comparison.nll)
    facts = {"chosen": fitted.chosen, "held_out_nll": nll, "classes": list(fitted.classes)}
    write_json(folder / CHOSEN, facts)


def _readable(method: Method) -> bool:
    """Whether a file can name the method: it and its parts are of this package, not only called so."""
    try:
        return bool(from_plain(to_plain(method), KINDS) == method)
    except ConfigError:
        return False
