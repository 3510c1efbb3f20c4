"""Adapters on a stand-in for the Hugging Face hub: a folder in place of the server."""

import shutil

import huggingface_hub
import pytest
import torch

import sgpa
from sgpa.core.errors import InputError
from support.tiny_transformers import attached, batch, bert, make


@pytest.fixture(scope="module")
def gp():
    return attached(make(bert))


@pytest.fixture
def server(tmp_path, monkeypatch):
    """What the two calls of the hub that are used do, on a folder."""
    calls = []

    class Api:
        def create_repo(self, name, *, private, exist_ok):
            calls.append((name, private))
            (tmp_path / name).mkdir(parents=True, exist_ok=exist_ok)

        def file_exists(self, name, file):
            return (tmp_path / name / file).exists()

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            assert commit_message
            shutil.copytree(folder_path, tmp_path / repo_id, dirs_exist_ok=True)
            return f"hub/{repo_id}"

        def model_info(self, name, *, timeout):
            assert timeout > 0
            if not (tmp_path / name).is_dir():
                raise ConnectionError("404: no such repository\nsecond line")

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name: tmp_path / name)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, file: tmp_path / name / file)
    return tmp_path, calls


def test_an_adapter_comes_back_from_the_hub(gp, server):
    place, calls = server
    assert gp.push_to_hub("me/my-gp", private=True) == "hub/me/my-gp"
    assert calls == [("me/my-gp", True)]
    model = gp._model
    rows = batch(model, 8, 50, labels=False)
    again = sgpa.attach(model, "me/my-gp")
    torch.testing.assert_close(again.predict(rows).probabilities, gp.predict(rows).probabilities)
    card = (place / "me/my-gp/README.md").read_text(encoding="utf-8")
    assert 'sgpa.attach(model, "me/my-gp")' in card
    assert "BertForSequenceClassification" in card
    assert card.startswith("---\nlibrary_name: sgpa\n")


def test_the_repository_of_a_model_keeps_its_card(gp, server):
    place, _ = server
    (place / "me/model").mkdir(parents=True)
    (place / "me/model/README.md").write_text("# My model\n", encoding="utf-8")
    for _ in range(2):
        gp.push_to_hub("me/model")
        assert (place / "me/model/README.md").read_text(encoding="utf-8") == "# My model\n"
    assert (place / "me/model/adapter.json").exists()
    for _ in range(2):
        gp.push_to_hub("me/my-gp")  # a card of ours is replaced
    assert (place / "me/my-gp/README.md").exists()


def test_wrong_names_and_a_hub_that_refuses_are_one_line(gp, server, monkeypatch):
    for name in ("my-gp", "a/b/c", "/tmp/x y"):
        with pytest.raises(InputError, match=r"push_to_hub: name=.* \(allowed: owner/name\)"):
            gp.push_to_hub(name)
    with pytest.raises(
        InputError, match=r"attach: 'me/none' is neither a folder nor an adapter .*404"
    ) as caught:
        sgpa.attach(gp._model, "me/none")
    assert "\n" not in str(caught.value)
    (server[0] / "me/other").mkdir(parents=True)
    with pytest.raises(InputError, match=r"'me/other' on the hub has no adapter\.json"):
        sgpa.attach(gp._model, "me/other")

    def refuse(*_, **__):
        raise OSError("401: not logged in\nsecond line")

    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", refuse)
    with pytest.raises(InputError, match=r"me/my-gp was not uploaded .*401.* use save_pretrained") as caught:
        gp.push_to_hub("me/my-gp")
    assert "\n" not in str(caught.value)


def test_the_card_of_a_model_stays(gp, tmp_path):
    card = tmp_path / "README.md"
    card.write_text("# My model", encoding="utf-8")
    gp.save_pretrained(tmp_path)
    assert card.read_text(encoding="utf-8") == "# My model"
    assert sgpa.attach(gp._model, tmp_path).modules == gp.modules
    card.unlink()
    first = gp.save_pretrained(tmp_path) / "README.md"
    first.write_text(first.read_text(encoding="utf-8") + "old", encoding="utf-8")
    gp.save_pretrained(tmp_path)
    assert not first.read_text(encoding="utf-8").endswith("old")


def test_a_saved_folder_has_a_card(gp, tmp_path):
    folder = gp.save_pretrained(tmp_path / "gp")
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| attention modules | 3: `" in card
    assert f"| inducing queries of a head | {gp._adapter.gps[0].Z.shape[1]} |" in card
