import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from sgpa.core.errors import InputError
from sgpa.core.files import write_tensors
from sgpa.data.images.augment import three_augment
from sgpa.data.images.cifar import OOD_SETS, PAPER_OOD_ROWS, cifar, load_images, ood_images
from sgpa.data.images.folder import image_folder, read_images
from sgpa.inference.readers import ImageReader

pytestmark = pytest.mark.usefixtures("own_cache")


def encoded(pixels: np.ndarray | Image.Image, form: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(stream, form)
    return stream.getvalue()


def put(
    root: Path,
    name: str,
    split: str,
    images: list,
    labels: list,
    column: str = "label",
    at: str = "00000-of-00001",
) -> Path:
    (root / name).mkdir(parents=True, exist_ok=True)
    file = root / name / f"{split}-{at}.parquet"
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    img = pa.array([{"bytes": content, "path": None} for content in images], kind)
    pq.write_table(pa.table({"img": img, column: labels}), file)
    return file


def noise(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def tiny(root: Path, name: str = "cifar10", column: str = "label") -> np.ndarray:
    """100 training images in two files and 20 test images; the red value of a corner is the row."""
    pixels = noise(120)
    pixels[:, 0, 0, 0] = np.arange(120)
    content = [encoded(p) for p in pixels]
    labels = [i % 10 for i in range(120)]
    put(root, name, "train", content[:60], labels[:60], column, "00000-of-00002")
    put(root, name, "train", content[60:100], labels[60:100], column, "00001-of-00002")
    put(root, name, "test", content[100:], labels[100:], column)
    return pixels


# --- Parquet to tensors


def test_pixels_labels_and_order(tmp_path):
    pixels = tiny(tmp_path)
    images, labels = load_images("cifar10", "train", tmp_path)
    assert (images.dtype, labels.dtype) == (torch.uint8, torch.int64)
    assert torch.equal(images, torch.from_numpy(pixels[:100]).permute(0, 3, 1, 2))
    assert images.is_contiguous()
    assert labels.tolist() == [i % 10 for i in range(100)]


def test_decoded_images_are_cached_until_a_file_changes(tmp_path, monkeypatch):
    tiny(tmp_path)
    first = load_images("cifar10", "test", tmp_path)
    cached = list((tmp_path / "xdg" / "sgpa" / "decoded").iterdir())
    assert len(cached) == 1
    with monkeypatch.context() as patch:
        patch.setattr("sgpa.data.images.cifar._decode", None)  # would fail if called
        again = load_images("cifar10", "test", tmp_path)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
        again[0].zero_()  # must not change the cache
        assert torch.equal(load_images("cifar10", "test", tmp_path)[0], first[0])
    file = put(tmp_path, "cifar10", "test", [encoded(p) for p in noise(5, 1)], [0] * 5)
    assert len(load_images("cifar10", "test", tmp_path)[1]) == 5
    os.utime(file, (1, 1))
    monkeypatch.setattr("sgpa.data.images.cifar._decode", None)
    with pytest.raises(TypeError):
        load_images("cifar10", "test", tmp_path)


def test_damaged_cache_is_replaced(tmp_path):
    tiny(tmp_path)
    first = load_images("cifar10", "test", tmp_path)
    first = first[0].clone(), first[1].clone()
    (cached,) = (tmp_path / "xdg" / "sgpa" / "decoded").iterdir()
    content = cached.read_bytes()
    cached.unlink()
    cached.write_bytes(content[: len(content) // 2])
    assert torch.equal(load_images("cifar10", "test", tmp_path)[0], first[0])
    assert cached.stat().st_size == len(content)
    write_tensors(cached, {"images": first[0][..., :5], "labels": first[1]})
    assert torch.equal(load_images("cifar10", "test", tmp_path)[0], first[0])


def test_images_load_without_a_writable_cache(tmp_path, monkeypatch, caplog):
    tiny(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(load_images("cifar10", "test", tmp_path)[1]) == 20
    assert "not cached" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            encoded(Image.new("RGB", (1, 1))),
            r"image of 1 x 1 pixels and 3 channels \(RGB\), expected 32 x 32 RGB",
        ),
        (encoded(Image.new("L", (32, 32))), r"1 channels \(L\)"),
        (encoded(Image.new("RGBA", (32, 32))), r"4 channels \(RGBA\)"),
        (b"\x80\x04K\x01.", "no image format Pillow knows"),
        (encoded(noise(1)[0])[:1500], "image cannot be read"),
        (None, "no image"),
    ],
)
def test_bad_images_are_named_with_file_and_row(tmp_path, content, message):
    good = [encoded(p) for p in noise(3)]
    put(tmp_path, "cifar10", "test", [*good, content], [0, 1, 2, 3])
    with pytest.raises(
        InputError, match=rf"test-00000-of-00001.parquet, row 3: .*{message}.*; replace the file"
    ):
        load_images("cifar10", "test", tmp_path)
    assert not list((tmp_path / "xdg").rglob("*")), "nothing is cached"


def test_five_channels_are_refused(tmp_path):
    """No image format of the hub has five; raw arrays in the column do."""
    (tmp_path / "cifar10").mkdir()
    file = tmp_path / "cifar10" / "test-00000-of-00001.parquet"
    pq.write_table(pa.table({"img": [[0] * 5 * 32 * 32], "label": [0]}), file)
    with pytest.raises(InputError, match=rf"{file.name}: column img is list<.*expected {{bytes, path}}"):
        load_images("cifar10", "test", tmp_path)


@pytest.mark.parametrize("label", [10, -1, None])
def test_bad_labels_are_named_with_file_and_row(tmp_path, label):
    put(tmp_path, "cifar10", "test", [encoded(p) for p in noise(2)], [0, label])
    with pytest.raises(InputError, match=rf"row 1: label={label} \(allowed: 0..9\)"):
        load_images("cifar10", "test", tmp_path)


def test_unknown_names(tmp_path):
    with pytest.raises(InputError, match="unknown image set 'imdb'; known: cifar10, cifar100, svhn"):
        load_images("imdb", "test", tmp_path)
    with pytest.raises(InputError, match=r"known: cifar10, cifar100$"):
        cifar("svhn", data_dir=tmp_path)


# --- splits


def test_split_depends_on_its_seed_and_covers_all_rows(tmp_path):
    tiny(tmp_path)
    data, again, other = (cifar("cifar10", data_dir=tmp_path, split_seed=s) for s in (0, 0, 1))
    assert [len(part) for part in (data.train, data.validation, data.test)] == [90, 10, 20]
    rows = torch.cat([data.train.inputs, data.validation.inputs])[:, 0, 0, 0]
    assert rows.sort().values.tolist() == list(range(100))
    assert data.test.inputs[:, 0, 0, 0].tolist() == list(range(100, 120))
    assert torch.equal(data.validation.inputs, again.validation.inputs)
    assert not torch.equal(data.validation.inputs, other.validation.inputs)
    for part in (data.train, data.validation, data.test):
        assert (part.inputs[:, 0, 0, 0] % 10 == part.targets).all()
        assert part.inputs.dtype == torch.uint8


def test_only_shuffled_training_batches_are_augmented(tmp_path):
    tiny(tmp_path)
    plain, data = (cifar("cifar10", augment=a, data_dir=tmp_path) for a in (False, True))
    assert data.train.augment is three_augment
    assert plain.train.augment is data.validation.augment is data.test.augment is None
    batch, same = (next(d.train.batches(50, seed=3)) for d in (data, plain))
    assert torch.equal(batch.targets, same.targets)
    assert not torch.equal(batch.inputs, same.inputs)
    assert torch.equal(next(data.train.batches(50)).inputs, plain.train.inputs[:50])


def test_cifar100_has_fine_labels(tmp_path):
    tiny(tmp_path, "cifar100", "fine_label")
    assert cifar("cifar100", data_dir=tmp_path).test.targets.max() == 9


def test_ood_sets_and_their_sizes(tmp_path):
    tiny(tmp_path, "svhn")
    assert ood_images("svhn", tmp_path).shape == (20, 3, 32, 32)
    for name, others in OOD_SETS.items():
        assert name not in others
        assert all(PAPER_OOD_ROWS[other] >= 10_000 for other in others)


# --- folders of images


def save(file: Path, image: Image.Image, **options: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    image.save(file, **options)
    return file


def test_folder_with_every_kind_of_image(tmp_path):
    red = Image.new("RGB", (40, 40), (200, 10, 10))
    save(tmp_path / "b" / "2.png", red)
    save(tmp_path / "b" / "10.PNG", Image.new("L", (40, 40), 7))
    save(tmp_path / "b" / "3.png", Image.new("RGBA", (40, 40), (0, 0, 0, 0)))
    save(tmp_path / "a" / "deep" / "x.webp", red, lossless=True)
    save(tmp_path / "a" / "y.gif", red.convert("P"))
    save(tmp_path / "a" / "z.png", Image.fromarray(np.full((40, 40), 0x8000, np.uint16)))
    save(tmp_path / "c" / "w.tif", Image.new("CMYK", (40, 40), (0, 255, 255, 0)))
    (tmp_path / "a" / ".hidden").write_text("x")
    (tmp_path / "a" / "Thumbs.db").write_text("x")
    (tmp_path / ".git").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    images, labels, classes = image_folder(tmp_path)
    assert classes == ["a", "b", "c"]
    assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert (images.dtype, images.shape) == (torch.uint8, (7, 3, 32, 32))
    expected = {0: (200, 10, 10), 2: (128,) * 3, 3: (7,) * 3, 4: (200, 10, 10), 5: (255,) * 3}
    for row, colour in expected.items():
        assert tuple(images[row, :, 16, 16].tolist()) == colour, row


def test_images_are_centre_cropped_and_rotated_by_exif(tmp_path):
    wide = np.zeros((20, 60, 3), np.uint8)
    wide[:, 20:40] = [0, 0, 255]
    wide[:10, 20:40] = [255, 0, 0]  # red above blue in the middle, black beside it
    save(tmp_path / "a" / "1.png", Image.fromarray(wide))
    turned = Image.fromarray(wide)
    exif = turned.getexif()
    exif[0x0112] = 3  # upside down
    save(tmp_path / "a" / "2.png", turned, exif=exif)
    images, *_ = image_folder(tmp_path, size=20)
    assert torch.equal(images[0], torch.from_numpy(wide[:, 20:40].copy()).permute(2, 0, 1))
    assert torch.equal(images[1], images[0].flip(1, 2))


def test_images_are_resized_to_any_size(tmp_path):
    save(tmp_path / "a" / "1.png", Image.fromarray(noise(1)[0]))
    for size in (1, 8, 32, 64):
        assert image_folder(str(tmp_path), size)[0].shape == (1, 3, size, size)
    with pytest.raises(InputError, match="size=0"):
        image_folder(tmp_path, 0)


def test_bad_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match="nowhere is not a folder"):
        image_folder(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no class folders; put the images"):
        image_folder(tmp_path)
    save(tmp_path / "cat" / "1.png", Image.new("RGB", (8, 8)))
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / ".DS_Store").write_text("x")
    with pytest.raises(InputError, match=r"class folder .*dog has no image"):
        image_folder(tmp_path)
    file = save(tmp_path / "dog" / "1.png", Image.new("RGB", (1, 1)))
    with pytest.raises(InputError, match=r"dog/1.png is 1 x 1 pixels"):
        image_folder(tmp_path)
    for content, reason in ((b"hello", "no image format Pillow knows"), (encoded(noise(1)[0])[:900], r".*")):
        file.write_bytes(content)
        with pytest.raises(InputError, match=rf"dog/1.png cannot be read as an image \({reason}\); replace"):
            image_folder(tmp_path)
    file.unlink()
    save(tmp_path / "dog" / "f.tif", Image.fromarray(np.zeros((4, 4), np.float32)))
    with pytest.raises(InputError, match=r"dog/f.tif cannot be read as an image \(mode F"):
        image_folder(tmp_path)


@pytest.mark.parametrize("parts", [("test", "train"), ("Valid", "train"), ("fold-1", "fold-2")])
def test_a_folder_of_splits_is_no_folder_of_classes(tmp_path, parts):
    for part in parts:
        for name in ("cat", "dog"):
            save(tmp_path / part / name / "1.png", Image.new("RGB", (8, 8)))
    first = tmp_path / ("train" if "train" in parts else "fold-1")
    with pytest.raises(InputError) as error:
        image_folder(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}: the folders {', '.join(parts)} are not read as classes; their folders look like the "
        f"classes (cat, dog): name one, as in `sgpa train images {first}`, or move the images of each class "
        "directly into its folder"
    )
    assert image_folder(first)[2] == ["cat", "dog"]


def test_classes_may_have_folders_of_their_own_and_be_called_train(tmp_path):
    for name in ("car/red", "car/blue", "train/steam", "train/fast"):
        save(tmp_path / name / "1.png", Image.new("RGB", (8, 8)))
    assert image_folder(tmp_path)[2] == ["car", "train"]
    for name in ("train/1.png", "test/1.png"):
        save(tmp_path / "flat" / name, Image.new("RGB", (8, 8)))
    with pytest.raises(InputError, match="test, train are not read as classes; put the images of each class"):
        image_folder(tmp_path / "flat")


def test_stray_files_are_skipped_with_one_line_each_kind(tmp_path, caplog):
    for name in ("cat", "dog"):
        save(tmp_path / name / "1.png", Image.new("RGB", (8, 8)))
    (tmp_path / "list.txt").write_text("x")
    (tmp_path / "cat" / "README.md").write_text("x")
    (tmp_path / "dog" / "Thumbs.db").write_text("x")
    (tmp_path / "__MACOSX").mkdir()
    images, _, classes = image_folder(tmp_path)
    assert (len(images), classes) == (2, ["cat", "dog"])
    image_folder(tmp_path)  # said once
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "skipped list.txt, outside the class folders",
        "skipped cat/README.md, in no image format that is read",
    ]


