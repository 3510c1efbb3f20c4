import hashlib
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from sgpa.cli.data import data_app
from sgpa.core.errors import InputError
from sgpa.data import convert, sources
from sgpa.data.public_sets import SOURCES, Source
from sgpa.data.sources import find, read_table, verify

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Source:
    """A set called cifar10 with ten rows in two splits."""
    small = Source(what="tiny", rows={"train": 6, "test": 4}, columns=("text", "label"), terms="none")
    monkeypatch.setitem(SOURCES, "cifar10", small)
    return small


def put(folder: Path, split: str, rows: int, part: int = 0, parts: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{split}-{part:05d}-of-{parts:05d}.parquet"
    pq.write_table(pa.table({"text": ["x" * 100] * rows, "label": list(range(rows))}), file)
    return file


# --- search


def test_named_directory_is_the_only_one_searched(tmp_path, monkeypatch):
    put(tmp_path / "env" / "a", "train", 2)
    monkeypatch.setenv("SGPA_DATA", str(tmp_path / "env"))
    assert find("a", "train") == [tmp_path / "env" / "a" / "train-00000-of-00001.parquet"]
    with pytest.raises(InputError, match="no train files"):
        find("a", "train", tmp_path / "other")


def test_missing_splits_are_searched_in_the_cache(tmp_path, monkeypatch):
    test = put(tmp_path / "env" / "a", "test", 2)
    train = put(tmp_path / "xdg" / "sgpa" / "a", "train", 2)
    put(tmp_path / "xdg" / "sgpa" / "a", "test", 3)
    monkeypatch.setenv("SGPA_DATA", str(tmp_path / "env"))
    assert find("a", "test") == [test]
    assert find("a", "train") == [train]


def test_cache_is_in_the_home_directory_without_xdg(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert sources.cache_dir() == tmp_path / ".cache" / "sgpa"


def test_parts_are_in_order_and_of_one_split(tmp_path):
    parts = [put(tmp_path / "a", "validation", 1, i, 3) for i in (2, 0, 1)]
    put(tmp_path / "a", "validation_in_domain", 1)
    assert find("a", "validation", tmp_path) == sorted(parts)


def test_missing_set_names_the_path_and_the_command(tmp_path):
    with pytest.raises(InputError) as error:
        find("cifar100", "train", tmp_path)
    assert str(tmp_path / "cifar100" / "train-00000-of-00001.parquet") in str(error.value)
    assert "sgpa data prepare cifar100" in str(error.value)
    with pytest.raises(InputError, match="pickles"):
        find("zinc", "train", tmp_path)


def test_missing_part_is_named(tmp_path):
    for part in (0, 1, 3):
        put(tmp_path / "cifar10", "train", 2, part, 4)
    with pytest.raises(
        InputError, match=r"train-00002-of-00004.parquet is missing .*sgpa data prepare cifar10"
    ):
        find("cifar10", "train", tmp_path)


def test_split_in_two_partitions_is_refused(tmp_path):
    put(tmp_path / "a", "train", 2, 0, 1)
    for part in range(2):
        put(tmp_path / "a", "train", 2, part, 2)
    with pytest.raises(InputError, match="twice"):
        find("a", "train", tmp_path)


# --- checks


def test_table_of_sources_is_consistent():
    for name, source in SOURCES.items():
        assert source.what, name
        assert source.terms, name
        assert all(rows > 0 for rows in source.rows.values()), name
        assert bool(source.url) != bool(source.by_hand), f"{name} is either fetched or brought by the user"
        assert (name in convert.READERS) or not source.url, name
        assert len(source.md5) in (0, 32), name


def test_verify_counts_rows_and_checks_sums(tmp_path, tiny):
    train, test = put(tmp_path / "cifar10", "train", 6), put(tmp_path / "cifar10", "test", 4)
    lines = [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  cifar10/{f.name}\n" for f in (train, test)]
    (tmp_path / "SHA256SUMS").write_text("".join(lines))
    assert [(part.rows, part.checksums) for part in verify("cifar10", tmp_path)] == [(6, 1), (4, 1)]
    (tmp_path / "SHA256SUMS").write_text(lines[0] + lines[1].replace(lines[1][:4], "0000"))
    with pytest.raises(InputError, match=rf"{test.name}: its SHA-256 is not the listed one; delete it"):
        verify("cifar10", tmp_path)


def test_verify_reports_a_missing_split_and_refuses_a_missing_set(tmp_path, tiny):
    put(tmp_path / "cifar10", "test", 4)
    assert [part.rows for part in verify("cifar10", tmp_path)] == [0, 4]
    with pytest.raises(InputError, match="no test files"):
        verify("svhn", tmp_path)
    with pytest.raises(InputError, match="unknown data set 'cifar11'; known: cifar10"):
        verify("cifar11", tmp_path)


def test_wrong_number_of_rows(tmp_path, tiny):
    file = put(tmp_path / "cifar10", "train", 5)
    with pytest.raises(InputError, match=f"cifar10 train has 5 rows, expected 6; replace .*{file.name}"):
        verify("cifar10", tmp_path)


def test_wrong_columns(tmp_path):
    put(tmp_path / "cola", "train", 8551)
    with pytest.raises(
        InputError, match=r"no column sentence, idx, source, tokenized \(it has text, label\)"
    ):
        verify("cola", tmp_path)
    with pytest.raises(InputError, match="no column img"):
        read_table(find("cola", "train", tmp_path)[0], ["img"])


def test_ood_sets_may_be_subsets(tmp_path, monkeypatch):
    part = Source(what="tiny", rows={"test": 9}, columns=("text",), terms="none", partial=True)
    monkeypatch.setitem(SOURCES, "svhn", part)
    put(tmp_path / "svhn", "test", 5)
    assert verify("svhn", tmp_path)[0].rows == 5
    put(tmp_path / "svhn", "test", 10)
    with pytest.raises(InputError, match="expected 1 to 9"):
        verify("svhn", tmp_path)


@pytest.mark.parametrize("keep", [0, 3, 0.5, 0.99])
def test_truncated_file_is_named(tmp_path, tiny, keep):
    file = put(tmp_path / "cifar10", "train", 6)
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content)) if keep < 1 else keep])
    for attempt in (lambda: verify("cifar10", tmp_path), lambda: read_table(file)):
        with pytest.raises(
            InputError, match=rf"{file.name} was cut short or damaged .*; delete it and"
        ) as error:
            attempt()
        assert "\n" not in str(error.value)


