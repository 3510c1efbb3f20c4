"""The table of answers."""

from pathlib import Path

from sgpa.cli.predict import _common_folder, _input


def test_files_are_shown_without_the_folder_they_share():
    answers = [{"file": "/a/b/c.png"}, {"file": "/a/d.png"}]
    assert _common_folder(answers) == Path("/a")
    assert [_input(answer, Path("/a")) for answer in answers] == ["b/c.png", "d.png"]


def test_absolute_and_relative_paths_are_shown_as_they_are():
    answers = [{"file": "/a/b.png"}, {"file": "c.png"}]
    assert _common_folder(answers) is None
    assert [_input(answer, None) for answer in answers] == ["/a/b.png", "c.png"]


def test_an_empty_text_is_shown_by_its_row():
    assert _input({"file": "a.csv", "row": 3, "text": ""}, None) == "row 3"


def test_texts_have_no_folder():
    assert _common_folder([{"file": "a.csv", "text": "x"}]) is None
