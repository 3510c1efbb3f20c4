"""Downloads from a local server, and preparing a data set."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from sgpa.cli.data import data_app
from sgpa.core.errors import InputError
from sgpa.data import convert, fetch
from sgpa.data.prepare import prepare
from sgpa.data.public_sets import SOURCES, Source
from sgpa.data.sources import verify

COLA = ("train", "validation_in_domain", "validation_out_of_domain")


pytestmark = pytest.mark.usefixtures("own_cache")


class Server(ThreadingHTTPServer):
    content = b""
    cut = 0  # bytes after which connections break, 0 for never
    ranges = True
    requests: list[str | None]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requests.append(wanted)
        if self.path != "/archive.zip":
            self.send_error(404)
            return
        content, start = self.server.content, 0
        if wanted and self.server.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
        self.send_response(206 if wanted and self.server.ranges else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        stop = start + self.server.cut if self.server.cut else len(content)
        self.wfile.write(content[start:stop])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.requests = []
    server.content = os.urandom(300_000)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


def address(server: Server, path: str = "archive.zip") -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/{path}"


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def test_fetch_reports_progress_and_leaves_one_file(server, tmp_path):
    seen: list[tuple[int, int]] = []
    fetch.fetch(
        address(server), tmp_path / "a", md5=md5(server.content), progress=lambda *at: seen.append(at)
    )
    assert [f.name for f in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == server.content
    assert seen[-1] == (300_000, 300_000)
    assert seen == sorted(seen)


def test_broken_connection_is_resumed(server, tmp_path):
    server.cut = 120_000
    fetch.fetch(address(server), tmp_path / "a", md5=md5(server.content))
    assert (tmp_path / "a").read_bytes() == server.content
    assert server.requests == [None, "bytes=120000-", "bytes=240000-"]


def test_earlier_download_is_resumed(server, tmp_path):
    (tmp_path / "a.part").write_bytes(server.content[:1000])
    fetch.fetch(address(server), tmp_path / "a", md5=md5(server.content))
    assert server.requests == ["bytes=1000-"]
    assert (tmp_path / "a").read_bytes() == server.content


def test_server_without_range_requests_sends_the_whole_file(server, tmp_path):
    server.ranges = False
    (tmp_path / "a.part").write_bytes(b"x" * 1000)
    fetch.fetch(address(server), tmp_path / "a", md5=md5(server.content))
    assert (tmp_path / "a").read_bytes() == server.content


@pytest.mark.parametrize("extra", [0, 10])
def test_partial_file_that_is_complete_or_too_long(server, tmp_path, extra):
    (tmp_path / "a.part").write_bytes(server.content + b"x" * extra)
    fetch.fetch(address(server), tmp_path / "a", md5=md5(server.content))
    assert (tmp_path / "a").read_bytes() == server.content


def test_wrong_checksum_leaves_no_file(server, tmp_path):
    with pytest.raises(InputError, match=r"published is 0{32}; the download was damaged, try again"):
        fetch.fetch(address(server), tmp_path / "a", md5="0" * 32)
    assert list(tmp_path.iterdir()) == []


def test_unreachable_server_and_missing_file(server, tmp_path):
    with pytest.raises(InputError, match=r"404|Not Found"):
        fetch.fetch(address(server, "elsewhere"), tmp_path / "a")
    with pytest.raises(
        InputError, match=rf"cannot fetch .*; try again, or .* put it at {tmp_path / 'a'}"
    ) as error:
        fetch.fetch("http://127.0.0.1:9/archive.zip", tmp_path / "a")
    assert "\n" not in str(error.value)


# --- preparing


@pytest.fixture
def served(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server has an archive of `cola`, with a reader for it."""
    rows = dict.fromkeys(COLA, 3)
    served = Source(
        what="tiny", rows=rows, columns=("text",), terms="none", url=address(server), md5=md5(server.content)
    )
    monkeypatch.setitem(SOURCES, "cola", served)

    def reader(archive: Path, progress: fetch.Progress | None) -> convert.Tables:
        assert archive.read_bytes() == server.content
        for split in COLA:
            yield split, pa.table({"text": ["a", "b", "c"]})

    monkeypatch.setitem(convert.READERS, "cola", reader)
    return server


def test_prepare_fetches_converts_and_verifies_once(served, tmp_path):
    stages: set[str] = set()
    folder = prepare("cola", progress=lambda stage, *_: stages.add(stage))
    assert folder == tmp_path / "xdg" / "sgpa" / "cola"
    assert stages == {"fetch"}
    assert [part.checksums for part in verify("cola")] == [1, 1, 1]  # of the manifest
    assert not (tmp_path / "xdg" / "sgpa" / "downloads" / "archive.zip").exists()
    assert prepare("cola") == folder
    assert len(served.requests) == 1, "the second call needs no server"


