"""Rows of an audit: reading them, dividing them into parts, and feeding them to a model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.data.images.folder import files_below, list_images, read_images
from sgpa.data.split import split_rows
from sgpa.data.texts.tables import read_texts, read_unlabelled
from sgpa.experiments.audit.checks import TEXT, match_classes
from sgpa.experiments.audit.model import Classifier, Encode

BATCH = 32
MIN_ROWS = 60  # of all parts together
MIN_PER_CLASS = 4  # so that every part has one
MAX_STATISTICS = 2000  # rows of --train that are read

Items = Any  # list of texts, or uint8 images [N, 3, s, s]


@dataclass(frozen=True)
class AuditRows:
    """Texts or images, with the model's class of each where it is known."""

    items: Items
    labels: Tensor | None = None  # [N]

    def __len__(self) -> int:
        return len(self.items)

    def part(self, index: Tensor) -> "AuditRows":
        """Some of the rows, in that order."""
        return AuditRows(pick(self.items, index), None if self.labels is None else self.labels[index])


@dataclass(frozen=True)
class Parts:
    """Rows by what they serve for.

    The rows of `statistics` have labels unless they are those of the model's training. Calibrators of logits
    are fitted on all labelled rows but the test rows.
    """

    statistics: AuditRows  # inducing queries, distances and curvature
    calibration: AuditRows  # labels calibrate SGPA and Laplace
    test: AuditRows

    @property
    def fit(self) -> int:
        """How many rows have labels and are no test rows."""
        return len(self.calibration) + (0 if self.statistics.labels is None else len(self.statistics))


def read_rows(
    classifier: Classifier,
    data: Path,
    *,
    text_column: str | None,
    label_column: str | None,
    max_rows: int,
    seed: int,
) -> AuditRows:
    """Labelled rows, at most `max_rows` of them, drawn by class."""
    items: Items
    if classifier.kind == TEXT:
        items, labels, names = read_texts(data, text_column, label_column)
    else:
        listing = list_images(data)
        items, labels, names = listing.files, torch.tensor(listing.labels), listing.classes
    if len(names) < 2:
        raise InputError(f"{data} has one class, {names[0]}; an audit needs two or more")
    classes = torch.tensor(match_classes(names, classifier.classes))
    _, chosen = split_rows(labels, min(max_rows, len(labels)), seed)
    items, labels = pick(items, chosen), labels[chosen]
    if len(labels) < MIN_ROWS:
        raise InputError(f"{data}: {len(labels)} rows; an audit needs at least {MIN_ROWS}")
    for i, count in enumerate(labels.bincount(minlength=len(names)).tolist()):
        if count < MIN_PER_CLASS:
            raise InputError(
                f"{data}: {count} rows of class {names[i]!r} (of {len(labels)}); at least {MIN_PER_CLASS} "
                "of every class are needed: add rows, raise max_rows or leave the class out"
            )
    return AuditRows(items if classifier.kind == TEXT else _pixels(items, classifier), classes[labels])


def read_training(classifier: Classifier, data: Path, text_column: str | None, seed: int) -> AuditRows:
    """Rows of the model's training, without labels, at most `MAX_STATISTICS`."""
    items: Items = read_unlabelled(data, text_column) if classifier.kind == TEXT else files_below(data)
    if len(items) < MIN_ROWS // 2:
        raise InputError(f"train {data}: {len(items)} rows; at least {MIN_ROWS // 2} are needed")
    order = torch.randperm(len(items), generator=torch.Generator().manual_seed(seed))[:MAX_STATISTICS]
    items = pick(items, order)
    return AuditRows(items if classifier.kind == TEXT else _pixels(items, classifier))


def divide(rows: AuditRows, training: AuditRows | None, seed: int) -> Parts:
    """Half of the rows tests; of the other half, statistics take one half where there are no training rows.

    Texts of a part are in batches of similar length.
    """
    assert rows.labels is not None
    rest, test = split_rows(rows.labels, len(rows) // 2, seed)
    if training is None:
        first, second = split_rows(rows.labels[rest], len(rest) // 2, seed + 1)
        statistics, calibration = rows.part(rest[first]), rows.part(rest[second])
    else:
        statistics, calibration = training, rows.part(rest)
    return Parts(*(by_length(part, seed) for part in (statistics, calibration, rows.part(test))))


def pick(items: Items, index: Tensor) -> Items:
    """Some of the items, in that order."""
    return items[index] if isinstance(items, Tensor) else [items[i] for i in index.tolist()]


def _pixels(files: Sequence[Path], classifier: Classifier) -> Tensor:
    """Image files as squares of the model's size, uint8 [N, 3, s, s]."""
    return torch.from_numpy(read_images(files, classifier.pixels)).permute(0, 3, 1, 2).contiguous()


@dataclass(frozen=True)
class Batches:
    """Batches of encoded rows in order; can be read several times."""

    rows: AuditRows
    encode: Encode
    on_rows: Callable[[int], None] | None = None  # called when the model has read so many rows

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for start in range(0, len(self.rows), BATCH):
            part = slice(start, start + BATCH)
            items = self.rows.items[part]
            batch = self.encode(items)
            yield batch if self.rows.labels is None else batch | {"labels": self.rows.labels[part]}
            if self.on_rows is not None:
                self.on_rows(len(items))


def by_length(rows: AuditRows, seed: int) -> AuditRows:
    """Texts of similar length side by side, batches in random order: little padding. Images as they are."""
    if isinstance(rows.items, Tensor):
        return rows
    order = torch.tensor(sorted(range(len(rows)), key=lambda i: len(rows.items[i])))
    groups = list(order.split(BATCH))
    shuffled = torch.randperm(len(groups), generator=torch.Generator().manual_seed(seed)).tolist()
    return rows.part(torch.cat([groups[i] for i in shuffled]))
