"""Texts and images as features of a frozen network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError
from sgpa.data.backbones.images import ImageBackbone
from sgpa.data.backbones.texts import TextBackbone
from sgpa.data.texts.tables import TEXT_COLUMNS
from sgpa.inference.readers.base import Reader, Rows
from sgpa.inference.readers.images import image_files
from sgpa.inference.readers.texts import column_names, read_rows


def check_digest(backbone: TextBackbone | ImageBackbone, expected: str) -> None:
    """Raise unless the network has the weights that it had when the model was trained."""
    if backbone.digest != expected:
        raise InputError(
            f"backbone {backbone.name} has other weights than when this model was trained; "
            "restore them or train again"
        )


@checked
@dataclass(frozen=True, kw_only=True)
class TextFeatureReader(Reader):
    """Texts as features of a frozen network; `digest` identifies its weights."""

    backbone: TextBackbone
    digest: str
    column: str | None = None

    kind: ClassVar[str] = "text-features"

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """One text a line of .txt files, the text column of tables, and texts given directly."""
        metadata = read_rows(files, texts, column, column_names(self.column, TEXT_COLUMNS), "text")
        check_digest(self.backbone, self.digest)
        return Rows(self.backbone.features([row["text"] for row in metadata]), metadata)


@checked
@dataclass(frozen=True, kw_only=True)
class ImageFeatureReader(Reader):
    """Images as features of a frozen network; `digest` identifies its weights."""

    backbone: ImageBackbone
    digest: str

    kind: ClassVar[str] = "image-features"

    def read(self, files: Sequence[Path], texts: Sequence[str] = (), column: str | None = None) -> Rows:
        """Image files, and all images below folders."""
        images = image_files(files, texts, column)
        check_digest(self.backbone, self.digest)
        return Rows(self.backbone.features(images), [{"file": str(file)} for file in images])
