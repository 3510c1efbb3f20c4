"""Saved predictors that somebody changed: one line that names the file, and nothing outside is touched."""

import json
import os
import shutil

import pytest
import torch

import sgpa
from sgpa.core.errors import CheckpointError, NumericalError, SgpaError
from sgpa.core.files import read_json, read_tensors, write_json, write_tensors
from sgpa.core.saved_tensors import check_tensors
from sgpa.inference import readers
from sgpa.inference.saved import finished_cells, inside, read_saved
from sgpa.models import Transformer
from sgpa.models.saving import SCALE, set_scale
from support.fixed_novelty import FixedNovelty
from support.paths import KEPT, ROOT
from support.small_models import small

IMAGES = {"kind": "images", "size": 8, "grey": True}
MOLECULES = {"kind": "molecules", "atoms": ["C"], "bonds": ["SINGLE"]}
WORDS = {"kind": "words", "words": ["a"], "max_words": 5}
TEXTS = {"kind": "text-features", "backbone": {"name": "minilm"}, "digest": "0"}


@pytest.mark.parametrize(
    ("saved", "complaint"),
    [
        (IMAGES | {"size": "8"}, r"size='8' \(allowed: a whole number\)"),
        (IMAGES | {"size": 8.5}, r"size=8.5 \(allowed: a whole number\)"),
        (IMAGES | {"size": [8]}, r"size=\(8,\) \(allowed: a whole number\)"),
        (IMAGES | {"size": 2**63}, r"size=\d+ \(allowed: 1 to 4096\)"),
        (IMAGES | {"size": -1}, r"size=-1 \(allowed: 1 to 4096\)"),
        (IMAGES | {"colour": 1}, "unknown fields colour"),
        ({"kind": "smells"}, "unknown config type 'smells'"),
        ({}, "unknown config type None"),
        (MOLECULES | {"atoms": "C"}, "atoms='C'"),
        (MOLECULES | {"width": 10**9}, "width=1000000000"),
        (MOLECULES | {"identifiers": "names"}, "identifiers='names'"),
        (WORDS | {"max_words": 0}, r"max_words=0 \(allowed: 1 or more\)"),
        (WORDS | {"words": [1]}, "words="),
        ({"kind": "words"}, "missing"),
        (TEXTS | {"backbone": "minilm"}, "backbone='minilm'"),
        (TEXTS | {"backbone": {"name": 3}}, r"name=3 \(allowed: a word\)"),
        (TEXTS | {"backbone": {"name": "minilm", "group": 0}}, r"group=0 \(allowed: 1 to 512\)"),
    ],
)
def test_a_reader_is_built_from_typed_fields(saved, complaint, tmp_path):
    write_json(tmp_path / "reader.json", saved)
    with pytest.raises(CheckpointError, match=rf"does not describe a reader \(.*{complaint}"):
        readers.load(tmp_path)


@pytest.mark.parametrize("saved", [IMAGES, MOLECULES, WORDS, TEXTS])
def test_a_saved_reader_is_read_again(saved, tmp_path):
    write_json(tmp_path / "reader.json", saved)
    reader = readers.load(tmp_path)
    reader.save(tmp_path / "again")
    assert readers.load(tmp_path / "again") == reader


@pytest.fixture
def exported(tmp_path):
    return read_saved(KEPT["digits"]).export(tmp_path / "digits")


def changed(folder, **entries):
    write_json(folder / "run.json", read_json(folder / "run.json", dict) | entries)


@pytest.mark.parametrize("path", ["..", "../other", "/etc", "model/../../other", "link", "a\0b", "loop"])
def test_a_run_names_nothing_outside_of_its_folder(path, exported, tmp_path):
    shutil.copytree(exported / "model", tmp_path / "other")
    (exported / "link").symlink_to(tmp_path / "other")
    (exported / "loop").symlink_to(exported / "loop")
    changed(exported, members=[{"model": path, "calibrated": None}])
    with pytest.raises(CheckpointError, match=r"run.json names .*outside of"):
        sgpa.load(exported)


