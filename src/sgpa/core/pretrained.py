"""Models that come with the package: `sgpa.load("digits")`, `sgpa predict digits photo.png`."""

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
