"""Pack what finished runs have written into files of limited size, to copy them off a machine.

Usage: python -m tools.pack_runs RUNS OUT             # results, logs and settings
       python -m tools.pack_runs RUNS OUT --models    # and the models; never checkpoints
       cat OUT/runs.tar.gz.* | tar xz -C ELSEWHERE    # unpack them

Packing again replaces the parts of the time before.
"""

import argparse
import io
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

NAME = "runs.tar.gz"
TEXTS = (".json", ".jsonl", ".csv", ".log", ".rc")
MODELS = (".safetensors",)
MIB = 2**20


def packed(runs: Path, models: bool) -> Iterator[Path]:
    """The files of all runs below a folder that are packed, sorted."""
    endings = TEXTS + (MODELS if models else ())
    for path in sorted(runs.rglob("*")):
        if path.is_file() and path.suffix in endings and "checkpoint" not in path.name:
            yield path


def pack(runs: Path, out: Path, *, models: bool = False, part: int = 15 * MIB) -> list[Path]:
    """Write the parts, each of at most `part` bytes; returns them."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path in packed(runs, models):
            with suppress(FileNotFoundError):  # runs under way replace their files
                tar.add(path, path.relative_to(runs))
    data = archive.getvalue()
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob(f"{NAME}.*"):
        old.unlink()
    parts = []
    for i, start in enumerate(range(0, len(data), part)):
        parts.append(out / f"{NAME}.{i:02d}")
        parts[-1].write_bytes(data[start : start + part])
    return parts


def main() -> None:
    """Parse, pack, print the parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, help="a folder with run folders")
    parser.add_argument("out", type=Path, help="receives the parts")
    parser.add_argument("--models", action="store_true", help="pack models too")
    parser.add_argument("--part", type=int, default=15, help="MiB of a part, at most")
    options = parser.parse_args()
    for path in pack(options.runs, options.out, models=options.models, part=options.part * MIB):
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