# --- the command line


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(data_app, [str(a) for a in arguments])
    if isinstance(result.exception, InputError):
        return 2, str(result.exception)
    return result.exit_code, result.output


def test_list_as_json_and_as_table(tmp_path, tiny):
    put(tmp_path / "cifar10", "train", 6)
    put(tmp_path / "cola", "train", 6)
    status, output = run("list", "--data-dir", tmp_path, "--json")
    states = {state["name"]: state for state in json.loads(output)}
    assert status == 0
    assert list(states) == list(SOURCES)
    assert states["cifar10"]["rows"] == {"train": {"found": 6, "whole": 6}, "test": {"found": 0, "whole": 4}}
    assert not states["cifar10"]["prepared"]
    assert states["svhn"]["found"] is None
    assert "no column" in states["cola"]["problem"]
    put(tmp_path / "cifar10", "test", 4)
    status, output = run("list", "--data-dir", tmp_path)
    assert status == 0
    assert all(name in output for name in SOURCES)


@pytest.mark.parametrize("command", ["list", "prepare", "verify"])
def test_help_has_an_example(command):
    status, output = run(command, "--help")
    assert status == 0
    assert f"sgpa data {command}" in output
    assert "--data-dir" in output


def test_unknown_name_lists_the_known_names():
    for command in ("verify", "prepare"):
        assert run(command, "nothing") == (2, f"unknown data set 'nothing'; known: {', '.join(SOURCES)}")