def test_a_class_whose_images_have_no_format_that_is_read_says_so(tmp_path, caplog):
    save(tmp_path / "cat" / "1.png", Image.new("RGB", (8, 8)))
    (tmp_path / "cat" / "list.pdf").write_text("Pillow only writes these")
    (tmp_path / "dog").mkdir()
    (tmp_path / "dog" / "phone.heic").write_text("x")
    with pytest.raises(InputError, match=r"dog has phone.heic, but no image in a format that is read; conv"):
        image_folder(tmp_path)
    save(tmp_path / "dog" / "1.png", Image.new("RGB", (8, 8)))
    assert len(image_folder(tmp_path)[0]) == 2
    assert "skipped cat/list.pdf, dog/phone.heic, in no image format that is read" in caplog.text


@pytest.mark.parametrize(("kind", "low", "high"), [(np.uint16, 3, 255), (np.int32, -5, 9000)])
def test_sixteen_bits_that_hold_smaller_numbers_are_refused_instead_of_read_as_black(
    tmp_path, kind, low, high
):
    image = Image.fromarray(np.array([[low, high], [low, high]], kind))
    file = save(tmp_path / "1.tif", image)
    with pytest.raises(InputError, match=rf"16 bits, but values from {low} to {high} instead of 65535"):
        read_images([file], 2)
    with pytest.raises(InputError, match=r"image 2 cannot be read \(it has 16 bits"):
        ImageReader().read_pictures([Image.new("L", (2, 2)), image])
    black = save(tmp_path / "black.tif", Image.fromarray(np.zeros((4, 4), np.uint16)))
    assert not read_images([black], 2).any()


