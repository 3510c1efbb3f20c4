"""The real data sets, in $SGPA_DATA or in shared/data beside the checkout."""

import hashlib

import numpy as np
import pytest
import torch

from sgpa.data.images.cifar import CLASSES, MEAN, STD, cifar, load_images
from sgpa.data.public_sets import SOURCES
from sgpa.data.sources import find, read_table, verify
from sgpa.evaluation import metrics
from sgpa.gp.objective import Progress
from sgpa.methods import Sgpa
from sgpa.models import ModelConfig, PatchConfig
from support.kept import kept
from support.open_runs import open_trained
from support.paths import DATA, KEPT, NAMED

pytestmark = pytest.mark.xdist_group("real data")  # in one process: the tests share decoded images


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("xdg")))
        yield


def need(name: str, *splits: str) -> None:
    for split in splits or SOURCES[name].rows:
        if not NAMED and not list((DATA / name).glob(f"{split}-*-of-*.parquet")):
            pytest.skip(f"no {name} {split} files in {DATA}")


def column(name: str, split: str, label: str) -> np.ndarray:
    return np.concatenate([read_table(file, [label])[label].to_numpy() for file in find(name, split, DATA)])


@pytest.mark.parametrize("name", SOURCES)
def test_rows_columns_and_checksums(name):
    if not NAMED and not list((DATA / name).glob("*.parquet")):
        pytest.skip(f"no {name} files in {DATA}")
    listed = (DATA / "SHA256SUMS").exists()
    for part in verify(name, DATA):
        assert part.checksums == (len(part.files) if listed else 0), part.split


def mean_and_std(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the pixels of each channel in [0, 1], from how often each of the 256 values occurs."""
    counts = torch.stack([images[:, c].flatten().bincount(minlength=256) for c in range(3)]).double()
    values = torch.arange(256, dtype=torch.double) / 255
    mean, square = ((counts @ power) / counts.sum(1) for power in (values, values.square()))
    return mean, (square - mean.square()).sqrt()


# mean of each channel in [0, 1], and how many images the rarest and the most frequent class have
IMAGES = [
    ("cifar10", "train", MEAN, 5000, 5000),
    ("cifar10", "test", (0.4942, 0.4851, 0.4504), 1000, 1000),
    ("cifar100", "train", (0.50708, 0.48655, 0.44092), 500, 500),
    ("cifar100", "test", (0.5088, 0.4874, 0.4419), 100, 100),
    ("svhn", "test", (0.4524, 0.4525, 0.4690), 600, 5099),
    ("mini_imagenet", "test", (0.4697, 0.4458, 0.4017), 100, 600),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "split", "mean", "fewest", "most"), IMAGES)
def test_image_means_and_class_counts(name, split, mean, fewest, most):
    need(name, split)
    images, labels = load_images(name, split, DATA)
    assert images.shape == (len(labels), 3, 32, 32)
    counts = labels.bincount(minlength=CLASSES[name])
    assert fewest <= counts.min() <= counts.max() <= most
    # SVHN and mini-ImageNet may be subsets of about 10,000 images
    tolerance = 5e-5 if name.startswith("cifar") else 5e-3
    means, _ = mean_and_std(images)
    assert torch.allclose(means, torch.tensor(mean, dtype=torch.double), rtol=0, atol=tolerance)


# MD5 of the published binary files: labels, then red, green and blue, record by record
# (two training images of CIFAR-100 share one file name, so that copies differ in which comes first)
BINARY_MD5 = {
    ("cifar10", "test"): ("803d5f7f4d78ea53de84dbe85f74fb6d", ["label"]),
    ("cifar100", "test"): ("4499cfba6c016c1be1438163640a0898", ["coarse_label", "fine_label"]),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "split"), BINARY_MD5)
def test_order_labels_and_pixels_equal_the_published_files(name, split):
    need(name, split)
    expected, labels = BINARY_MD5[name, split]
    pixels = load_images(name, split, DATA)[0].flatten(1).numpy()
    bytes_before = [column(name, split, label).astype(np.uint8)[:, None] for label in labels]
    assert hashlib.md5(np.concatenate([*bytes_before, pixels], 1).tobytes()).hexdigest() == expected


@pytest.mark.slow
def test_cifar10_is_cached_and_its_model_trains(monkeypatch):
    need("cifar10")
    cifar("cifar10", data_dir=DATA)
    monkeypatch.setattr("sgpa.data.images.cifar._decode", None)  # would fail if called
    data = cifar("cifar10", augment=True, data_dir=DATA)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [45_000, 5_000, 10_000]
    assert data.train.targets.bincount().min() > 4_400
    model = Sgpa().build(ModelConfig(embedding=PatchConfig(mean=MEAN, std=STD)))
    loss = Sgpa().loss(model, next(data.train.batches(20, 0)), Progress(0.0, len(data.train)))
    loss.total.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    _, spread = mean_and_std(data.train.inputs)
    assert torch.allclose(spread, torch.tensor(STD, dtype=torch.double), atol=1e-3)


@pytest.mark.parametrize("split", ["train", "test"])
def test_imdb_is_balanced(split):
    need("imdb", split)
    assert np.bincount(column("imdb", split, "label")).tolist() == [12_500, 12_500]


def test_share_of_acceptable_sentences_in_cola():
    need("cola")
    inside = [column("cola", split, "label") for split in ("train", "validation_in_domain")]
    assert len(np.concatenate(inside)) == 9_078
    assert np.concatenate(inside).mean() == pytest.approx(0.7037, abs=5e-4)
    assert column("cola", "validation_out_of_domain", "label").mean() == pytest.approx(0.686, abs=1e-3)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_zinc_labels_and_sizes(split):
    need("zinc", split)
    y = np.array([row[0] for row in column("zinc", split, "y")])
    assert abs(y.mean()) < 0.1
    assert y.std() == pytest.approx(2.01, abs=0.05)
    assert column("zinc", split, "num_nodes").mean() == pytest.approx(23.1, abs=0.2)


@pytest.mark.slow
def test_kept_cifar10_model_reproduces_the_results():
    need("cifar10", "test")
    images, labels = (part[:200] for part in load_images("cifar10", "test", DATA))
    trained = open_trained(KEPT["cifar10"])
    p = trained.predictor.predict(images).probabilities.double()
    expected = kept("cifar10", method="sgpa", seed="0", evaluation="in-distribution")
    error = (expected["accuracy"] * (1 - expected["accuracy"]) / len(labels)) ** 0.5
    assert abs(metrics.accuracy(p, labels) - expected["accuracy"]) < 3 * error
    assert metrics.nll(p, labels) == pytest.approx(expected["nll"], abs=0.2)
