"""Copy trained models as float16, in files of at most 14 MB.

    python -m tools.posthoc.weights --out copies runs/posthoc/vit-0 runs/posthoc/cola-mean/cola-0

Writes OUT/PARENT-NAME-PART.safetensors; `join` reads the parts of one model back as float32.
"""

import argparse
from pathlib import Path

from torch import Tensor

from sgpa.core.files import read_tensors, write_tensors

LARGEST = 14e6  # bytes


def parts(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """Float16 tensors in groups that are small enough; large ones are cut along their rows."""
    made: list[dict[str, Tensor]] = [{}]
    room = LARGEST
    for name, value in tensors.items():
        pieces = (
            value.half().split(max(1, int(LARGEST / 2 / (2 * value[0].numel())))) if value.ndim else [value]
        )
        for i, piece in enumerate(pieces):
            if (size := 2 * piece.numel()) > room:
                made.append({})
                room = LARGEST
            made[-1][f"{name}/{i}"] = piece.contiguous()
            room -= size
    return made


def join(files: list[Path]) -> dict[str, Tensor]:
    """The tensors of one model, from all of its parts in order."""
    import torch  # noqa: PLC0415

    pieces: dict[str, list[Tensor]] = {}
    for file in files:
        for key, value in sorted(read_tensors(file)[0].items(), key=lambda x: int(x[0].rsplit("/", 1)[1])):
            pieces.setdefault(key.rsplit("/", 1)[0], []).append(value.float())
    return {name: torch.cat(values) if values[0].ndim else values[0] for name, values in pieces.items()}


def main() -> None:
    """Write all parts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for folder in options.models:
        tensors, _ = read_tensors(folder / "model.safetensors")
        for i, part in enumerate(parts(tensors)):
            write_tensors(options.out / f"{folder.parent.name}-{folder.name}-{i}.safetensors", part)


if __name__ == "__main__":
    main()
