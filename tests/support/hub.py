"""Small fake data sets in the layout of the real ones."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from sgpa.data.graphs.vocabulary import Vocabulary

WORDS = tuple("a the good bad film was is not very plot actor boring great we they saw slept".split())  # noqa: SIM905


def write_all(root: Path, rows: int = 20, seed: int = 0) -> Path:
    """Every data set of the recipes, with `rows` training rows and as many test rows."""
    rng = np.random.default_rng(seed)
    for name, label, classes in (
        ("cifar10", "label", 10),
        ("cifar100", "fine_label", 100),
        ("svhn", "label", 10),
        ("mini_imagenet", "label", 100),
    ):
        for split in ("train", "test"):
            images(root / name / f"{split}-00000-of-00001.parquet", rng, rows, label, classes)
    for split in ("train", "test"):
        texts(root / "imdb" / f"{split}-00000-of-00001.parquet", rng, rows)
    for split in ("train", "validation_in_domain", "validation_out_of_domain"):
        texts(root / "cola" / f"{split}-00000-of-00001.parquet", rng, rows, "sentence")
    (root / "zinc").mkdir(parents=True)
    atoms = Vocabulary(("C", "O", "N"))
    (root / "zinc" / "vocab.json").write_text(json.dumps(atoms.to_json()), encoding="utf-8")
    for split in ("train", "validation", "test"):
        molecules(root / "zinc" / f"{split}-00000-of-00001.parquet", rng, rows)
    return root


def images(file: Path, rng: np.random.Generator, rows: int, label: str, classes: int) -> None:
    """Noise whose mean grey level depends on the class."""
    labels = rng.permutation(np.arange(rows) % classes)
    encoded = []
    for k in labels:
        pixels = rng.integers(0, 80, (32, 32, 3)) + 17 * (k % 10)
        stream = io.BytesIO()
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(stream, "PNG")
        encoded.append({"bytes": stream.getvalue(), "path": None})
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    _write(file, {"img": pa.array(encoded, kind), label: labels.tolist()})


def texts(file: Path, rng: np.random.Generator, rows: int, column: str = "text") -> None:
    """Random words; rows with "good" have label 1, rows with "bad" 0."""
    lines = [[str(w) for w in rng.choice(WORDS, rng.integers(3, 9))] for _ in range(rows)]
    labels = [i % 2 for i in range(rows)]
    lines = [["good" if y else "bad", *words] for words, y in zip(lines, labels, strict=True)]
    joined = [" ".join(words) for words in lines]
    columns = {column: joined, "label": labels}
    _write(file, columns | ({"tokenized": joined} if column == "sentence" else {}))


def molecules(file: Path, rng: np.random.Generator, rows: int) -> None:
    """Chains of three to five atoms; the target grows with the number of oxygens."""
    table: dict[str, list[object]] = {"edge_index": [], "edge_attr": [], "node_feat": [], "y": []}
    for _ in range(rows):
        n = int(rng.integers(3, 6))
        atoms = rng.integers(0, 3, n)
        ends = [(i, i + 1) for i in range(n - 1)] + [(i + 1, i) for i in range(n - 1)]
        table["edge_index"].append([[u for u, _ in ends], [v for _, v in ends]])
        table["edge_attr"].append([[1]] * len(ends))
        table["node_feat"].append([[int(a)] for a in atoms])
        table["y"].append([float((atoms == 1).sum() + 0.1 * rng.normal())])
    _write(file, table)


def _write(file: Path, columns: dict[str, object]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
