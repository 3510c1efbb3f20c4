"""Paths and rows that cannot work are one line, before anything is trained, and mostly before torch loads."""

import os
import subprocess
import sys

import pytest
from PIL import Image

from support.terminal import sgpa

PROBE = """
import sys
from sgpa.cli import main
try:
    main()
except SystemExit as end:
    print("exit", end.code, "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["train", "images", "nowhere"], "nowhere is not a folder; name a folder with one sub-folder"),
        (["train", "text", "nowhere.csv"], "nowhere.csv does not exist, or is not a file"),
        (["train", "molecules", "nowhere.csv"], "nowhere.csv does not exist, or is not a file"),
        (["train", "images", "photos", "--out", "file/run"], "file is a file; name a folder for the run"),
        (["predict", "nowhere", "a.png"], "nowhere is not a folder; name the folder of a run"),
        (["predict", "photos", "a.png"], "a.png does not exist"),
    ],
)
def test_wrong_paths_are_errors_before_torch_is_imported(tmp_path, arguments, complaint):
    (tmp_path / "photos").mkdir()
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert complaint in " ".join(done.stderr.split())
    assert done.stdout.strip() == "exit 2 False"
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "file"}


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    refused = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: refused(path, mode) and not mode & os.W_OK)
    complaint = sgpa("train", "images", tmp_path / "photos", "--out", tmp_path / "run").complaint
    assert f"--out {tmp_path / 'run'}: {tmp_path} cannot be written to" in complaint


def images(folder, count):
    folder.mkdir(parents=True)
    for i in range(count):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"{i}.png")


def test_one_class_is_one_line(tmp_path):
    images(tmp_path / "photos" / "cat", 20)
    complaint = sgpa("train", "images", tmp_path / "photos", "--out", tmp_path / "run").complaint
    assert "photos has one class folder, cat; at least two are needed" in complaint
    assert not (tmp_path / "run").exists()


def test_too_few_rows_are_one_line(tmp_path):
    images(tmp_path / "photos" / "cat", 5)
    images(tmp_path / "photos" / "dog", 4)
    complaint = sgpa("train", "images", tmp_path / "photos", "--out", tmp_path / "run").complaint
    assert "9 rows are too few to train and test on; at least 10 are needed" in complaint
    assert not (tmp_path / "run").exists()


def test_stray_files_are_skipped_in_one_line(tmp_path, caplog):
    from sgpa.data.images.folder import image_folder

    for name in ("cat", "dog"):
        images(tmp_path / name, 2)
    for name in ("a.txt", "b.png", "c", "d", ".hidden"):
        (tmp_path / name).touch()
    pixels, _, classes = image_folder(tmp_path, 8)
    assert (len(pixels), classes) == (4, ["cat", "dog"])
    (record,) = caplog.records
    assert record.getMessage() == f"{tmp_path}: skipped a.txt, b.png, c and 1 more, outside the class folders"
