"""Checkpoints have a checksum, and the one before is kept."""

import pytest
import torch

from sgpa.core.errors import CheckpointError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.training.checkpoints import previous, read_run, save_run
from sgpa.training.logs import append, history
from support.training_runs import Stop, stop_at, trainer


def flip_a_bit(file):
    """Damage the last number of a file."""
    data = bytearray(file.read_bytes())
    data[-2] ^= 1
    file.write_bytes(data)


def write(path, epoch):
    model = torch.nn.Linear(2, 2)
    save_run(path, model, torch.optim.Adam(model.parameters()), {}, {"epoch": epoch})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_flipped_bit_is_noticed(tmp_path, dtype):
    file = tmp_path / "x.safetensors"
    write_tensors(file, {"empty": torch.zeros(0), "one": torch.ones(()), "x": torch.ones(3, 2, dtype=dtype)})
    assert read_tensors(file)[0]["x"].dtype == dtype
    flip_a_bit(file)
    with pytest.raises(CheckpointError, match=r"x\.safetensors does not have the checksum"):
        read_tensors(file)


def test_a_damaged_checkpoint_is_replaced_by_the_one_before(tmp_path, caplog):
    file = tmp_path / "checkpoint.safetensors"
    for epoch in (1, 2, 3):
        write(file, epoch)
    assert read_run(file)[1] == {"epoch": 3}
    assert read_tensors(previous(file))[1] == {"epoch": 2}
    flip_a_bit(file)
    assert read_run(file)[1] == {"epoch": 2}
    assert "resuming from the checkpoint before" in caplog.text
    file.unlink()  # a process that died between the two writes
    assert read_run(file)[1] == {"epoch": 2}


def test_a_damaged_checkpoint_without_another_is_an_error(tmp_path):
    file = tmp_path / "checkpoint.safetensors"
    write(file, 1)
    flip_a_bit(file)
    with pytest.raises(CheckpointError, match="damaged"):
        read_run(file)


def test_moments_of_another_type_resume_in_the_type_of_the_weights(tmp_path):
    expected = trainer(tmp_path / "whole").fit().state_dict()
    with pytest.raises(Stop):
        trainer(tmp_path / "run", on_progress=stop_at(2)).fit()
    file = tmp_path / "run" / "checkpoint.safetensors"
    tensors, note = read_tensors(file)
    write_tensors(file, {n: x.double() if n.startswith("adam.") else x for n, x in tensors.items()}, note)
    resumed = trainer(tmp_path / "run").fit().state_dict()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


def test_repairs_are_summed_over_the_epochs_of_a_log(tmp_path):
    file = tmp_path / "log.jsonl"
    line = {"nll": 1.0, "kl_g": 0.0, "kl_a": 0.0}
    append(file, line | {"epoch": 1, "numerics": {"jitter_raised": 2}})
    append(file, line | {"epoch": 2})
    append(file, line | {"epoch": 3, "numerics": {"jitter_raised": 1}})
    assert history(file)["numerics"] == {"jitter_raised": 3}


def test_a_random_state_of_another_size_is_an_error(tmp_path):
    with pytest.raises(Stop):
        trainer(tmp_path, on_progress=stop_at(2)).fit()
    file = tmp_path / "checkpoint.safetensors"
    tensors, note = read_tensors(file)
    write_tensors(file, tensors | {"random.cpu": tensors["random.cpu"].repeat(2)}, note)
    with pytest.raises(CheckpointError, match="has no valid random-number states"):
        trainer(tmp_path).fit()
