"""Tasks: data sets that are ready for training and testing."""

from sgpa.experiments.tasks.base import Task, TaskConfig
from sgpa.experiments.tasks.evaluate import EvaluationConfig, evaluate_task
from sgpa.experiments.tasks.images import CifarConfig, DigitsConfig, ImageFolderConfig
from sgpa.experiments.tasks.molecules import MoleculeTableConfig, ZincConfig
from sgpa.experiments.tasks.texts import ColaConfig, ImdbConfig, TextTableConfig

TASKS = (
    CifarConfig,
    ColaConfig,
    DigitsConfig,
    ImageFolderConfig,
    ImdbConfig,
    MoleculeTableConfig,
    TextTableConfig,
    ZincConfig,
)

__all__ = [
    "TASKS",
    "CifarConfig",
    "ColaConfig",
    "DigitsConfig",
    "EvaluationConfig",
    "ImageFolderConfig",
    "ImdbConfig",
    "MoleculeTableConfig",
    "Task",
    "TaskConfig",
    "TextTableConfig",
    "ZincConfig",
    "evaluate_task",
]
