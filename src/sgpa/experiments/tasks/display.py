"""Test rows of a user's data as a report shows them: a picture with a caption, or a text.

Pictures are data URIs, so that results and pages need no other file.
"""

import base64
import importlib
import io
from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image
from torch import Tensor

Display = Callable[[int], dict[str, Any]]  # the number of a test row -> {"picture", "caption"} or {"text"}
MOST_CHARACTERS = 400  # of a text
SHORTEST = 96  # pixels along a side of a picture
MOLECULE = (220, 160)  # width and height of a drawing


def show_images(images: Tensor, names: Sequence[str]) -> Display:
    """Images [N, 3, h, w] uint8, enlarged by a whole factor, with the names of their files."""

    def show(row: int) -> dict[str, Any]:
        picture = Image.fromarray(images[row].permute(1, 2, 0).contiguous().numpy())
        factor = max(1, -(-SHORTEST // min(picture.size)))
        file = io.BytesIO()
        picture.resize((factor * picture.width, factor * picture.height), Image.Resampling.NEAREST).save(
            file, "PNG"
        )
        return {"picture": _uri("image/png", file.getvalue()), "caption": names[row]}

    return show


def show_texts(texts: Sequence[str]) -> Display:
    """The beginning of each text."""

    def show(row: int) -> dict[str, Any]:
        text = " ".join(texts[row].split())
        return {"text": text if len(text) <= MOST_CHARACTERS else text[: MOST_CHARACTERS - 1] + "…"}

    return show


def show_molecules(smiles: Sequence[str]) -> Display:
    """Drawings by RDKit, with the SMILES; the SMILES alone where a molecule cannot be drawn."""

    def show(row: int) -> dict[str, Any]:
        try:
            chem, draw = (importlib.import_module(f"rdkit.Chem{part}") for part in ("", ".Draw.rdMolDraw2D"))
            drawer = draw.MolDraw2DSVG(*MOLECULE)
            drawer.drawOptions().clearBackground = False
            drawer.DrawMolecule(chem.MolFromSmiles(smiles[row]))
            drawer.FinishDrawing()
            svg = drawer.GetDrawingText().encode()
        except (ImportError, ValueError, RuntimeError):
            return {"text": smiles[row]}
        return {"picture": _uri("image/svg+xml", svg), "caption": smiles[row]}

    return show


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
