"""Download one file, check its MD5, and resume downloads that broke off."""

import os
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from sgpa.core.errors import InputError
from sgpa.core.files import file_digest

Progress = Callable[[int, int], None]  # bytes or rows done, and in all (0 where that is unknown)
CHUNK = 1 << 18
TIMEOUT = 30.0  # seconds without a byte
ATTEMPTS = 50  # an attempt that receives nothing is the last


def fetch(url: str, target: Path, *, md5: str = "", progress: Progress | None = None) -> None:
    """Download `url` to `target`.

    An incomplete download is kept beside the target as `.part`; the next call resumes it.

    Args:
        url: The address.
        target: The file to write. It appears only when the download is complete and its MD5 is right.
        md5: The published checksum; empty where there is none.
        progress: Called with bytes received and bytes in all (0 where the server does not say).

    Raises:
        InputError: The server cannot be reached, has no such file, or the checksum differs.
    """
    part = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(ATTEMPTS):
        before = _size(part)
        try:
            _receive(url, part, progress)
            break
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if _size(part) <= before or isinstance(error, HTTPError):
                raise InputError(_by_hand(url, target, reason)) from None
    else:
        raise InputError(_by_hand(url, target, f"broke off {ATTEMPTS} times"))
    if md5 and (received := file_digest(part, "md5")) != md5:
        part.unlink()  # resuming it would fail again
        raise InputError(f"{url}: MD5 {received}, published is {md5}; the download was damaged, try again")
    os.replace(part, target)


def _receive(url: str, part: Path, progress: Progress | None) -> None:
    """Append the missing bytes of `url` to `part`; servers without range requests send the whole file."""
    have = _size(part)
    headers = {"User-Agent": "sgpa", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code != 416 or not have:
            raise
        if _total(error.headers) == have:  # already complete
            return
        part.unlink()  # longer than the file, so it belongs to another one
        response = urlopen(Request(url, headers={"User-Agent": "sgpa"}), timeout=TIMEOUT)
    with response:
        resumed = response.status == 206
        have = have if resumed else 0
        length = int(response.headers.get("Content-Length") or 0)
        total = have + length if length else 0
        with part.open("ab" if resumed else "wb") as file:
            while chunk := response.read(CHUNK):
                file.write(chunk)
                have += len(chunk)
                if progress:
                    progress(have, total)
    if total and have < total:
        raise ConnectionError(f"broke off at {have:,} of {total:,} bytes")


def _total(headers: Message) -> int:
    """N of `Content-Range: bytes */N`; -1 where the server does not say."""
    text = (headers.get("Content-Range") or "").rpartition("/")[2]
    return int(text) if text.isdigit() else -1


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _by_hand(url: str, target: Path, reason: object) -> str:
    return f"cannot fetch {url} ({reason}); try again, or fetch it elsewhere and put it at {target}"
