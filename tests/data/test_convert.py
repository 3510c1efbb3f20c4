import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from sgpa.core.errors import InputError
from sgpa.data.convert import READERS, convert
from sgpa.data.images import cifar
from sgpa.data.prepare import prepare
from sgpa.data.public_sets import SOURCES, Source


def tar(file: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(file, "w:gz") as bundle:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            bundle.addfile(info, io.BytesIO(content))
    return file


def records(count: int, labels: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).integers(0, 256, (count, labels + 3072), dtype=np.uint8)
    made[:, 0] %= 10
    made[:, labels - 1] = made[:, labels - 1] % (100 if labels == 2 else 10)
    return made


def cifar10(file: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    batches = [records(4, 1, seed) for seed in range(6)]
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
    members = {
        n: b.tobytes() for n, b in zip([*names, "cifar-10-batches-bin/test_batch.bin"], batches, strict=True)
    }
    # archives list their files in any order, and more than the batches
    shuffled = dict(reversed(members.items())) | {"cifar-10-batches-bin/readme.html": b"<html>"}
    return tar(file, shuffled), np.concatenate(batches[:5]), batches[5]


def cifar100(file: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    train, test = records(6, 2, 0), records(3, 2, 1)
    members = {"cifar-100-binary/train.bin": train.tobytes(), "cifar-100-binary/test.bin": test.tobytes()}
    return tar(file, members), train, test


def svhn(file: Path) -> tuple[Path, np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
    y = np.array([[d] for d in (*range(1, 11), 10, 3)], np.uint8)
    savemat(file, {"X": X, "y": y})
    return file, X, y


def imdb(file: Path) -> Path:
    members = {"aclImdb/README": b"reviews", "aclImdb/train/unsup/0_0.txt": b"no label"}
    for split in ("test", "train"):
        for label in ("pos", "neg"):
            for number in (10, 2, 0):
                text = f"{split} {label} {number} caf\u00e9<br />"
                members[f"aclImdb/{split}/{label}/{number}_7.txt"] = text.encode()
    return tar(file, members)


def cola(file: Path) -> Path:
    with zipfile.ZipFile(file, "w") as bundle:
        for stem in ("in_domain_train", "in_domain_dev", "out_of_domain_dev"):
            for form, sentence in (("raw", "A \"cat' sat."), ("tokenized", "a \" cat ' sat .")):
                lines = [f"gj04\t1\t\t{stem} {sentence}", f"bc01\t0\t*\t{stem} sat cat."]
                bundle.writestr(f"cola_public/{form}/{stem}.tsv", "\n".join(lines) + "\n")
    return file


def rows(files: dict[str, Path], split: str) -> list[dict]:
    return pq.read_table(files[split]).to_pylist()


def pixels(row: dict) -> np.ndarray:
    image = Image.open(io.BytesIO(row["img"]["bytes"]))
    assert image.format == "WEBP"
    return np.asarray(image)


def test_cifar10_keeps_order_labels_and_every_pixel(tmp_path):
    archive, train, test = cifar10(tmp_path / "c.tar.gz")
    seen: list[tuple[int, int]] = []
    files = convert("cifar10", archive, tmp_path, lambda *at: seen.append(at))
    assert seen == [(20, 20), (4, 4)]
    for split, expected in (("train", train), ("test", test)):
        got = rows(files, split)
        assert [list(row) for row in got[:1]] == [["img", "label"]]
        assert [row["label"] for row in got] == expected[:, 0].tolist()
        for row, record in zip(got, expected, strict=True):
            assert np.array_equal(pixels(row), record[1:].reshape(3, 32, 32).transpose(1, 2, 0))


def test_cifar100_has_both_labels(tmp_path):
    archive, train, _ = cifar100(tmp_path / "c.tar.gz")
    got = rows(convert("cifar100", archive, tmp_path), "train")
    assert list(got[0]) == ["img", "fine_label", "coarse_label"]
    assert [row["coarse_label"] for row in got] == train[:, 0].tolist()
    assert [row["fine_label"] for row in got] == train[:, 1].tolist()
    assert np.array_equal(pixels(got[2]), train[2, 2:].reshape(3, 32, 32).transpose(1, 2, 0))


def test_svhn_label_10_becomes_0(tmp_path):
    archive, X, _ = svhn(tmp_path / "test_32x32.mat")
    got = rows(convert("svhn", archive, tmp_path), "test")
    assert [row["label"] for row in got] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 3]
    assert all(np.array_equal(pixels(row), X[..., i]) for i, row in enumerate(got))


def test_imdb_is_ordered_by_label_and_number(tmp_path):
    files = convert("imdb", imdb(tmp_path / "a.tar.gz"), tmp_path)
    expected = [f"train {label} {n} caf\u00e9<br />" for label in ("neg", "pos") for n in (0, 2, 10)]
    assert [row["text"] for row in rows(files, "train")] == expected
    assert [row["label"] for row in rows(files, "test")] == [0, 0, 0, 1, 1, 1]


def test_cola_keeps_quotation_marks(tmp_path):
    got = rows(convert("cola", cola(tmp_path / "c.zip"), tmp_path), "validation_in_domain")
    assert got[0] == {
        "sentence": "in_domain_dev A \"cat' sat.",
        "label": 1,
        "idx": 0,
        "source": "gj04",
        "tokenized": "in_domain_dev a \" cat ' sat .",
    }
    assert (got[1]["label"], got[1]["idx"]) == (0, 1)


def test_mini_imagenet_from_a_folder(tmp_path):
    for name, grey in (("n02", 20), ("n01", 10)):
        (tmp_path / "mine" / name).mkdir(parents=True)
        Image.new("RGB", (84, 84), (grey, 0, 0)).save(tmp_path / "mine" / name / f"{name}0001.png")
    got = rows(convert("mini_imagenet", tmp_path / "mine", tmp_path), "test")
    assert [(row["label"], row["wnid"], row["filename"]) for row in got] == [
        (0, "n01", "n010001.png"),
        (1, "n02", "n020001.png"),
    ]
    assert pixels(got[1]).shape == (32, 32, 3)
    assert pixels(got[1])[5, 5].tolist() == [20, 0, 0]


def test_columns_equal_those_of_the_sources(tmp_path):
    made = {
        "cifar10": cifar10(tmp_path / "1")[0],
        "cifar100": cifar100(tmp_path / "2")[0],
        "svhn": svhn(tmp_path / "3.mat")[0],
        "imdb": imdb(tmp_path / "4"),
        "cola": cola(tmp_path / "5"),
    }
    for name, archive in made.items():
        files = convert(name, archive, tmp_path)
        assert set(files) == set(SOURCES[name].rows), name
        for file in files.values():
            assert tuple(pq.read_schema(file).names) == SOURCES[name].columns, name


@pytest.mark.usefixtures("own_cache")
def test_archive_is_prepared_and_loaded_as_tensors(tmp_path, monkeypatch):
    archive, train, _ = cifar10(tmp_path / "mine.tar.gz")
    tiny = Source(what="tiny", rows={"train": 20, "test": 4}, columns=("img", "label"), terms="none")
    monkeypatch.setitem(SOURCES, "cifar10", tiny)
    prepare("cifar10", own_copy=archive)
    images, labels = cifar.load_images("cifar10", "train")
    assert torch.equal(images, torch.from_numpy(train[:, 1:].reshape(-1, 3, 32, 32)))
    assert labels.tolist() == train[:, 0].tolist()


# --- wrong and damaged archives


def make(name: str, file: Path) -> Path:
    made = {"cifar10": cifar10, "cifar100": cifar100, "svhn": svhn, "imdb": imdb, "cola": cola}[name](file)
    return made if isinstance(made, Path) else made[0]


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "imdb", "cola"])
@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.6, 0.9])
def test_truncated_archives_are_named(tmp_path, name, keep):
    archive = make(name, tmp_path / "archive.mat")
    content = archive.read_bytes()
    archive.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(InputError, match=r"archive\.mat") as error:
        convert(name, archive, tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "imdb", "cola"])
