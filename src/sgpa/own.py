"""A user's own images, texts or molecules: from files to a trained model and a report."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.data import Dataset, graphs
from sgpa.data.folder import image_folder
from sgpa.data.molecules import read_molecules
from sgpa.data.text import MAX_TOKENS, encode, pad_id, train_tokenizer
from sgpa.data.text_files import read_texts
from sgpa.errors import InputError
from sgpa.evaluation import Results, Subject, evaluate
from sgpa.files import write_json, write_text
from sgpa.fit import RUNS, Fit
from sgpa.logs import history, seconds
from sgpa.models import (
    GraphConfig,
    KernelConfig,
    ModelConfig,
    PatchConfig,
    SgpaConfig,
    TokenConfig,
    Transformer,
    to_json,
)
from sgpa.provenance import provenance

IDENTIFIERS = 16  # Laplacian eigenvectors that tell the nodes of a molecule apart
TEST_SHARE = 0.15  # of the rows are never trained on and make the report


@dataclass(frozen=True)
class Task:
    """Data cut into rows to learn from and rows to test on, and a Transformer that suits them."""

    kind: str  # images, text or molecules
    name: str
    train: Dataset
    test: Dataset
    config: ModelConfig
    classes: tuple[str, ...] = ()  # none for numbers
    files: dict[str, str] = field(default_factory=dict)  # name -> text, kept beside the model


def images(directory: Path, size: int = 32, seed: int = 0) -> Task:
    """A folder with one sub-folder of images per class."""
    pixels, labels, classes = image_folder(directory, size)
    train, test = cut(len(labels), seed)
    channels = pixels[train].float().div(255)
    mean, std = channels.mean((0, 2, 3)), channels.std((0, 2, 3)).clamp_min(1e-3)
    embedding = PatchConfig(
        image_size=size, patch_size=patch_for(size), mean=tuple(mean.tolist()), std=tuple(std.tolist())
    )
    config = ModelConfig(
        embedding=embedding, attention=SgpaConfig(), depth=5, heads=4, width=128, outputs=len(classes)
    )
    data = Dataset(pixels, labels)
    return Task("images", directory.name, data[train], data[test], config, tuple(classes))


def text(
    path: Path,
    text_column: str | None = None,
    label_column: str | None = None,
    vocabulary: int = 8000,
    seed: int = 0,
) -> Task:
    """A table of texts and labels. The tokenizer learns from the training rows alone."""
    texts, labels, classes = read_texts(path, text_column, label_column)
    train, test = cut(len(labels), seed)
    tokenizer = train_tokenizer([texts[i] for i in train.tolist()], vocabulary=vocabulary)
    ids, lengths = encode(tokenizer, texts)
    embedding = TokenConfig(
        vocabulary=tokenizer.get_vocab_size(),
        max_tokens=MAX_TOKENS,
        embedding_width=128,
        pad=pad_id(tokenizer),
    )
    attention = SgpaConfig(kernel=KernelConfig(name="exponential"), num_global=50)
    config = ModelConfig(
        embedding=embedding, attention=attention, depth=1, heads=8, width=128, outputs=len(classes)
    )
    data = Dataset(ids, labels, lengths=lengths)
    kept = {"tokenizer.json": tokenizer.to_str()}
    return Task("text", path.stem, data[train], data[test], config, tuple(classes), kept)


def molecules(
    path: Path, smiles_column: str | None = None, target_column: str | None = None, seed: int = 0
) -> Task:
    """A table of SMILES and numbers."""
    found = read_molecules(path, smiles_column, target_column)
    train, test = cut(len(found.targets), seed)
    data = graphs.dataset(found.graphs, found.targets, width=IDENTIFIERS, augment=True)
    embedding = GraphConfig(
        node_types=len(found.vocabulary.atoms),
        edge_types=len(found.vocabulary.bonds),
        identifier_width=IDENTIFIERS,
        max_tokens=graphs.max_tokens(found.graphs),
    )
    config = ModelConfig(
        embedding=embedding,
        attention=SgpaConfig(num_global=10),
        depth=4,
        heads=8,
        width=80,
        outputs=1,
        likelihood="laplace",
    )
    kept = {"vocabulary.json": json.dumps(found.vocabulary.to_json())}
    return Task("molecules", path.stem, data[train], data[test], config, (), kept)


def train(task: Task, directory: Path, how: Fit, *, compare: bool, command: str) -> dict[str, Any]:
    """Train SGPA (and, to compare, MLE with as many epochs), test both, keep everything in `directory`."""
    how = replace(how, directory=directory)
    makers: dict[str, Callable[[Dataset, ModelConfig], Transformer]] = {"sgpa": how.sgpa}
    if compare:
        makers["mle"] = how.mle
    results = Results()
    for method, make in makers.items():
        model = make(task.train, task.config)
        subject = Subject(task.name, "kernel", method, how.seed)
        found = evaluate(model, subject, task.test)
        found.draw(subject, "training", "", history(directory / method / "log.jsonl"))
        results.records += found.records
        results.curves += found.curves
    for name, content in task.files.items():
        write_text(directory / "sgpa" / "model" / name, content)
    about = {"kind": task.kind, "name": task.name, "classes": task.classes, "config": to_json(task.config)}
    write_json(directory / "sgpa" / "model" / "task.json", about)
    saved = {
        "schema": 1,
        "title": f"{task.name}: {len(task.train)} {task.kind}",
        "summary": (
            f"Trained on {len(task.train)} rows ({how.validation:.0%} held out to pick the epoch), tested on "
            f"{len(task.test)} rows that were never trained on."
        ),
        "records": results.records,
        "curves": results.curves,
        "run": {
            "command": command,
            "recipe": {
                "fit": {k: v for k, v in asdict(how).items() if k not in ("report", "directory")},
                **about,
            },
            "seconds": {
                method: sum(seconds(directory / run / "log.jsonl") for run in RUNS[method])
                for method in makers
            },
            **provenance(),
        },
    }
    write_json(directory / "results.json", saved)
    return saved


def cut(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random rows to learn from and to test on."""
    held_out = round(TEST_SHARE * rows)
    if rows - held_out < 2 or held_out < 1:
        raise InputError(f"{rows} rows are too few to train and test on; at least 10 are needed")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    return order[held_out:], order[:held_out]


def patch_for(size: int) -> int:
    """The patch size that cuts an image into about 8 x 8 patches."""
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    return min(divisors, key=lambda d: abs(size // d - 8))
