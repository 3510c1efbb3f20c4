"""Tasks: data sets made ready for training and testing."""

from sgpa.experiments.tasks.base import Example, Task, TaskConfig
from sgpa.experiments.tasks.evaluate import EvaluationConfig, examine
from sgpa.experiments.tasks.images import CifarConfig, DigitsConfig
from sgpa.experiments.tasks.molecules import ZincConfig
from sgpa.experiments.tasks.texts import ColaConfig, ImdbConfig

__all__ = [
    "CifarConfig",
    "ColaConfig",
    "DigitsConfig",
    "EvaluationConfig",
    "Example",
    "ImdbConfig",
    "Task",
    "TaskConfig",
    "ZincConfig",
    "examine",
]
