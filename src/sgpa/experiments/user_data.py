"""A user's own images, texts or molecules: from files to a trained model and a report."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import copy_all, read_json, write_json
from sgpa.core.inputs import Graphs, Inputs
from sgpa.core.provenance import provenance
from sgpa.data import Dataset
from sgpa.data.graphs import batch
from sgpa.data.graphs.molecules import read_molecules
from sgpa.data.images.folder import image_folder
from sgpa.data.texts.tables import read_texts
from sgpa.data.texts.tokenizer import MAX_TOKENS, encode, pad_id, train_tokenizer
from sgpa.evaluation.evaluate import Results, Subject, evaluate
from sgpa.inference import readers
from sgpa.inference.answers import Trained
from sgpa.inference.readers import ImageReader, MoleculeReader, Reader, TextReader
from sgpa.inference.trust import saved_limit, threshold
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
from sgpa.training.fit import RUNS, Fit
from sgpa.training.logs import history, seconds

IDENTIFIERS, WIDTH = "walks", 32  # eigenvectors and walks that tell the nodes of a molecule apart
TEST_SHARE = 0.15  # of the rows are never trained on and make the report


@dataclass(frozen=True, kw_only=True)
class Task:
    """Data cut into rows to learn from and rows to test on, and a Transformer that suits them."""

    kind: str  # images, text or molecules
    path: Path
    options: Mapping[str, Any] = field(default_factory=dict)  # what it was read with
    train: Dataset
    test: Dataset
    config: ModelConfig
    reader: Reader
    classes: tuple[str, ...] = ()  # none for numbers

    @property
    def name(self) -> str:
        """That of the folder or file."""
        return self.path.resolve().name if self.kind == "images" else self.path.stem

    @property
    def fingerprint(self) -> str:
        """Changes with the data."""
        facts: list[Any] = [to_json(self.config), self.classes]
        for part in (self.train, self.test):
            facts += [len(part), float(part.targets.sum(dtype=torch.float64)), _sum(part.inputs)]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def images(path: Path, size: int = 32, seed: int = 0) -> Task:
    """A folder with one sub-folder of images per class."""
    pixels, labels, classes = image_folder(path, size)
    train, test = cut(len(labels), seed)
    channels = pixels[train].float().div(255)
    mean, std = channels.mean((0, 2, 3)), channels.std((0, 2, 3)).clamp_min(1e-3)
    embedding = PatchConfig(
        image_size=size, patch_size=patch_for(size), mean=tuple(mean.tolist()), std=tuple(std.tolist())
    )
    attention = SgpaConfig(kernel=KernelConfig(locality=(1.0, 1.0, 2.0, 3.0)))
    data = Dataset(pixels, labels)
    return Task(
        kind="images",
        path=path,
        options={"size": size, "seed": seed},
        train=data[train],
        test=data[test],
        config=ModelConfig(
            embedding=embedding, attention=attention, depth=5, heads=4, width=128, outputs=len(classes)
        ),
        reader=ImageReader(size=size),
        classes=tuple(classes),
    )


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
        scale=0.3,
        drop=0.3,
    )
    near_and_far = tuple(2.0**i for i in range(8))  # tokens a head begins by looking at
    attention = SgpaConfig(kernel=KernelConfig(locality=near_and_far), num_global=50)
    data = Dataset(ids, labels, lengths=lengths)
    columns = {"text_column": text_column, "label_column": label_column}
    return Task(
        kind="text",
        path=path,
        options={**columns, "vocabulary": vocabulary, "seed": seed},
        train=data[train],
        test=data[test],
        config=ModelConfig(
            embedding=embedding,
            attention=attention,
            depth=1,
            heads=8,
            width=128,
            pooling="sequence",
            outputs=len(classes),
        ),
        reader=TextReader(tokenizer=tokenizer, column=text_column),
        classes=tuple(classes),
    )


def molecules(
    path: Path, smiles_column: str | None = None, target_column: str | None = None, seed: int = 0
) -> Task:
    """A table of SMILES and numbers."""
    found = read_molecules(path, smiles_column, target_column)
    train, test = cut(len(found.targets), seed)
    data = batch.dataset(found.graphs, found.targets, IDENTIFIERS, WIDTH, augment=True)
    names = found.vocabulary
    embedding = GraphConfig(
        node_types=len(names.atoms),
        edge_types=len(names.bonds),
        identifier_width=WIDTH,
        max_tokens=batch.max_tokens(found.graphs),
        endpoint_types=True,
    )
    return Task(
        kind="molecules",
        path=path,
        options={"smiles_column": smiles_column, "target_column": target_column, "seed": seed},
        train=data[train],
        test=data[test],
        config=ModelConfig(
            embedding=embedding,
            attention=SgpaConfig(num_global=10),
            depth=4,
            heads=8,
            width=80,
            pooling="sequence",
            outputs=1,
            likelihood="laplace",
        ),
        reader=MoleculeReader(
            atoms=names.atoms,
            bonds=names.bonds,
            identifiers=IDENTIFIERS,
            width=WIDTH,
            column=smiles_column,
        ),
    )


KINDS: dict[str, Callable[..., Task]] = {"images": images, "text": text, "molecules": molecules}


def train(task: Task, directory: Path, how: Fit, *, compare: bool, command: str) -> dict[str, Any]:
    """Train SGPA (and, to compare, MLE with as many epochs), test both, keep everything in `directory`.

    `run.json` is written when all is done: what the run was made from, and above which entropy (or variance)
    an answer is not to be trusted.
    """
    if (directory / "recipe.json").exists():
        raise CheckpointError(f"{directory} holds runs of a recipe; choose another folder")
    how = replace(how, directory=directory)
    models = {"sgpa": how.sgpa(task.train, task.config)}
    if compare:
        models["mle"] = how.mle(task.train, task.config)
    results = measure(task, models, directory, how.seed)
    task.reader.save(model_dir(directory))
    about = {
        "kind": task.kind,
        "name": task.name,
        "path": str(task.path.resolve()),
        "options": task.options,
        "classes": task.classes,
        "fingerprint": task.fingerprint,
    }
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
                **{name: about[name] for name in ("kind", "name", "options", "classes")},
                "config": to_json(task.config),
            },
            "data": {task.name: task.fingerprint},
            "seconds": {
                method: sum(seconds(directory / run / "log.jsonl") for run in RUNS[method])
                for method in models
            },
            **provenance(),
        },
    }
    write_json(directory / "results.json", saved)
    limit = threshold(models["sgpa"], how.split(task.train)[1])
    write_json(directory / "run.json", about | {"seed": how.seed, "threshold": limit})
    return saved


def measure(task: Task, models: Mapping[str, Transformer], directory: Path, seed: int) -> Results:
    """What models of the methods named are worth on the test rows."""
    results = Results()
    for method, model in models.items():
        subject = Subject(task.name, "kernel", method, seed)
        found = evaluate(model, subject, task.test)
        found.draw(subject, "training", "", history(directory / method / "log.jsonl"))
        results.records += found.records
        results.curves += found.curves
    return results


def measure_again(directory: Path, device: str = "cpu") -> dict[str, Any]:
    """Measure a finished run anew; the data it was made from must still be there, unchanged."""
    about, saved = read_json(directory / "run.json"), read_json(directory / "results.json")
    path = Path(about["path"])
    if not path.exists():
        raise InputError(f"{directory} was trained on {path}, which is not there any more; bring it back")
    task = KINDS[about["kind"]](path, **about["options"])
    if task.fingerprint != about["fingerprint"]:
        raise InputError(
            f"{path} has changed since {directory} was trained on it, so its test rows are others now; "
            "train again into another folder"
        )
    methods = dict.fromkeys(record["method"] for record in saved["records"])
    models = {name: _model(directory / name / "model", device) for name in methods}
    results = measure(task, models, directory, about["seed"])
    saved |= {"records": results.records, "curves": results.curves}
    write_json(directory / "results.json", saved)
    return dict(saved)


def open_trained(directory: Path, *, device: str = "cpu") -> Trained:
    """A finished run without its data: to predict for new inputs."""
    about, folder = read_json(directory / "run.json"), model_dir(directory)
    limit = saved_limit(about["threshold"])
    return Trained(_model(folder, device), readers.load(folder), limit, tuple(about["classes"]))


def export(directory: Path, folder: Path) -> Path:
    """Copy what predictions need of a finished run; returns the copy."""
    model = model_dir(directory)
    pairs = [(directory / "run.json", folder / "run.json")]
    pairs += [(file, model_dir(folder) / file.name) for file in sorted(model.iterdir())]
    copy_all(pairs, folder)
    return folder


def model_dir(directory: Path) -> Path:
    """Where the model of a run is that predicts, with its reader beside it."""
    return directory / "sgpa" / "model"


def _sum(inputs: Inputs) -> float:
    """Of all pixels, token ids or atom types."""
    numbers = inputs.nodes if isinstance(inputs, Graphs) else inputs
    assert isinstance(numbers, Tensor)
    return float(numbers.sum(dtype=torch.float64))


def _model(folder: Path, device: str) -> Transformer:
    return Transformer.from_pretrained(folder).to(device)


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
