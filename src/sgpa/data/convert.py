"""Official archives to Parquet in the hub's layout. Nothing is unpickled.

Images become lossless WebP in a column `img` of `{bytes, path}`; order and pixels are unchanged.
"""

import io
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from sgpa.core.errors import InputError
from sgpa.data.fetch import Progress
from sgpa.data.images.folder import list_images, read_images

Pixels = NDArray[np.uint8]  # [N, h, w, 3]
Tables = Iterator[tuple[str, pa.Table]]  # split and its rows
Reader = Callable[[Path, Progress | None], Tables]
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
BROKEN = (  # raised by the readers for damaged files
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    MatReadError,
    EOFError,
    OSError,
    ValueError,
    TypeError,
    NotImplementedError,
)


def convert(name: str, archive: Path, folder: Path, progress: Progress | None = None) -> dict[str, Path]:
    """Write `<split>-00000-of-00001.parquet` into `folder` for every split in `archive`; return the files."""
    if name not in READERS:
        raise InputError(f"{name} cannot be converted; these can: {', '.join(READERS)}")
    if not archive.exists():
        raise InputError(f"{archive} does not exist")
    written = {}
    for split, table in _guarded(name, archive, READERS[name](archive, progress)):
        written[split] = folder / f"{split}-00000-of-00001.parquet"
        pq.write_table(table, written[split], compression="zstd")
    return written


def _guarded(name: str, archive: Path, tables: Tables) -> Tables:
    """The tables of a reader; an exception becomes one line that names the archive."""
    try:
        yield from tables
    except InputError:
        raise
    except BROKEN as error:
        reason = str(error).partition("\n")[0].rstrip(":") or type(error).__name__
        raise InputError(
            f"{archive} cannot be read as {name} ({reason}): cut short, or another file; fetch it again"
        ) from None


def read_cifar10(archive: Path, progress: Progress | None = None) -> Tables:
    """`cifar-10-binary.tar.gz`: records of one label and 3072 pixels."""
    train = [f"data_batch_{i}.bin" for i in range(1, 6)]
    yield from _cifar(archive, {"train": train, "test": ["test_batch.bin"]}, {"label": 10}, progress)


def read_cifar100(archive: Path, progress: Progress | None = None) -> Tables:
    """`cifar-100-binary.tar.gz`: records of a coarse label, a fine label and 3072 pixels."""
    labels = {"coarse_label": 20, "fine_label": 100}
    yield from _cifar(archive, {"train": ["train.bin"], "test": ["test.bin"]}, labels, progress)


def read_svhn(archive: Path, progress: Progress | None = None) -> Tables:
    """`test_32x32.mat`: X [32, 32, 3, N] and y [N, 1], where 10 is the digit 0."""
    content = loadmat(archive, variable_names=["X", "y"])
    if missing := {"X", "y"} - content.keys():
        raise InputError(
            f"{archive} has no variable {', '.join(sorted(missing))}; it is not SVHN's cropped digits"
        )
    pixels, labels = content["X"], content["y"].reshape(-1).astype(np.int64)
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, len(labels)):
        raise InputError(
            f"{archive}: X is {pixels.dtype} {list(pixels.shape)}, expected uint8 [32, 32, 3, N]"
        )
    _check_labels(archive, "y", labels - 1, 10)
    images = _encode(np.ascontiguousarray(pixels.transpose(3, 0, 1, 2)), progress)
    yield "test", pa.table({"img": images, "label": labels % 10})


def read_mini_imagenet(folder: Path, progress: Progress | None = None) -> Tables:
    """A folder with one sub-folder of images per class, named after ImageNet's ids."""
    listed = list_images(folder)
    pixels = read_images(listed.files, 32, progress)
    columns = {
        "img": _encode(pixels, None),
        "label": listed.labels,
        "wnid": [listed.classes[label] for label in listed.labels],
        "filename": [file.name for file in listed.files],
    }
    yield "test", pa.table(columns)


def read_imdb(archive: Path, progress: Progress | None = None) -> Tables:
    """`aclImdb_v1.tar.gz`: a text file per review, `<split>/<neg or pos>/<number>_<stars>.txt`."""
    member_name = re.compile(r"(?:^|/)(train|test)/(neg|pos)/(\d+)_\d+\.txt$")
    reviews: dict[str, list[tuple[int, int, str]]] = {"train": [], "test": []}
    with tarfile.open(archive, "r:*") as tar:
        for member in tar:
            if (match := member_name.search(member.name)) and (stream := tar.extractfile(member)):
                split, label, number = match.groups()
                reviews[split].append((int(label == "pos"), int(number), _text(member.name, stream.read())))
                if progress:
                    progress(len(reviews["train"]) + len(reviews["test"]), 0)
    for split, rows in reviews.items():
        if not rows:
            raise InputError(f"{archive} has no {split} reviews; it is not aclImdb_v1.tar.gz")
        rows.sort()
        yield (
            split,
            pa.table({"text": [r[2] for r in rows], "label": pa.array([r[0] for r in rows], pa.int64())}),
        )


