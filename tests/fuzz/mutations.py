"""Damaged and changed contents of files."""

import json
import math
import tempfile
from pathlib import Path

import torch
from tests.fuzz.values import PLAIN

from sgpa.core.files import checksum_of, read_tensors, write_tensors


def bytes_changed(rng, data):
    """The bytes of a file after an accident."""
    kind = rng.randrange(7)
    at = rng.randrange(len(data) + 1)
    n = min(len(data) - at, 1 + int(rng.expovariate(0.05)))
    noise = bytes(rng.randrange(256) for _ in range(max(1, n)))
    return (
        data[:at],
        data[:at] + noise + data[at + n :],
        data[:at] + noise + data[at:],
        data[:at] + data[at + n :],
        data[:at] + bytes(n) + data[at + n :],
        data + data[:at],
        b"",
    )[kind]


def json_changed(rng, value):
    """Plain data with one entry replaced, by another one of the same data too, removed, added or doubled."""
    return _json_changed(rng, value, [*PLAIN, *_parts(value)])


def _parts(value):
    """The value and all that it is made of."""
    yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _parts(part)


def _json_changed(rng, value, others):
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        changed = dict(value)
        how = rng.random()
        if how < 0.12:
            changed.pop(key)
        elif how < 0.2:
            changed[rng.choice(("kind", "unknown", "__class__", key + "x"))] = rng.choice(others)
        else:
            changed[key] = _json_changed(rng, value[key], others)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [
            *value[:at],
            *rng.choice(([_json_changed(rng, value[at], others)], [], [value[at]] * 2)),
            *value[at + 1 :],
        ]
    return rng.choice(others)


def deep(rng):
    """JSON that is nested too deeply to be read."""
    n = rng.choice((1000, 100_000))
    return b"[" * n + b"]" * n if rng.random() < 0.5 else b'{"kind": ' * n + b"1" + b"}" * n


def header_changed(rng, data):
    """A safetensors file with another header over the same numbers."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return bytes_changed(rng, data)
    name = rng.choice(names)
    entry = header[name]
    match rng.randrange(7):
        case 0:
            entry["dtype"] = rng.choice(("F64", "F16", "BF16", "I64", "I8", "BOOL", "U8", "X1", "C64"))
        case 1:
            entry["shape"] = rng.choice(([], [0], [2**40], [-1], [1] * 70, entry["shape"][::-1], "x"))
        case 2:
            entry["data_offsets"] = rng.choice(([0, 0], [0, 2**60], [5, 1], [-4, 4], [0], None))
        case 3:
            header["new"] = dict(entry)
        case 4:
            header[name + "x"] = header.pop(name)
        case 5:
            header["__metadata__"] = {
                "note": rng.choice(("", "null", "[1]", "{", '{"epoch": "x"}', '{"epoch": -1}'))
            }
        case 6:
            header = rng.choice(({}, {"a": 1}, {name: entry}))
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def signed(file):
    """Whether a file of tensors has the checksum of its content: nobody can tell that it was changed."""
    return checksum_of(read_tensors(file)[0]).encode() in file.read_bytes()


def values_changed(rng, file):
    """A safetensors file with other numbers and the checksum that belongs to them."""
    tensors, note = read_tensors(file)
    if not tensors:
        return file.read_bytes()
    name = rng.choice(sorted(tensors))
    x = tensors[name]
    x = x.float() if x.dtype == torch.bool else x
    tensors[name] = rng.choice(
        (
            *(
                x * 0,
                -x,
                x.flatten(),
                x.unsqueeze(0),
                x[:0] if x.ndim else x,
                x.repeat(2) if x.ndim == 1 else x,
            ),
            *(x.double() * math.nan, x.double() * math.inf, x.double() * 1e30, x.double() * 1e-30, x + 10**6),
            *(x.half(), x.to(torch.int8), x.bool(), x.to(torch.complex64), x.flip(0) if x.ndim else x),
        )
    ).contiguous()
    with tempfile.TemporaryDirectory() as folder:
        write_tensors(Path(folder) / "x", tensors, note)
        return (Path(folder) / "x").read_bytes()


def changed_bytes(rng, file, others):
    """New content for a file: damaged bytes, changed entries, another file's content."""
    data = file.read_bytes()
    how = rng.random()
    if how < 0.05:
        return rng.choice(others).read_bytes()
    if file.suffix == ".json" and how < 0.7:
        return json.dumps(json_changed(rng, json.loads(data))).encode()
    if file.suffix == ".json" and how < 0.73:
        return deep(rng)
    if file.suffix == ".safetensors" and how < 0.35:
        return header_changed(rng, data)
    if file.suffix == ".safetensors" and how < 0.65:
        return values_changed(rng, file)
    return bytes_changed(rng, data)
