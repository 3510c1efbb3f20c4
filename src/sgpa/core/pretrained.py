"""Models that come with the package, with sample images: `sgpa.load("digits")`, `sgpa predict digits`."""

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "pretrained"
NAMES = ("cifar10", "digits")


def located(path: str | Path) -> Path:
    """The folder of a model that comes with the package, if there is no such folder here; else the path.

    >>> located("digits").parent.name, located("runs/photos").name
    ('pretrained', 'photos')
    """
    here = Path(path)
    return FOLDER / here if str(path) in NAMES and not here.exists() else here


def samples(model: Path) -> list[Path]:
    """The images that come with a model of the package; none for other models.

    >>> [image.name for image in samples(located("digits"))]
    ['digit.png', 'noise.png']
    """
    return sorted((model / "samples").glob("*.png")) if model.parent == FOLDER else []