def test_twelve_bits_in_sixteen_are_said_to_be_read_as_nearly_black(tmp_path, caplog):
    full = save(tmp_path / "full" / "1.png", Image.fromarray(np.full((4, 4), 4095 * 16, np.uint16)))
    part = save(tmp_path / "part" / "1.png", Image.fromarray(np.full((4, 4), 4095, np.uint16)))
    assert [int(pixels.max()) for pixels in read_images([full, part], 4)] == [255, 15]
    (message,) = caplog.messages
    assert message.startswith(f"{part.parent}: images of 16 bits that use less than a sixteenth")


def test_all_images_that_cannot_be_read_are_counted(tmp_path):
    save(tmp_path / "cat" / "good.png", Image.new("RGB", (8, 8)))
    for i in range(5):
        (tmp_path / "cat" / f"{i}.png").write_text("hello")
    with pytest.raises(InputError) as error:
        image_folder(tmp_path)
    why = "cannot be read as an image (no image format Pillow knows); replace or delete it"
    said = [f"{tmp_path}/cat/{i}.png {why}" for i in range(3)]
    assert str(error.value) == "; ".join([*said, "and 2 more files"])


def test_pipes_in_a_folder_are_skipped_and_refused_by_name(tmp_path):
    save(tmp_path / "cat" / "1.png", Image.new("RGB", (8, 8)))
    os.mkfifo(tmp_path / "cat" / "2.png")
    assert len(image_folder(tmp_path)[0]) == 1
    with pytest.raises(InputError, match=r"2.png is not a regular file"):
        read_images([tmp_path / "cat" / "2.png"], 8)


@pytest.mark.parametrize("bad", [b"cat/\xff.png", b"\xff/1.png"])
def test_names_that_are_not_utf8_are_refused_in_printable_words(tmp_path, bad):
    try:
        save(tmp_path / os.fsdecode(bad), Image.new("RGB", (8, 8)))
    except OSError:
        pytest.skip("the file system has UTF-8 names only")
    with pytest.raises(InputError, match=r"\\xff.*: the name is not valid UTF-8; rename") as error:
        image_folder(tmp_path)
    str(error.value).encode("utf-8")