def test_prepare_into_a_named_directory(served, tmp_path):
    assert prepare("cola", tmp_path / "here") == tmp_path / "here" / "cola"
    assert not (tmp_path / "xdg").exists()


@pytest.mark.parametrize("broken_split", [0, 1, 2])
def test_failed_conversion_leaves_no_parquet_file(served, tmp_path, monkeypatch, broken_split):
    whole = convert.READERS["cola"]

    def breaking(archive: Path, progress: fetch.Progress | None) -> convert.Tables:
        for number, row in enumerate(whole(archive, progress)):
            if number == broken_split:
                raise KeyboardInterrupt
            yield row

    monkeypatch.setitem(convert.READERS, "cola", breaking)
    with pytest.raises(KeyboardInterrupt):
        prepare("cola")
    assert not list((tmp_path / "xdg").rglob("*.parquet"))
    monkeypatch.setitem(convert.READERS, "cola", whole)
    prepare("cola")
    assert len(served.requests) == 1, "the complete archive is used again"


def test_interrupted_publication_is_not_prepared(served, tmp_path, monkeypatch):
    moved: list[Path] = []

    def replace_once(source: Path, target: Path) -> None:
        if Path(target).suffix == ".parquet":
            if moved:
                raise KeyboardInterrupt
            moved.append(target)
        os.rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace_once)
        with pytest.raises(KeyboardInterrupt):
            prepare("cola")
    assert len(list((tmp_path / "xdg" / "sgpa" / "cola").glob("*.parquet"))) == 1
    assert not (tmp_path / "xdg" / "sgpa" / "cola" / "manifest.json").exists()
    prepare("cola")
    assert json.loads((tmp_path / "xdg" / "sgpa" / "cola" / "manifest.json").read_text())["set"] == "cola"


def test_archive_with_too_few_rows_is_refused(served, tmp_path, monkeypatch):
    monkeypatch.setitem(
        convert.READERS, "cola", lambda *_: iter([(s, pa.table({"text": ["a"]})) for s in COLA])
    )
    with pytest.raises(InputError, match="1 train rows, expected 3"):
        prepare("cola")
    assert not list((tmp_path / "xdg").rglob("*.parquet"))


def test_own_copy_of_the_archive(served, tmp_path):
    mine = tmp_path / "mine.zip"
    mine.write_bytes(served.content)
    prepare("cola", own_copy=mine)
    assert mine.exists()
    assert served.requests == []
    mine.write_bytes(served.content[:-1])
    with pytest.raises(InputError, match=r"mine.zip: not the published MD5"):
        prepare("cola", own_copy=mine)
    with pytest.raises(InputError, match=r"nowhere.zip cannot be read"):
        prepare("cola", own_copy=tmp_path / "nowhere.zip")


def test_archive_placed_in_downloads_is_used_and_kept(served, tmp_path):
    place = tmp_path / "xdg" / "sgpa" / "downloads" / "archive.zip"
    place.parent.mkdir(parents=True)
    place.write_bytes(served.content)
    prepare("cola")
    assert served.requests == []
    assert place.exists(), "the user's file is kept"


def test_sets_without_a_download_name_the_files_to_bring(tmp_path):
    with pytest.raises(
        InputError, match=r"pickles.*put Parquet files at .*zinc/train-00000-of-00001.parquet"
    ):
        prepare("zinc", tmp_path)
    with pytest.raises(InputError, match="--from FOLDER"):
        prepare("mini_imagenet", tmp_path)
    (tmp_path / "zinc.pkl").write_bytes(b"x")
    with pytest.raises(InputError, match="bring Parquet files with columns edge_index"):
        prepare("zinc", tmp_path, own_copy=tmp_path / "zinc.pkl")


def test_verify_and_prepare_commands(tmp_path, served):
    def run(command: str) -> tuple[int, str]:
        result = CliRunner().invoke(data_app, [command, "cola", "--data-dir", str(tmp_path)])
        return result.exit_code, result.output

    status, output = run("prepare")
    assert (status, "is ready" in output) == (0, True)
    status, output = run("verify")
    assert status == 0
    assert "cola train: 3 rows, columns right, 1 of 1 checksums known and right" in output
    (tmp_path / "cola" / "train-00000-of-00001.parquet").unlink()
    status, output = run("verify")
    assert (status, "cola train: missing" in output) == (1, True)