@pytest.mark.parametrize("content", [b"<html>404</html>", b"\x80\x04K\x01.", bytes(1000)])
def test_other_files_are_refused(tmp_path, name, content):
    (tmp_path / "archive.mat").write_bytes(content)  # a page, a pickle, zeros
    with pytest.raises(InputError, match=r"archive\.mat"):
        convert(name, tmp_path / "archive.mat", tmp_path)


def test_error_names_what_a_wrong_archive_lacks(tmp_path):
    archive, *_ = cifar100(tmp_path / "c.tar.gz")
    with pytest.raises(InputError, match=r"has no data_batch_1.bin, .*not CIFAR's binary version"):
        convert("cifar10", archive, tmp_path)
    with pytest.raises(InputError, match="has no train reviews"):
        convert("imdb", archive, tmp_path)
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as bundle:
        bundle.writestr("other.txt", "x")
    with pytest.raises(InputError, match=r"has no raw/in_domain_train.tsv"):
        convert("cola", tmp_path / "c.zip", tmp_path)
    savemat(tmp_path / "m.mat", {"X": np.zeros((2, 2))})
    with pytest.raises(InputError, match="has no variable y"):
        convert("svhn", tmp_path / "m.mat", tmp_path)
    with pytest.raises(InputError, match="zinc cannot be converted"):
        convert("zinc", archive, tmp_path)
    with pytest.raises(InputError, match=r"nowhere.tar does not exist"):
        convert("imdb", tmp_path / "nowhere.tar", tmp_path)


def test_error_locates_damage_inside_an_archive(tmp_path):
    _, train, _ = cifar100(tmp_path / "c.tar.gz")
    bad = train.copy()
    bad[3, 1] = 100
    tar(tmp_path / "c.tar.gz", {"train.bin": bad.tobytes(), "test.bin": train.tobytes()})
    with pytest.raises(InputError, match="train fine_label of row 3 is out of range"):
        convert("cifar100", tmp_path / "c.tar.gz", tmp_path)
    tar(tmp_path / "c.tar.gz", {"train.bin": bad.tobytes()[:-1], "test.bin": train.tobytes()})
    with pytest.raises(InputError, match=r"train.bin has 18,443 bytes, not a multiple of 3074"):
        convert("cifar100", tmp_path / "c.tar.gz", tmp_path)
    savemat(tmp_path / "m.mat", {"X": np.zeros((32, 32, 5, 2), np.uint8), "y": np.array([[1], [2]])})
    with pytest.raises(InputError, match=r"X is uint8 \[32, 32, 5, 2\], expected"):
        convert("svhn", tmp_path / "m.mat", tmp_path)
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as bundle:
        for form in ("raw", "tokenized"):
            bundle.writestr(f"{form}/in_domain_train.tsv", "gj04\t1\t\tfine\ngj04\t7\t\tnot\n")
    with pytest.raises(InputError, match=r"line 2 of raw/in_domain_train.tsv"):
        convert("cola", tmp_path / "c.zip", tmp_path)
    tar(tmp_path / "i.tar", {"train/pos/1_9.txt": b"\xff\xfe"})
    with pytest.raises(InputError, match=r"train/pos/1_9.txt is not UTF-8 text at byte 0"):
        convert("imdb", tmp_path / "i.tar", tmp_path)


def test_every_set_with_a_download_has_a_reader():
    assert {name for name, source in SOURCES.items() if source.url} <= set(READERS)
