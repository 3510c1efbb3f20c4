"""Images: the embedded digits, CIFAR-10 and CIFAR-100, and a user's folder of images."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torch import Tensor

from sgpa.core.errors import check_fields
from sgpa.data import Dataset
from sgpa.data.corruptions import on_disk
from sgpa.data.images import digits
from sgpa.data.images.cifar import OOD_SETS, PAPER_OOD_ROWS, SIZE, cifar, ood_images
from sgpa.data.images.folder import image_folder
from sgpa.evaluation.results import OodSet
from sgpa.experiments.tasks.base import Example, Task, split_note, split_rows
from sgpa.inference.readers import ImageReader
from sgpa.models.config.embedding import LARGEST

SPLITS = ("fixed", "per-seed")
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
    dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
    leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
    otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
    road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
    sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
    wardrobe whale willow_tree wolf woman worm
""".split()  # noqa: SIM905


@dataclass(frozen=True, kw_only=True)
class DigitsConfig:
    """A few hundred embedded digits; tested on noise, rotation and patches of photographs."""

    train: int = 300
    validation: int = 300

    dataset = "digits"
    augmentation = ""

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """The same split for every seed."""
        del seed, data_dir
        splits = digits.load(self.train, self.validation)
        shifts = {
            f"{name}:{strength}": partial(shift, splits.test, strength)
            for name, shift in digits.SHIFTS.items()
            for strength in digits.STRENGTHS
        }
        ood = {"photo-patches": lambda: OodSet(digits.photo_patches())}
        names = tuple(str(digit) for digit in range(10))
        examples = partial(_examples, splits.test)
        return Task(
            splits,
            class_names=names,
            reader=ImageReader(size=8, grey=True),
            shifts=shifts,
            ood=ood,
            examples=examples,
        )


def _examples(test: Dataset) -> list[Example]:
    """One digit clean, noisy and rotated, and an image that is not a digit."""
    one = test[:1]
    shown = {
        f"a clean {int(one.targets[0])}": one.inputs,
        "with noise": digits.noisy(one, 4).inputs,
        "turned": digits.rotated(one, 5).inputs,
        "no digit (photo)": digits.photo_patches()[:1],
    }
    return [
        Example(caption, images, digits.denormalise(images[0, 0]).tolist())
        for caption, images in shown.items()
        if isinstance(images, Tensor)
    ]


@dataclass(frozen=True, kw_only=True)
class CifarConfig:
    """CIFAR-10 or CIFAR-100, with or without 3-Augment.

    `split`: the 5,000 validation images are the same for all seeds ("fixed") or drawn anew ("per-seed").
    """

    name: str = "cifar10"
    augment: bool = False
    split: str = "fixed"

    def __post_init__(self) -> None:
        check_fields(
            "task",
            [
                ("name", self.name, self.name in OOD_SETS, ", ".join(OOD_SETS)),
                ("split", self.split, self.split in SPLITS, ", ".join(SPLITS)),
            ],
        )

    @property
    def per_seed(self) -> bool:
        """Whether every seed has a split of its own, so that seeds cannot be combined to an ensemble."""
        return self.split == "per-seed"

    @property
    def dataset(self) -> str:
        """Name of the data set in tables."""
        return self.name

    @property
    def augmentation(self) -> str:
        """Name of the augmentation in tables."""
        return "three-augment" if self.augment else "none"

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """45,000 / 5,000 / 10,000 images, corrupted test images, and three out-of-distribution sets."""
        split_seed = 0 if self.split == "fixed" else seed
        splits = cifar(self.name, augment=self.augment, data_dir=data_dir, split_seed=split_seed)
        ood = {name.replace("_", ""): partial(_ood_set, name, data_dir) for name in OOD_SETS[self.name]}
        names = CIFAR10 if self.name == "cifar10" else tuple(CIFAR100)
        reader = ImageReader(size=SIZE)
        images = splits.test.inputs
        assert isinstance(images, Tensor)
        corrupted = partial(on_disk.find, self.name, images, data_dir)
        return Task(splits, class_names=names, reader=reader, ood=ood, corrupted=corrupted)


def _ood_set(name: str, data_dir: Path | None) -> OodSet:
    images: Tensor = ood_images(name, data_dir)
    rows = PAPER_OOD_ROWS[name]
    return OodSet(images, None if len(images) == rows else rows)


@dataclass(frozen=True, kw_only=True)
class ImageFolderConfig:
    """A folder with one sub-folder of images per class, resized to `size` pixels squared.

    The rows are split by `split_seed`, so that all runs of a folder are tested on the same rows.
    """

    path: str
    size: int = 32
    split_seed: int = 0

    augmentation = ""

    def __post_init__(self) -> None:
        check_fields("task", [("size", self.size, 1 <= self.size <= LARGEST, f"1 to {LARGEST}")])

    @property
    def dataset(self) -> str:
        """Name of the folder."""
        return Path(self.path).name

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """Read and split the images; channels are normalised by the rows that are not tested on."""
        del seed, data_dir
        pixels, labels, classes = image_folder(self.path, self.size)  # [N, 3, size, size], [N]
        splits, rows = split_rows(Dataset(pixels, labels), self.split_seed)
        channels = pixels[rows].float().div(255)
        mean, std = channels.mean((0, 2, 3)), channels.std((0, 2, 3)).clamp_min(1e-3)  # [3], [3]
        return Task(
            splits,
            sizes={"mean": tuple(mean.tolist()), "std": tuple(std.tolist())},
            outputs=len(classes),
            class_names=tuple(classes),
            reader=ImageReader(size=self.size),
            note=split_note(splits),
            content=" ".join(classes),
        )