def read_cola(archive: Path, progress: Progress | None = None) -> Tables:
    """`cola_public_1.1.zip`: tab-separated source, label, author's mark, sentence; raw and tokenized."""
    splits = {
        "train": "in_domain_train",
        "validation_in_domain": "in_domain_dev",
        "validation_out_of_domain": "out_of_domain_dev",
    }
    with zipfile.ZipFile(archive) as bundle:
        for done, (split, stem) in enumerate(splits.items(), 1):
            raw, tokenized = (
                _cola_rows(archive, bundle, f"{form}/{stem}.tsv") for form in ("raw", "tokenized")
            )
            if len(raw) != len(tokenized):
                raise InputError(f"{archive}: {stem} has {len(raw)} raw but {len(tokenized)} tokenized rows")
            columns = {
                "sentence": [row[3] for row in raw],
                "label": pa.array([int(row[1]) for row in raw], pa.int64()),
                "idx": pa.array(range(len(raw)), pa.int32()),
                "source": [row[0] for row in raw],
                "tokenized": [row[3] for row in tokenized],
            }
            if progress:
                progress(done, len(splits))
            yield split, pa.table(columns)


READERS: dict[str, Reader] = {
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "svhn": read_svhn,
    "mini_imagenet": read_mini_imagenet,
    "imdb": read_imdb,
    "cola": read_cola,
}


def _cifar(
    archive: Path, splits: dict[str, list[str]], labels: dict[str, int], progress: Progress | None
) -> Tables:
    """Fixed-length records: one byte per label, then 32 x 32 pixels of red, of green and of blue."""
    wanted = {file for files in splits.values() for file in files}
    with tarfile.open(archive, "r:*") as tar:
        content = {
            Path(member.name).name: stream.read()
            for member in tar
            if Path(member.name).name in wanted and (stream := tar.extractfile(member))
        }
    if missing := sorted(wanted - content.keys()):
        raise InputError(f"{archive} has no {', '.join(missing)}; it is not CIFAR's binary version")
    width = len(labels) + 3 * 32 * 32
    for split, files in splits.items():
        for file in files:
            if not content[file] or len(content[file]) % width:
                raise InputError(
                    f"{archive}: {file} has {len(content[file]):,} bytes, not a multiple of {width}"
                )
        records = np.frombuffer(b"".join(content[file] for file in files), np.uint8).reshape(-1, width)
        pixels = records[:, len(labels) :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        columns = {"img": _encode(np.ascontiguousarray(pixels), progress)}
        # the hub lists the fine label first
        for column in reversed(labels):
            values = records[:, list(labels).index(column)].astype(np.int64)
            _check_labels(archive, f"{split} {column}", values, labels[column])
            columns[column] = pa.array(values)
        yield split, pa.table(columns)


def _cola_rows(archive: Path, bundle: zipfile.ZipFile, ending: str) -> list[list[str]]:
    member = next((entry for entry in bundle.namelist() if entry.endswith(ending)), None)
    if member is None:
        raise InputError(f"{archive} has no {ending}; it is not cola_public_1.1.zip")
    rows = [line.split("\t") for line in _text(member, bundle.read(member)).splitlines()]
    for number, row in enumerate(rows, 1):
        if len(row) != 4 or row[1] not in ("0", "1"):
            raise InputError(f"{archive}: line {number} of {member} is not source, label, mark, sentence")
    return rows


def _encode(pixels: Pixels, progress: Progress | None) -> pa.Array:
    """Images [N, h, w, 3] as a column of lossless WebP."""
    encoded: list[bytes] = []
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(pixels), 1000):
            encoded += pool.map(_webp, pixels[start : start + 1000])
            if progress:
                progress(len(encoded), len(pixels))
    return pa.array([{"bytes": content, "path": None} for content in encoded], IMAGE)


def _webp(pixels: Pixels) -> bytes:
    stream = io.BytesIO()
    # effort 2 is four times as fast as the default and, at 32 x 32, no larger
    Image.fromarray(pixels).save(stream, "WEBP", lossless=True, method=2, quality=20)
    return stream.getvalue()


def _check_labels(archive: Path, what: str, labels: NDArray[np.int64], classes: int) -> None:
    bad = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(bad):
        raise InputError(f"{archive}: {what} of row {bad[0]} is out of range; the archive is damaged")


def _text(member: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{member} is not UTF-8 text at byte {error.start}; the archive is damaged"
        ) from None
