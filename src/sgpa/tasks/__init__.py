"""Tasks: data sets made ready for training and testing."""

from sgpa.tasks.base import Example, Task, TaskConfig
from sgpa.tasks.examine import Examination, examine
from sgpa.tasks.graphs import ZincConfig
from sgpa.tasks.images import CifarConfig, DigitsConfig
from sgpa.tasks.texts import ColaConfig, ImdbConfig

__all__ = [
    "CifarConfig",
    "ColaConfig",
    "DigitsConfig",
    "Examination",
    "Example",
    "ImdbConfig",
    "Task",
    "TaskConfig",
    "ZincConfig",
    "examine",
]
