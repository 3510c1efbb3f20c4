"""JSON that cannot be printed or written again is refused where it is read."""

import pytest

from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.files import make_folder, read_json, write_json


def test_names_of_any_language_are_read_again(tmp_path):
    names = ["é", "猫", "🐈", 'a "word"', "C:\\users"]
    write_json(tmp_path / "names.json", names)
    assert read_json(tmp_path / "names.json", list[str]) == names


@pytest.mark.parametrize("text", [r'["\ud800"]', r'{"a\udfff": 1}', r'["\ude00\ud83d"]'])
def test_half_of_a_surrogate_pair_is_refused(text, tmp_path):
    (tmp_path / "names.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"names.json is not valid JSON .*surrogates not allowed"):
        read_json(tmp_path / "names.json", list[str] | dict[str, int])


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for folder in (file, file / "inside"):
        with pytest.raises(InputError, match=r"is a file or below one; name a folder"):
            make_folder(folder)
    assert file.read_text() == "mine"
