"""Make a public data set ready: fetch the official archive, check it, convert it to Parquet."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sgpa.core.errors import InputError
from sgpa.core.files import file_digest, write_json
from sgpa.data import convert, fetch
from sgpa.data.public_sets import source
from sgpa.data.sources import MANIFEST, cache_dir, count_rows, verify

Progress = Callable[[str, int, int], None]  # stage ("fetch" or "convert"), done, total (0: unknown)


def prepare(
    name: str,
    data_dir: Path | None = None,
    *,
    own_copy: Path | None = None,
    progress: Progress | None = None,
) -> Path:
    """Make a data set ready and return its folder. A set that is complete already is left alone.

    Files are converted in a temporary folder and moved when all splits have the right number of rows; the
    manifest is written last.

    Args:
        name: A key of `SOURCES`.
        data_dir: Where to put the set; the cache by default.
        own_copy: The official archive, if you have it already (for mini-ImageNet, a folder of images).
        progress: Called with the stage, what is done and the total.

    Returns:
        The folder with the set's Parquet files.

    Example:
        >>> prepare("cola")  # doctest: +SKIP
        PosixPath('/home/me/.cache/sgpa/cola')
    """
    known = source(name)
    if own_copy is None and (folder := _complete(name, data_dir)):
        return folder
    root = Path(data_dir) if data_dir is not None else cache_dir()
    if own_copy is None and not known.url:
        file = root / name / f"{next(iter(known.rows))}-00000-of-00001.parquet"
        raise InputError(f"{name}: {known.by_hand}; put Parquet files at {file}")
    if name not in convert.READERS:
        raise InputError(f"{name}: {known.by_hand} with columns {', '.join(known.columns)} in {root / name}")
    archive = own_copy or root / "downloads" / known.archive
    fetched = own_copy is None and not archive.exists()
    if fetched:
        fetch.fetch(known.url, archive, md5=known.md5, progress=_stage(progress, "fetch"))
    elif known.md5 and file_digest(archive, "md5") != known.md5:
        raise InputError(
            f"{archive}: not the published MD5 {known.md5}; delete it and fetch {known.url} again"
        )
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=root) as staging:
        written = convert.convert(name, archive, Path(staging), _stage(progress, "convert"))
        _publish(name, written, root / name, known.url if own_copy is None else archive.name)
    if fetched:
        archive.unlink()
    return root / name


def _publish(name: str, written: Mapping[str, Path], folder: Path, origin: str) -> None:
    """Count the rows of converted files, move them into `folder`, and write the manifest."""
    known = source(name)
    entries: dict[str, Any] = {}
    for split, expected in known.rows.items():
        rows = count_rows(written[split], known.columns) if split in written else 0
        if not known.accepts(rows, expected):
            raise InputError(
                f"{name}: {origin} holds {rows:,} {split} rows, expected {expected:,}; fetch it again"
            )
        entries[written[split].name] = {"rows": rows, "sha256": file_digest(written[split])}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    for file in written.values():
        os.replace(file, folder / file.name)
    write_json(folder / MANIFEST, {"set": name, "origin": origin, "files": entries, "terms": known.terms})


def _complete(name: str, data_dir: Path | None) -> Path | None:
    """The folder of the first split, if every split has all its rows."""
    try:
        checked = verify(name, data_dir, checksums=False)
    except InputError:
        return None
    return checked[0].files[0].parent if all(part.files for part in checked) else None


def _stage(progress: Progress | None, name: str) -> fetch.Progress | None:
    return None if progress is None else lambda done, total: progress(name, done, total)
