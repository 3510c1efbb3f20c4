"""Images: the embedded digits, CIFAR-10 and CIFAR-100, and a user's folder of images."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.data import Dataset
from sgpa.data.backbones.images import GRID, ImageBackbone
from sgpa.data.corruptions import on_disk
from sgpa.data.fetch import Progress
from sgpa.data.images import digits
from sgpa.data.images.augmentation import augmentation_for
from sgpa.data.images.cifar import OOD_SETS, PAPER_OOD_ROWS, SIZE, cifar, ood_images
from sgpa.data.images.folder import image_folder, list_images, read_images
from sgpa.evaluation.results import OodSet
from sgpa.experiments.tasks.base import (
    OOD_ROWS,
    Example,
    Task,
    check_split,
    split_note,
    split_user_rows,
)
from sgpa.experiments.tasks.display import show_images
from sgpa.experiments.tasks.made_inputs import plain_colours, random_pixels
from sgpa.inference.readers import ImageFeatureReader, ImageReader
from sgpa.models.config.embedding import LARGEST

SPLITS = ("fixed", "per-seed")
SHOWN_PIXELS = 96  # of an image on the report, where the model reads features
AUGMENTATIONS = ("none", "auto")
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


@checked
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


@checked
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


@checked
@dataclass(frozen=True, kw_only=True)
class ImageFolderConfig:
    """A folder with one sub-folder of images per class, resized to `size` pixels squared.

    The rows are split by `split_seed`, so that all runs of a folder are tested on the same rows; in a
    "stratified" `split` every class has its share of them. With `augment="auto"` training images are shifted,
    and mirrored where that keeps classes (`augmentation`). With a `backbone` the model reads hidden states of
    that network instead (`ImageBackbone`), which decides the size.
    """

    path: str
    size: int = 32
    split_seed: int = 0
    split: str = "random"
    augment: str = "none"
    backbone: str | None = None
    layer: int | None = None
    grid: int = GRID

    augmentation = ""  # results are shown beside no other augmentation

    def __post_init__(self) -> None:
        check_fields(
            "task",
            [
                ("size", self.size, 1 <= self.size <= LARGEST, f"1 to {LARGEST}"),
                check_split(self.split),
                ("augment", self.augment, self.augment in AUGMENTATIONS, ", ".join(AUGMENTATIONS)),
            ],
        )

    @property
    def dataset(self) -> str:
        """Name of the folder."""
        return Path(self.path).name

    def prepare(self, progress: Progress | None = None) -> None:
        """Compute and keep the features of all images, so that `load` finds them."""
        if self.backbone is not None:
            self._network().features(list_images(Path(self.path)).files, progress, keep=True)

    def load(self, seed: int, data_dir: Path | None = None) -> Task:
        """Read and split the images; channels are normalised by the rows that are not tested on."""
        del seed, data_dir
        if self.backbone is not None:
            return self._with_features()
        pixels, labels, classes = image_folder(self.path, self.size)  # [N, 3, size, size], [N]
        if len(classes) == 1:
            raise InputError(
                f"{self.path} has one class folder, {classes[0]}; at least two are needed, one per class"
            )
        splits, rows, test = split_user_rows(Dataset(pixels, labels), self.split_seed, self.split)
        names = [str(file.relative_to(self.path)) for file in list_images(Path(self.path)).files]
        if self.augment == "auto":
            augment = augmentation_for(splits.train.inputs, splits.train.targets)
            splits = replace(splits, train=replace(splits.train, augment=augment))
        channels = pixels[rows].float().div(255)
        mean, std = channels.mean((0, 2, 3)), channels.std((0, 2, 3)).clamp_min(1e-3)  # [3], [3]
        return Task(
            splits,
            sizes={"mean": tuple(mean.tolist()), "std": tuple(std.tolist())},
            outputs=len(classes),
            class_names=tuple(classes),
            reader=ImageReader(size=self.size),
            ood={
                "plain-colours": lambda: OodSet(plain_colours(pixels, OOD_ROWS)),
                "random-pixels": lambda: OodSet(random_pixels(pixels, OOD_ROWS)),
            },
            display=show_images(pixels[test], [names[i] for i in test.tolist()]),
            note=split_note(splits, self.split),
            content=" ".join(classes),
        )

    def _network(self) -> ImageBackbone:
        assert self.backbone is not None
        return ImageBackbone(name=self.backbone, layer=self.layer, grid=self.grid)

    def _with_features(self) -> Task:
        network, listed = self._network(), list_images(Path(self.path))
        features = network.features(listed.files, keep=True)  # [N, T, F]
        labels = torch.tensor(listed.labels)
        splits, _, test = split_user_rows(Dataset(features, labels), self.split_seed, self.split)
        shown = [listed.files[i] for i in test.tolist()]
        pixels = torch.from_numpy(read_images(shown, SHOWN_PIXELS)).permute(0, 3, 1, 2)  # [N, 3, h, w]
        classes = " ".join(listed.classes)
        return Task(
            splits,
            sizes={"width": features.values.shape[-1], "max_tokens": features.tokens},
            outputs=len(listed.classes),
            class_names=tuple(listed.classes),
            reader=ImageFeatureReader(backbone=network, digest=network.digest),
            display=show_images(pixels, [str(file.relative_to(self.path)) for file in shown]),
            note=f"{split_note(splits, self.split)} Inputs are features of the network {self.backbone}.",
            content=f"{classes} {float(features.values.double().sum()):.1f} {network.digest}",
        )
