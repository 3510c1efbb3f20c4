"""Open what was trained: a saved model, a run of the command line, a folder of `sgpa.fit`."""

import logging
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgpa.core.arguments import checked
from sgpa.core.devices import check_device
from sgpa.core.errors import CheckpointError
from sgpa.core.files import read_json
from sgpa.core.names import METHOD_NAMES
from sgpa.core.pretrained import located
from sgpa.inference.preferred import preferred_cell
from sgpa.inference.saved import FILE, RECIPE, Cell, SavedPredictor, describes_itself, read_saved
from sgpa.models import Transformer
from sgpa.models.saving import WEIGHTS
from sgpa.training.fit_folder import CHOSEN, MODEL
from sgpa.training.fitted import Fitted


class SavedChoice(TypedDict):
    """`chosen.json`."""

    chosen: str
    classes: NotRequired[list[str]]


log = logging.getLogger(__name__)


@checked
def load(path: str | Path, *, device: str = "cpu") -> Any:
    """Open a trained model.

    Args:
        path: A model that `save_pretrained` wrote, the `directory` of `sgpa.fit`, or what the command line
            made: a run folder such as runs/photos, one cell of it, an exported model. "digits" and "cifar10"
            are models that come with the package.
        device: "cpu", "cuda" or "cuda:0".

    Returns:
        For what `sgpa.fit` trained a `Fitted`, whose `predict` takes arrays. For a run of the command line a
        `Trained`, whose `predict` reads files, images and texts. For a model alone the `Transformer`. Of
        several cells the chosen one is opened (SGPA, where none was chosen), and the log says which.

    Raises:
        CheckpointError: The folder holds nothing that can be opened.

    Example:
        >>> model = sgpa.load("runs/photos")  # doctest: +SKIP
        >>> model.predict(["beach.jpg", "office.png"])[0].label  # doctest: +SKIP
    """
    check_device(device)
    folder = located(path)
    if not folder.is_dir():
        raise CheckpointError(f"{folder} is not a folder; name the folder of a model or of a run")
    if (folder / FILE).exists() or (folder / RECIPE).exists():
        cell, others = preferred_cell(folder)
        if others:
            log.warning("%s: opened %s, %s", folder, cell.folder.name, _which(cell, others))
        saved = read_cell(cell)
        return saved.open(device) if saved.reads_files else Fitted.load(cell.folder, device=device)
    if (folder / CHOSEN).exists():
        return _fitted(folder, device)
    if not (folder / WEIGHTS).exists() and not (folder / "config.json").exists():
        raise CheckpointError(
            f"{folder} holds neither a saved model (config.json, {WEIGHTS}) nor a run ({FILE}, {RECIPE})"
        )
    return Transformer.from_pretrained(folder).to(device)


def read_cell(cell: Cell) -> SavedPredictor:
    """The predictor of a cell, whichever version wrote it."""
    if describes_itself(cell.metadata):
        return read_saved(cell.folder, cell.metadata)
    from sgpa.experiments.runner.older_runs import read_older  # noqa: PLC0415 - only for runs of version 0.1

    return read_older(cell.folder, cell.metadata)


def _which(cell: Cell, others: int) -> str:
    method = METHOD_NAMES.get(cell.metadata.get("method", ""))
    title = "" if method is None else f"{method.title}, "
    return f"{title}one of {others + 1} models; name another folder to open it"


def _fitted(folder: Path, device: str) -> Fitted | Transformer:
    """What a folder of `fit` holds; earlier versions saved single models only, without limits of trust."""
    facts = read_json(folder / CHOSEN, SavedChoice)
    if (folder / MODEL / FILE).exists():
        return Fitted.load(folder / MODEL, device=device)
    if not (folder / MODEL / "config.json").exists():
        raise CheckpointError(
            f"{folder}: {facts['chosen']} was not saved; call fit again with the same arguments"
        )
    model = Transformer.from_pretrained(folder / MODEL).to(device)
    vars(model).update({"chosen": facts["chosen"], "classes": tuple(facts.get("classes", ()))})
    return model
