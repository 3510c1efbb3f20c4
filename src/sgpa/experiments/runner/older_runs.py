"""Runs that version 0.1 wrote: their `run.json` names neither method nor models.

A recipe's cell takes both from the recipe. A run on a user's files has SGPA in `sgpa/model`, with the reader
beside it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sgpa.core.errors import CheckpointError
from sgpa.experiments.recipes import plan
from sgpa.experiments.runner.run_folder import RunFolder
from sgpa.inference.saved import COMBINED, Member, SavedPredictor
from sgpa.inference.trust import TrustRule
from sgpa.methods import Method, Sgpa


def read_older(folder: Path, metadata: Mapping[str, Any]) -> SavedPredictor:
    """The predictor of a folder that version 0.1 wrote."""
    method, members, reader = _of_recipe(folder, metadata) if "method" in metadata else _of_user(folder)
    combined = folder / COMBINED
    return SavedPredictor(
        method=method,
        members=members,
        rule=TrustRule.from_json(metadata),
        classes=tuple(metadata["classes"]),
        reader=reader,
        combined=combined if combined.exists() else None,
        metadata=metadata,
    )


def _of_recipe(folder: Path, metadata: Mapping[str, Any]) -> tuple[Method, tuple[Member, ...], Path]:
    run_folder = RunFolder.at(folder.resolve().parents[1])
    row = plan(run_folder.recipe, metadata["method"], metadata["attention"])
    return row.method, tuple(run_folder.members(row, metadata["seed"])), folder


def _of_user(folder: Path) -> tuple[Method, tuple[Member, ...], Path]:
    model = folder / "sgpa" / "model"
    if not model.is_dir():
        raise CheckpointError(f"{folder} holds no model in sgpa/model; it was damaged")
    return Sgpa(), (Member(model),), model
