"""The rows of each recipe; perturbed rows are there to choose settings on, unfamiliar ones are reported."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.experiments.audit.perturb import perturbations

Batches = Sequence[Any]
OOD = {"SVHN": "svhn", "CIFAR-100": "cifar100", "mini-ImageNet": "mini_imagenet"}
STATISTICS = 8000  # training rows


@dataclass(frozen=True)
class Sets:
    """Batches of one recipe and seed."""

    train: Batches
    held_out: Batches
    tests: dict[str, Batches]
    strangers: dict[str, Batches]
    perturbed: dict[str, Batches]


@dataclass(frozen=True)
class Size:
    """Rows of each kind; small in tests."""

    statistics: int = STATISTICS
    held_out: int = 5000
    tests: int = 10_000
    corrupted: int = 300  # images of every corruption and severity
    strangers: int = 3000
    perturbed: int = 800
    severities: tuple[int, ...] = (1, 2, 3, 4, 5)


def image_batches(images: Tensor, labels: Tensor | None = None, size: int = 250) -> Batches:
    """Batches in order."""
    from tools.posthoc.train_images import pixels  # noqa: PLC0415 - needs transformers

    inputs = [{"pixel_values": pixels(part)} for part in images.split(size)]
    if labels is None:
        return inputs
    return [rows | {"labels": y} for rows, y in zip(inputs, labels.split(size), strict=True)]


def mixtures(images: Tensor, seed: int = 0) -> Tensor:
    """The mean of each image and another one."""
    other = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))]
    return ((images.int() + other.int()) // 2).to(torch.uint8)


def image_sets(data_dir: Path | None, seed: int, size: Size) -> Sets:
    """CIFAR-10 with its corruptions, and three other sets."""
    from sgpa.data import corruptions  # noqa: PLC0415
    from sgpa.data.images.cifar import cifar, ood_images  # noqa: PLC0415

    splits = cifar("cifar10", data_dir=data_dir)
    train, held, test = splits.train, splits.validation, splits.test
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))[: size.statistics]
    tests = {"test": image_batches(test.inputs[: size.tests], test.targets[: size.tests])}
    few, labels = test.inputs[: size.corrupted], test.targets[: size.corrupted]
    for severity in size.severities:
        made = [corruptions.corrupt(few, name, severity) for name in corruptions.NAMES]
        tests[f"corrupted {severity}"] = image_batches(torch.cat(made), labels.repeat(len(made)))
    some = held.inputs[: size.perturbed]
    changed = {name: image_batches(change(some, 0)) for name, change in perturbations(some).items()}
    changed["mixtures"] = image_batches(mixtures(some))
    return Sets(
        image_batches(train.inputs[order], train.targets[order]),
        image_batches(held.inputs[: size.held_out], held.targets[: size.held_out]),
        tests,
        {name: image_batches(ood_images(file, data_dir)[: size.strangers]) for name, file in OOD.items()},
        changed,
    )


def text_sets(task: str, data_dir: Path, tokenizer: Any, seed: int, size: Size) -> Sets:
    """CoLA or IMDB."""
    from tools.posthoc import texts  # noqa: PLC0415

    def batches(rows: Sequence[str], labels: Sequence[int] | None, limit: int) -> Batches:
        tokens = texts.encode(tokenizer, rows[:limit], texts.LENGTH[task])
        return texts.batches(tokens, None if labels is None else labels[:limit])

    rest, held = texts.training_rows(task, data_dir, seed)
    some = held[0][: size.perturbed]
    changed = {
        name: batches(change(some, 0), None, size.perturbed)
        for name, change in perturbations(some).items()
        if name != "shuffled words"  # reported
    }
    words = sorted({word for text in rest[0] for word in text.split()})
    for name, rows in texts.perturbed(some, words).items():
        changed[name] = batches(rows, None, size.perturbed)
    shown = texts.encode(tokenizer, rest[0][: size.statistics], texts.LENGTH[task])
    return Sets(
        texts.in_random_order(shown, rest[1][: size.statistics], 64, 0),
        batches(*held, size.held_out),
        {name: batches(*rows, size.tests) for name, rows in texts.test_rows(task, data_dir).items()},
        {name: batches(rows, None, size.strangers) for name, rows in texts.strangers(task, data_dir).items()},
        changed,
    )


def load(recipe: str, folder: Path, data_dir: Path | None, seed: int, size: Size) -> tuple[nn.Module, Sets]:
    """A trained model and its rows."""
    if recipe == "vit":
        from transformers import ViTForImageClassification  # noqa: PLC0415

        model: nn.Module = ViTForImageClassification.from_pretrained(folder)
        return model.float().eval(), image_sets(data_dir, seed, size)
    from transformers import AutoTokenizer  # noqa: PLC0415

    from tools.posthoc.train_texts import load_model  # noqa: PLC0415

    assert data_dir is not None
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return load_model(folder), text_sets(recipe, data_dir, tokenizer, seed, size)