def test_an_export_copies_nothing_from_outside(exported, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    changed(exported, members=[{"model": "model", "calibrated": "../secret"}])
    with pytest.raises(CheckpointError, match="outside of"):
        read_saved(exported)
    changed(exported, members=[{"model": "model", "calibrated": None}])
    os.remove(exported / "model" / "model.safetensors")
    (exported / "model" / "model.safetensors").symlink_to(secret)
    with pytest.raises(CheckpointError, match="outside of"):
        read_saved(exported).export(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_cell_may_name_the_trainings_of_its_run(tmp_path):
    run = shutil.copytree(ROOT / "tests" / "fixtures" / "v0.1" / "recipe-run", tmp_path / "run")
    cell = finished_cells(run)[0].folder
    assert inside(cell, "../../trainings/kernel-mle-0/model").is_dir()
    with pytest.raises(CheckpointError, match="outside of"):
        inside(cell, "../../../elsewhere")


def test_several_models_for_a_method_of_one(exported):
    members = read_json(exported / "run.json", dict)["members"]
    changed(exported, members=members * 2)
    with pytest.raises(SgpaError, match="one model predicts, not 2"):
        sgpa.load(exported)


def test_statistics_of_novelty_must_fit_the_model(exported):
    file = exported / "novelty.safetensors"
    tensors, _ = read_tensors(file)
    write_tensors(file, tensors | {"novelty.offset": torch.zeros(1)})
    with pytest.raises(CheckpointError, match=r"novelty.offset has shape \[1\] \(allowed: \["):
        sgpa.load(exported)
    write_tensors(file, {name: x for name, x in tensors.items() if not name.endswith("held_out")})
    with pytest.raises(CheckpointError, match=r"novelty.held_out is missing"):
        sgpa.load(exported)
    write_tensors(file, tensors | {"novelty.scale": tensors["novelty.scale"] / 0})
    with pytest.raises(CheckpointError, match=r"novelty.scale has entries that are no finite numbers"):
        sgpa.load(exported)
    write_tensors(file, tensors | {"novelty.held_out": tensors["novelty.held_out"][:0]})
    with pytest.raises(CheckpointError, match=r"novelty.held_out is empty"):  # its novelty would be 0 / 0
        sgpa.load(exported)
    for name in ("novelty.scale", "novelty.held_out"):
        write_tensors(file, tensors | {name: -tensors[name]})
        with pytest.raises(CheckpointError, match="scale or held_out are no statistics of rows"):
            sgpa.load(exported)


def test_an_answer_without_a_finite_novelty_is_not_given(exported):
    model = sgpa.load(exported)
    object.__setattr__(model, "novelty", FixedNovelty(torch.nan, model.novelty.model))
    with pytest.raises(NumericalError, match="novelty is not finite; its statistics were damaged"):
        model.predict(torch.rand(2, 1, 8, 8))


@pytest.mark.parametrize("name", ["run.json", "reader.json", "model/config.json", "model/model.safetensors"])
def test_a_pipe_instead_of_a_file_does_not_hang(name, exported):
    os.remove(exported / name)
    os.mkfifo(exported / name)
    with pytest.raises(CheckpointError, match=r"not a regular file|no finished run"):
        sgpa.load(exported)


def test_made_json_of_a_run_is_typed(tmp_path):
    from sgpa.core.provenance import of_all

    (tmp_path / "made.json").write_text(json.dumps({"date": 3}))
    with pytest.raises(CheckpointError, match=r"made.json: .* is missing"):
        of_all([tmp_path])


def test_letters_of_shapes_must_agree():
    tensors = {"a": torch.zeros(3, 4), "b": torch.zeros(4, 4)}
    assert check_tensors(tensors, {"a": ("K", "E"), "b": ("E", "E")}, "x") == {"K": 3, "E": 4}
    with pytest.raises(CheckpointError, match=r"x: b has shape \[4, 4\] \(allowed: \[K, E\], K = 3, E = 4\)"):
        check_tensors(tensors, {"a": ("K", "E"), "b": ("K", "E")}, "x")


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ({"classes": ["0", "1"]}, r"run.json names 2 classes, for a model with 10 classes"),
        ({"predictor": {"kind": "KernelConfig"}}, r"run.json: KernelConfig is not a method"),
        ({"trust": {"max_uncertainty": 1.0, "residuals": [2.0, 1.0]}}, r"run.json: trust: residuals="),
        ({"trust": {"max_uncertainty": 1.0, "max_novelty": 3.0}}, r"run.json: trust: max_novelty=3.0"),
    ],
)
def test_entries_that_do_not_fit_the_model(entries, complaint, exported):
    changed(exported, **entries)
    with pytest.raises(CheckpointError, match=complaint):
        sgpa.load(exported)


def test_a_rule_on_novelty_needs_its_statistics(exported):
    os.remove(exported / "novelty.safetensors")
    with pytest.raises(CheckpointError, match=r"novelty.safetensors is missing: the rule of trust needs it"):
        sgpa.load(exported)


def test_a_scale_in_a_calibration_must_be_that_of_a_model_of_numbers(exported):
    file = exported / "calibrated-0.safetensors"
    write_tensors(file, {SCALE: torch.tensor(0.0)})
    with pytest.raises(CheckpointError, match="which is of a model that predicts numbers"):
        sgpa.load(exported)
    model = Transformer(small(outputs=1, likelihood="laplace"))
    for scale in (torch.zeros(1), torch.tensor(torch.nan), torch.tensor(1)):
        with pytest.raises(CheckpointError, match=r"calibration: likelihood.log_b"):
            set_scale(model, {SCALE: scale})
    set_scale(model, {SCALE: torch.tensor(0.5)})
    assert float(model.likelihood.log_b.detach()) == 0.5


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.complex64])
def test_tensors_of_another_kind_are_damaged(dtype):
    with pytest.raises(CheckpointError, match="x holds torch"):
        check_tensors({"x": torch.ones(2).to(dtype)}, {"x": (2,)}, "file")
    check_tensors({"x": torch.ones(2).long()}, {"x": (2,)}, "file", whole=("x",))
    with pytest.raises(CheckpointError, match=r"x holds torch\.float32"):
        check_tensors({"x": torch.ones(2)}, {"x": (2,)}, "file", whole=("x",))
