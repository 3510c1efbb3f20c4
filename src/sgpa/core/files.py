"""Reading and writing files: JSON, tensors, checksums. Every write is atomic."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save_file
from torch import Tensor, nn

from sgpa.core.arguments import mismatch
from sgpa.core.errors import CheckpointError, InputError, one_line


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write, which replaces `path` at the end and is removed where that fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically; an error of the system names the file."""
    with replacing(path) as temporary:
        try:
            temporary.write_bytes(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically; NaN and infinity become null."""
    write_text(path, json_text(data) + "\n")


def json_text(data: Any) -> str:
    """Plain data as JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_plain(data), indent=1, allow_nan=False)


def read_json(path: Path, wanted: Any) -> Any:
    """Read JSON, with an error that names the file.

    Args:
        path: A regular file.
        wanted: The type that the content must have, such as `list[str]` or a `TypedDict`.
    """
    _check_regular(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
        if "\\u" in text:  # half of a surrogate pair could be neither printed nor written
            json.dumps(data, ensure_ascii=False).encode("utf-8")
    except FileNotFoundError:
        raise CheckpointError(f"{one_line(path)} does not exist") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON ({error}); it was damaged or cut short") from None
    if (wrong := mismatch(data, wanted)) is not None:
        raise CheckpointError(f"{path}: {wrong}; it was damaged or made by something else")
    return data


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Any = None) -> None:
    """Write named tensors, metadata as JSON and a checksum into one safetensors file, atomically."""
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        try:
            save_file(flat, temporary, metadata={"note": json.dumps(metadata), "sha256": checksum_of(flat)})
        except SafetensorError as error:
            code = re.search(
                r"(?:code: |os error )(\d+)", str(error)
            )  # of the system, such as 28 for a full disk
            if code is None:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """The tensors and the metadata that `write_tensors` wrote. Nothing is unpickled.

    Files of version 0.1 have no checksum.
    """
    _check_regular(path)
    if not path.exists():
        raise CheckpointError(f"{path} does not exist")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
        metadata = json.loads(header.get("note", "null"))
        tensors = load(path.read_bytes())  # `file.get_tensor` of safetensors 0.8 loses 64 bytes a tensor
    except (SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read ({error}); it was damaged or cut short") from None
    if header.get("sha256", checksum := checksum_of(tensors)) != checksum:
        raise CheckpointError(f"{path} does not have the checksum it was written with; it was damaged")
    return tensors, metadata


def _check_regular(path: Path) -> None:
    """Refuse a folder, a device or a pipe, whose end never comes."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{one_line(path)} is not a regular file")


def checksum_of(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and bytes; the order of entries in a file does not count."""
    checksum = hashlib.sha256()
    for name in sorted(tensors):
        x = tensors[name].contiguous()
        checksum.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        checksum.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return checksum.hexdigest()


def make_folder(folder: Path) -> None:
    """Make a folder, with those around it, where it does not exist.

    Failures of the disk stay errors of the system, for which the command line has advice of its own.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"{folder} is a file or below one; name a folder") from None


def ensure_directory(folder: Path, advice: str) -> None:
    """Make a folder before long work that will write to it; `advice` ends the error where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be created ({error.strerror}); {advice}") from None


def check_file_name(path: Path) -> None:
    """Refuse a path that is not valid UTF-8: it could be neither printed nor written to a table."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        try:
            printable = os.fsencode(path).decode("utf-8", "backslashreplace")
        except UnicodeEncodeError:  # a text that no file system gave
            printable = str(path).encode("utf-8", "backslashreplace").decode()
        raise InputError(f"{printable}: the name is not valid UTF-8; rename the file or folder") from None


def file_digest(file: Path, algorithm: str = "sha256") -> str:
    """Hexadecimal checksum of a file; the error names the file where it cannot be read."""
    try:
        with file.open("rb") as stream:
            # checksums here detect damage only, and md5 is what some publishers give
            return hashlib.file_digest(
                stream, lambda: hashlib.new(algorithm, usedforsecurity=False)
            ).hexdigest()
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror})") from None


def digest(x: Tensor) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a tensor's bytes."""
    return hashlib.sha256(x.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def _plain(data: Any) -> Any:
    if isinstance(data, float):
        return data if data == data and abs(data) != float("inf") else None  # noqa: PLR0124 (NaN)
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return data


def copy_all(pairs: list[tuple[Path, Path]], folder: Path) -> None:
    """Copy pairs of (source, target) files below `folder`, which must be new or empty."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; name a new folder")
    for source, target in pairs:
        make_folder(target.parent)
        shutil.copyfile(source, target)


def load_exactly(model: nn.Module, weights: Mapping[str, Tensor], source: Path) -> None:
    """Load weights whose names and shapes must be those of the model; `source` is named in the error."""
    check_fit(model.state_dict(), weights, source)
    check_weights(weights, source, model.state_dict())
    model.load_state_dict(dict(weights))


def check_fit(state: Mapping[str, Tensor], weights: Mapping[str, Tensor], source: Path) -> None:
    """Raise unless names and shapes of weights are those of a model's state."""
    expected = {name: tuple(p.shape) for name, p in state.items()}
    given = {name: tuple(w.shape) for name, w in weights.items()}
    wrong = sorted(n for n in expected.keys() | given.keys() if expected.get(n) != given.get(n))
    if wrong:
        name = wrong[0]
        raise CheckpointError(
            f"{source}: {len(wrong)} weights do not fit the config; the first is {name}: "
            f"expected {expected.get(name, 'none')}, found {given.get(name, 'none')}"
        )


def check_weights(weights: Mapping[str, Tensor], source: Path | str, expected: Mapping[str, Tensor]) -> None:
    """Raise unless all weights are finite numbers of the kind that the model has."""
    for name, weight in weights.items():
        wanted = expected[name].dtype if name in expected else weight.dtype
        if weight.dtype != wanted and not (weight.is_floating_point() and wanted.is_floating_point):
            raise CheckpointError(f"{source}: {name} holds {weight.dtype} numbers, the model has {wanted}")
        if not weight.to(wanted).isfinite().all():
            raise CheckpointError(f"{source}: {name} has entries that are NaN or infinite; it was damaged")
