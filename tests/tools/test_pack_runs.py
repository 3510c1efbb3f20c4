"""Finished runs are packed into parts that can be put together again."""

import io
import tarfile

from tools.pack_runs import pack


def a_run(folder):
    files = {
        "c10/recipe.json": b"{}",
        "c10/trainings/kernel-sgpa-0/log.jsonl": b'{"epoch": 1}\n' * 500,
        "c10/trainings/kernel-sgpa-0/checkpoint.safetensors": b"large",
        "c10/trainings/kernel-sgpa-0/checkpoint.json": b"{}",
        "c10/trainings/kernel-sgpa-0/model/model.safetensors": bytes(range(256)) * 40,
        "c10/report.html": b"<html>",
        "logs/c10.rc": b"0",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return files


def unpacked(parts):
    with tarfile.open(fileobj=io.BytesIO(b"".join(part.read_bytes() for part in parts))) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def test_results_and_logs_come_back_and_models_where_asked_for(tmp_path):
    files = a_run(tmp_path / "runs")
    texts = {"c10/recipe.json", "c10/trainings/kernel-sgpa-0/log.jsonl", "logs/c10.rc"}
    model = "c10/trainings/kernel-sgpa-0/model/model.safetensors"
    for models, names in ((False, texts), (True, texts | {model})):
        parts = pack(tmp_path / "runs", tmp_path / "out", models=models, part=300)
        assert all(part.stat().st_size <= 300 for part in parts)
        assert unpacked(parts) == {name: files[name] for name in names}


def test_packing_again_leaves_no_part_of_the_time_before(tmp_path):
    a_run(tmp_path / "runs")
    many = pack(tmp_path / "runs", tmp_path / "out", models=True, part=100)
    one = pack(tmp_path / "runs", tmp_path / "out")
    assert len(many) > 1
    assert sorted((tmp_path / "out").iterdir()) == one == many[:1]
