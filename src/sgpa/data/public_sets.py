"""The paper's data sets: the rows and columns each must have, its terms, and where it is published."""

from collections.abc import Mapping
from dataclasses import dataclass

from sgpa.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Source:
    """A public data set: the rows and columns it must have, its terms, and its official archive.

    `md5` is the published checksum of the archive at `url`, empty where none is published. Sets with an empty
    `url` cannot be fetched; `by_hand` gives the reason and what to do instead.
    """

    what: str
    rows: Mapping[str, int]  # of each split, whole
    columns: tuple[str, ...]
    terms: str
    url: str = ""
    md5: str = ""
    by_hand: str = ""
    partial: bool = False  # a subset is accepted: OOD sets are weighted to the full size

    @property
    def archive(self) -> str:
        """File name of the official archive, empty where there is none."""
        return self.url.rpartition("/")[2]

    def accepts(self, rows: int, expected: int) -> bool:
        """Whether `rows` is an accepted size of a split whose full size is `expected`."""
        return 1 <= rows <= expected if self.partial else rows == expected


CIFAR_TERMS = "cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009"
TORONTO = "https://www.cs.toronto.edu/~kriz"

SOURCES: Mapping[str, Source] = {
    "cifar10": Source(
        what="photographs 32 x 32, 10 classes",
        rows={"train": 50_000, "test": 10_000},
        columns=("img", "label"),
        terms=CIFAR_TERMS,
        url=f"{TORONTO}/cifar-10-binary.tar.gz",
        md5="c32a1d4ab5d03f1284b67883e8d87530",  # on the official page
    ),
    "cifar100": Source(
        what="photographs 32 x 32, 100 classes",
        rows={"train": 50_000, "test": 10_000},
        columns=("img", "fine_label", "coarse_label"),
        terms=CIFAR_TERMS,
        url=f"{TORONTO}/cifar-100-binary.tar.gz",
        md5="03b5dce01913d631647c71ecec9e9cb8",  # on the official page
    ),
    "svhn": Source(
        what="house numbers 32 x 32, out of distribution",
        rows={"test": 26_032},
        columns=("img", "label"),
        terms="non-commercial use; cite Netzer et al., Reading Digits in Natural Images, 2011",
        url="http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
        md5="eb5a983be6a315427106f1b164d9cef3",  # not on the official page; the one common loaders check
        partial=True,
    ),
    "mini_imagenet": Source(
        what="photographs 32 x 32, out of distribution",
        rows={"test": 60_000},
        columns=("img", "label"),
        terms="non-commercial research; cite Vinyals et al., Matching Networks, 2016",
        by_hand="it has no official download without pickles and no published checksum; bring a folder with "
        "one sub-folder of images per class: sgpa data prepare mini_imagenet --from FOLDER",
        partial=True,
    ),
    "imdb": Source(
        what="film reviews, positive or negative",
        rows={"train": 25_000, "test": 25_000},
        columns=("text", "label"),
        terms="cite Maas et al., Learning Word Vectors for Sentiment Analysis, 2011",
        url="https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
        md5="7c2ac02c03563afcf9b574c7e56c153a",  # not on the official page; the one common loaders check
    ),
    "cola": Source(
        what="sentences, acceptable or not",
        rows={"train": 8_551, "validation_in_domain": 527, "validation_out_of_domain": 516},
        columns=("sentence", "label", "idx", "source", "tokenized"),
        terms="research use, excerpts remain with their publishers; cite Warstadt et al., 2019",
        url="https://nyu-mll.github.io/CoLA/cola_public_1.1.zip",  # no checksum published; rows are counted
    ),
    "zinc": Source(
        what="molecules, constrained solubility",
        rows={"train": 10_000, "validation": 1_000, "test": 1_000},
        columns=("edge_index", "edge_attr", "node_feat", "num_nodes", "y"),
        terms="see the terms of ZINC; cite Irwin et al., 2012, and Dwivedi et al., 2023",
        by_hand="the benchmark is published as pickles, which are never opened, and without a checksum; "
        "bring Parquet files",
    ),
}


def source(name: str) -> Source:
    """The entry of a set in the table; an unknown name is an error that lists the known ones."""
    if name not in SOURCES:
        raise InputError(f"unknown data set {name!r}; known: {', '.join(SOURCES)}")
    return SOURCES[name]
