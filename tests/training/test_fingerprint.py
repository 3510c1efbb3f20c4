"""Which finished models and checkpoints belong to a training, and which are refused."""

import json
from dataclasses import dataclass, replace

import pytest
import torch

from sgpa.core import config as core_config
from sgpa.core.errors import CheckpointError
from sgpa.core.files import read_json, write_json
from sgpa.core.inputs import Graphs
from sgpa.data import Dataset
from sgpa.methods import Mle
from sgpa.training.fingerprint import data_digest, without_defaults
from sgpa.training.legacy_fingerprint import legacy_fingerprint
from sgpa.training.optim import OptimConfig
from support.training_runs import OPTIM, SGPA, Stop, stop_at, trainer


def later_version(**fields):
    """`Mle` with more fields, as a later version might have it."""
    return dataclass(frozen=True, kw_only=True)(
        type("Mle", (Mle,), {"__annotations__": dict.fromkeys(fields, float), **fields})
    )


def test_a_field_that_is_added_with_its_default_keeps_the_fingerprint():
    today, later = Mle(), later_version(focal=0.0)
    value = trainer(method=today).fingerprint.value
    assert trainer(method=later()).fingerprint.value == value
    assert trainer(method=later(focal=2.0)).fingerprint.value != value


def test_only_settings_that_are_not_defaults_count():
    assert without_defaults(OptimConfig(epochs=20)) == {"kind": "OptimConfig", "epochs": 20}
    nested = without_defaults(replace(SGPA, samples=2))
    assert nested == {
        "kind": "Sgpa",
        "attention": {"kind": "SgpaConfig", "num_global": 3},
        "samples": 2,
    }


@pytest.mark.parametrize(
    "change",
    [
        {"method": replace(SGPA, samples=2)},
        {"optim": replace(OPTIM, lr=1e-3)},
        {"seed": 4},
        {"extra_selectors": (Mle(),)},
        {"init_from": {"a": torch.ones(2)}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_setting_changes_the_fingerprint(change):
    assert trainer(**change).fingerprint.value != trainer().fingerprint.value


@pytest.mark.parametrize("part", ["train", "validation"])
def test_inputs_and_targets_of_both_parts_change_the_fingerprint(part):
    ours = trainer()
    data = getattr(ours, part)
    for other in (replace(data, inputs=data.inputs + 1), replace(data, targets=data.targets.flip(0))):
        assert trainer(**{part: other}).fingerprint.value != ours.fingerprint.value


def test_all_tensors_of_graphs_are_in_the_digest():
    graphs = Graphs(
        torch.zeros(2, 3).long(), torch.zeros(2, 4, 2).long(), torch.zeros(2, 4).long(), torch.ones(2, 3, 1)
    )
    digests = {data_digest(Dataset(graphs, torch.zeros(2)))}
    for name in ("nodes", "edges", "edge_types", "identifiers"):
        digests.add(
            data_digest(Dataset(replace(graphs, **{name: getattr(graphs, name) + 1}), torch.zeros(2)))
        )
    assert len(digests) == 5


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"method": replace(SGPA, samples=2)}, "method.samples is the default there, 2 now"),
        ({"optim": replace(OPTIM, lr=1e-3)}, "optim.lr is 0.005 there, 0.001 now"),
        ({"seed": 4}, "seed is 3 there, 4 now"),
        ({"validation": trainer().train}, "the validation data differ"),
        (
            {"validation": trainer().train, "seed": 4},
            "the validation data differ; seed is 3 there, 4 now",
        ),
    ],
    ids=["method", "optim", "seed", "data", "data and seed"],
)
def test_a_finished_model_of_another_training_is_refused_and_kept(tmp_path, change, difference):
    trainer(tmp_path, optim=replace(OPTIM, epochs=1)).fit()
    (tmp_path / "checkpoint.safetensors").unlink()
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    change = {"optim": replace(OPTIM, epochs=1)} | change
    change["optim"] = replace(change["optim"], epochs=1)
    with pytest.raises(CheckpointError) as error:
        trainer(tmp_path, **change).fit()
    assert str(error.value) == (
        f"{tmp_path} holds a finished model trained with other settings or data ({difference}); "
        "choose another directory or delete it"
    )
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == before


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    with pytest.raises(Stop):
        trainer(tmp_path, on_progress=stop_at(2)).fit()
    with pytest.raises(CheckpointError, match=r"other settings or data \(seed is 3 there, 4 now\)"):
        trainer(tmp_path, seed=4).fit()


def test_a_field_that_is_renamed_later_keeps_finished_models(tmp_path, monkeypatch):
    trainer(tmp_path, method=replace(SGPA, samples=2), optim=replace(OPTIM, epochs=1)).fit()
    note = read_json(tmp_path / "finished.json", dict)
    note["settings"]["method"]["draws"] = note["settings"]["method"].pop("samples")  # its name before
    note["fingerprint"] = "of that version"
    write_json(tmp_path / "finished.json", note)
    again = trainer(tmp_path, method=replace(SGPA, samples=2), optim=replace(OPTIM, epochs=1))
    with pytest.raises(CheckpointError):
        again.fit()
    renamed = core_config.RENAMED_FIELDS["Sgpa"] | {"draws": "samples"}
    monkeypatch.setitem(core_config.RENAMED_FIELDS, "Sgpa", renamed)
    assert again.finished() is not None


def test_a_finished_model_of_version_0_1_is_recognised_by_its_hash(tmp_path):
    once = {"optim": replace(OPTIM, epochs=1)}
    trainer(tmp_path, **once).fit()
    write_json(tmp_path / "finished.json", {"fingerprint": legacy_fingerprint(trainer(**once).fingerprint)})
    assert trainer(tmp_path, **once).finished() is not None
    with pytest.raises(CheckpointError, match=r"with other settings or data; choose another directory"):
        trainer(tmp_path, seed=4, **once).finished()


def test_version_0_1_could_not_have_trained_with_a_later_setting():
    later = later_version(focal=0.0)
    today = legacy_fingerprint(trainer(method=Mle()).fingerprint)
    assert legacy_fingerprint(trainer(method=later()).fingerprint) == today
    assert legacy_fingerprint(trainer(method=later(focal=2.0)).fingerprint) is None


def test_notes_are_json(tmp_path):
    trainer(tmp_path, optim=replace(OPTIM, epochs=1)).fit()
    note = json.loads((tmp_path / "finished.json").read_text())
    assert note["version"] == 2
    assert note["settings"]["method"]["kind"] == "Sgpa"
    assert note["settings"] == trainer(optim=replace(OPTIM, epochs=1)).fingerprint.settings
