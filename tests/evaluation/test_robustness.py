import numpy as np
import pytest
import torch

from sgpa.core.errors import InputError
from sgpa.core.types import Classification
from sgpa.data import corruptions
from sgpa.data.corruptions import on_disk
from sgpa.evaluation.results import Results, Subject, no_cache
from sgpa.evaluation.robustness import evaluate_corruptions
from sgpa.experiments.runner.result_cache import FileCache

SUBJECT = Subject("cifar10", "kernel", "mle", 0)
TYPES = ("gaussian_noise", "contrast")


class Brightness:
    """Predicts class 1 for bright images."""

    def predict(self, images):
        p = images.float().mean((1, 2, 3)).div(255)
        probabilities = torch.stack([1 - p, p], 1)
        return Classification(probabilities, torch.special.entr(probabilities).sum(-1))


def data(n=12):
    labels = torch.arange(n) % 2
    noise = torch.randint(0, 60, (n, 3, 32, 32))
    return (noise + 150 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels


def test_every_type_and_the_mean_over_types_are_recorded():
    images, labels = data()
    calls = []
    results = evaluate_corruptions(
        Brightness(),
        SUBJECT,
        images,
        labels,
        types=TYPES,
        severities=(1, 5),
        on_progress=lambda *call: calls.append(call),
    )
    shifts = {r["shift"] for r in results.records}
    assert shifts == {
        f"cifar10-c-regenerated{kind}:{s}" for kind in ("", *(f"/{name}" for name in TYPES)) for s in (1, 5)
    }
    nll = {r["shift"]: r["value"] for r in results.records if r["metric"] == "nll"}
    single = [nll[f"cifar10-c-regenerated/{name}:5"] for name in TYPES]
    assert nll["cifar10-c-regenerated:5"] == pytest.approx(np.mean(single))
    assert calls[-1] == ("done", 4, 4)


def test_published_files_are_used_where_they_exist(tmp_path):
    images, labels = data(4)
    stacked = np.concatenate([images.permute(0, 2, 3, 1).numpy()] * 5)
    (tmp_path / "data" / "CIFAR-10-C").mkdir(parents=True)
    for name in TYPES:
        np.save(tmp_path / "data" / "CIFAR-10-C" / f"{name}.npy", stacked)
    published = on_disk.find("cifar10", images, tmp_path / "data")
    results = evaluate_corruptions(
        Brightness(), SUBJECT, images, labels, types=TYPES, severities=(2,), corrupted_files=published
    )
    assert {r["shift"] for r in results.records} == {
        "cifar10-c:2",
        *(f"cifar10-c/{name}:2" for name in TYPES),
    }
    with pytest.raises(InputError, match=r"holds uint8 .* expected uint8 \[15, 32, 32, 3\]"):
        on_disk.find("cifar10", images[:3], tmp_path / "data").load("contrast", 1)
    with pytest.raises(InputError, match=r"fog.npy is missing"):
        evaluate_corruptions(Brightness(), SUBJECT, images, labels, types=("fog",), corrupted_files=published)


def test_saved_corruptions_give_the_same_numbers(tmp_path):
    images, labels = data(6)
    told = []
    folder = on_disk.write(
        "cifar10", images, tmp_path, types=TYPES[:1], on_progress=lambda *line: told.append(line)
    )
    assert told == [("gaussian_noise", 0, 1), ("done", 1, 1)]
    kept = on_disk.find("cifar10", images, tmp_path)
    assert kept == on_disk.CorruptedFiles(folder, 6, regenerated=True)
    both = [
        # the first five of six, one type that was made before and one that was not
        evaluate_corruptions(Brightness(), SUBJECT, images[:5], labels[:5], types=TYPES, corrupted_files=made)
        for made in (None, kept)
    ]
    assert both[0] == both[1]

    before = (folder / "gaussian_noise.npy").stat().st_mtime_ns
    on_disk.write("cifar10", images, tmp_path, types=TYPES)
    assert (folder / "gaussian_noise.npy").stat().st_mtime_ns == before  # made once
    assert not list(folder.glob(".*.tmp"))


def test_corruptions_of_other_images_are_not_used(tmp_path):
    images, _ = data(4)
    folder = on_disk.write("cifar10", images, tmp_path, types=TYPES)
    assert on_disk.find("cifar10", 255 - images, tmp_path) is None
    assert on_disk.find("cifar100", images, tmp_path) is None
    on_disk.write("cifar10", 255 - images, tmp_path, types=TYPES[:1])
    assert on_disk.find("cifar10", images, tmp_path) is None
    assert sorted(path.name for path in folder.glob("*.npy")) == [
        "gaussian_noise.npy"
    ]  # those of other images are deleted
    (folder / "made.json").write_text("{")
    assert on_disk.find("cifar10", 255 - images, tmp_path) is None


def test_fifteen_types_are_the_default():
    assert len(corruptions.NAMES) == 15


def test_an_interrupted_evaluation_resumes(tmp_path):
    images, labels = data()
    calls = []

    class Interrupted(Brightness):
        def predict(self, images):
            calls.append(len(images))
            if len(calls) == 4:
                raise KeyboardInterrupt
            return super().predict(images)

    def evaluate_with(predictor, cache):
        return evaluate_corruptions(predictor, SUBJECT, images, labels, types=TYPES, cache=cache)

    file, about = tmp_path / "cell" / "tested.jsonl", {"evaluation": {"rows": None}, "data": "abc"}
    with pytest.raises(KeyboardInterrupt):
        evaluate_with(Interrupted(), FileCache(file, about))
    file.write_text(file.read_text() + '{"part": "cut sho')
    resumed = evaluate_with(Interrupted(), FileCache(file, about))
    assert len(calls) == 4 + 7  # ten sets, three of which were done
    assert resumed == evaluate_with(Brightness(), no_cache)

    evaluate_with(Interrupted(), FileCache(file, about | {"data": "of another kind"}))
    assert len(calls) == 4 + 7 + 10
    assert FileCache(file, about).parts == {}


def test_cached_results_are_exact(tmp_path):
    file = tmp_path / "tested.jsonl"
    exact = Results([{"metric": "nll", "value": 0.1 + 0.2}], [{"kind": "reliability", "data": [1 / 3, None]}])
    assert FileCache(file, {})("a", lambda: exact) == FileCache(file, {})("a", Results) == exact
