"""A saved predictor: a folder that describes itself in `run.json`, opened without recipe or training data.

`run.json` holds the method as plain data, the folders of the members' models (relative to it), the rule of
trust and the names of the classes. Beside it, `reader.json` says how new inputs are read, and
`novelty.safetensors` how familiar inputs look.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import relpath
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgpa.core.arguments import checked, fits
from sgpa.core.config import from_plain, to_plain
from sgpa.core.errors import CheckpointError, ConfigError, shown
from sgpa.core.files import copy_all, read_json, read_tensors, write_json
from sgpa.core.names import METHOD_NAMES
from sgpa.inference import readers
from sgpa.inference.answers import Trained
from sgpa.inference.novelty import NoveltyOf
from sgpa.inference.trust import SavedRule, TrustRule
from sgpa.methods import NOTHING, Method, Tensors, predictor_of
from sgpa.methods.kinds import KINDS
from sgpa.models import Transformer, saving
from sgpa.models.saving import WEIGHTS

FILE, RECIPE = "run.json", "recipe.json"
COMBINED = "calibrated-together.safetensors"  # what an ensemble's combination needs
NOVELTY = "novelty.safetensors"  # statistics of familiar inputs
EXPORTED = ("method", "attention", "seed", "arrays")  # entries of run.json that an exported model keeps
CELL = ("method", "attention", "seed")  # those that every cell of a run has


class SavedMember(TypedDict):
    """A member in `run.json`; paths are relative to it."""

    model: str
    calibrated: str | None


class SavedValues(TypedDict):
    """What is read of the settings in `recipe.json`."""

    methods: NotRequired[list[str]]
    task: NotRequired[dict[str, Any]]


class SavedRecipe(TypedDict):
    """What is read of `recipe.json`."""

    values: NotRequired[SavedValues]


class SavedRun(TypedDict):
    """`run.json`."""

    threshold: float | None
    trust: NotRequired[SavedRule]
    predictor: NotRequired[dict[str, Any]]
    members: NotRequired[list[SavedMember]]
    classes: list[str]
    method: NotRequired[str]
    attention: NotRequired[str]
    seed: NotRequired[int]
    trainings: NotRequired[list[str]]
    data: NotRequired[dict[str, str]]
    test_rows: NotRequired[str]
    arrays: NotRequired[bool]  # trained by `sgpa.fit`, without a reader
    samples: NotRequired[int]  # of `Fitted.with_samples`


@dataclass(frozen=True)
class Member:
    """One trained model of a predictor: its folder, and the file of its calibration."""

    model: Path
    calibrated: Path | None = None


@dataclass(frozen=True)
class SavedPredictor:
    """A finished run on disk."""

    method: Method
    members: tuple[Member, ...]
    rule: TrustRule
    classes: tuple[str, ...]
    reader: Path  # folder with reader.json
    combined: Path | None = None  # file with what an ensemble's combination needs
    novelty: Path | None = None  # file with the statistics of familiar inputs
    metadata: Mapping[str, Any] = field(default_factory=dict)  # run.json

    def read(self, device: str = "cpu") -> tuple[list[Transformer], list[Tensors], Tensors, NoveltyOf | None]:
        """The models, their calibrations, what an ensemble's combination needs, and the inputs' novelty."""
        models: list[Transformer] = []
        calibrated: list[Tensors] = []
        for member in self.members:
            model = Transformer.from_pretrained(member.model).to(device)
            tensors = {} if member.calibrated is None else read_tensors(member.calibrated)[0]
            calibrated.append({name: value.to(device) for name, value in tensors.items()})
            saving.set_scale(model, calibrated[-1])
            models.append(model)
        combined = NOTHING if self.combined is None else read_tensors(self.combined)[0]
        novelty = NoveltyOf.read(models[0], self.novelty)
        self._check(models, novelty)
        return models, calibrated, combined, novelty

    @property
    def reads_files(self) -> bool:
        """Whether it has a reader; what `sgpa.fit` trained on arrays has none."""
        return not self.metadata.get("arrays", False)

    def open(self, device: str = "cpu") -> Trained:
        """Read models, calibration and reader."""
        if not self.reads_files:
            raise CheckpointError(
                f"{self.reader} was trained on arrays and reads no files; in Python: "
                f"sgpa.load({str(self.reader)!r}).predict(array)"
            )
        models, calibrated, combined, novelty = self.read(device)
        predictor = predictor_of(self.method, models, calibrated, combined)
        reader, embedding = readers.load(self.reader), models[0].config.embedding
        return Trained(predictor, reader, self.rule, self.classes, novelty, embedding)

    def _check(self, models: Sequence[Transformer], novelty: NoveltyOf | None) -> None:
        """Raise unless models, classes and rule belong together."""
        values = models[0].config.likelihood != "categorical"
        outputs = 0 if values else models[0].config.outputs
        if len(self.classes) not in (0, outputs):
            named = "a model that predicts numbers" if values else f"a model with {outputs} classes"
            raise CheckpointError(f"{self.reader / FILE} names {len(self.classes)} classes, for {named}")
        if novelty is None and self.rule.max_novelty < 1:
            raise CheckpointError(f"{self.reader / NOVELTY} is missing: the rule of trust needs it")

    def export(self, folder: Path) -> Path:
        """Copy what predictions need into a new folder, which describes itself; returns the folder."""
        members: list[Member] = []
        pairs: list[tuple[Path, Path]] = []
        for i, member in enumerate(self.members):
            model = folder / ("model" if len(self.members) == 1 else f"model-{i}")
            pairs += [(member.model / name, model / name) for name in ("config.json", WEIGHTS)]
            calibrated = None
            if member.calibrated is not None:
                calibrated = folder / f"calibrated-{i}.safetensors"
                pairs.append((member.calibrated, calibrated))
            members.append(Member(model, calibrated))
        pairs += [(self.reader / name, folder / name) for name in _reader_files(self.reader)]
        pairs += [] if self.combined is None else [(self.combined, folder / COMBINED)]
        pairs += [] if self.novelty is None else [(self.novelty, folder / NOVELTY)]
        for source, _ in pairs:
            inside(self.reader, str(source.resolve()))
        copy_all(pairs, folder)
        kept = {name: self.metadata[name] for name in EXPORTED if name in self.metadata}
        write_json(folder / FILE, kept | describe(folder, self.method, members, self.rule, self.classes))
        return folder


def describe(
    folder: Path, method: Method, members: Iterable[Member], rule: TrustRule, classes: Sequence[str]
) -> dict[str, Any]:
    """The entries of `run.json` that `read_saved` needs; paths are relative to `folder`."""

    def relative(path: Path | None) -> str | None:
        return None if path is None else Path(relpath(path, folder)).as_posix()

    return {
        "predictor": to_plain(method),
        "members": [{"model": relative(m.model), "calibrated": relative(m.calibrated)} for m in members],
        "threshold": rule.to_json()["max_uncertainty"],  # all that version 0.1 reads
        "trust": rule.to_json(),
        "classes": list(classes),
    }


def read_metadata(folder: Path) -> dict[str, Any]:
    """`run.json` of a folder, checked."""
    file = folder / FILE
    if not file.is_file():
        raise CheckpointError(
            f"{folder} holds no finished run (there is no run.json); finish its training with `sgpa train`"
        )
    try:
        metadata: dict[str, Any] = read_json(file, SavedRun)
    except CheckpointError as error:
        raise CheckpointError(f"{file} does not describe a run ({error})") from None
    return metadata


def describes_itself(metadata: Mapping[str, Any]) -> bool:
    """Whether a `run.json` names method and models; version 0.1 did not write them."""
    return "predictor" in metadata and "members" in metadata


@checked
def read_saved(
    folder: Path, metadata: Mapping[str, Any] | None = None, kinds: Mapping[str, type] = KINDS
) -> SavedPredictor:
    """The predictor that a folder describes.

    Args:
        folder: A finished cell of a run, or an exported model.
        metadata: Its `run.json`, if it was read already.
        kinds: The classes that its method may be made of, for methods outside this package.

    >>> read_saved(Path("models/photos")).open().classes  # doctest: +SKIP
    """
    metadata = read_metadata(folder) if metadata is None else metadata
    if not describes_itself(metadata):
        raise CheckpointError(f"{folder / FILE} names no method; it was written by sgpa 0.1")
    if not metadata["members"]:
        raise CheckpointError(f"{folder / FILE} names no model; it was damaged")
    members = [
        Member(
            inside(folder, m["model"]), None if m["calibrated"] is None else inside(folder, m["calibrated"])
        )
        for m in metadata["members"]
    ]
    combined, novelty = folder / COMBINED, folder / NOVELTY
    method = from_plain(metadata["predictor"], kinds, str(folder / FILE))
    if not fits(method, Method):
        raise CheckpointError(f"{folder / FILE}: {type(method).__name__} is not a method; it was damaged")
    try:
        rule = TrustRule.from_json(metadata)
    except ConfigError as error:
        raise CheckpointError(f"{folder / FILE}: {error}; it was damaged") from None
    return SavedPredictor(
        method=method,
        members=tuple(members),
        rule=rule,
        classes=tuple(metadata["classes"]),
        reader=folder,
        combined=combined if combined.exists() else None,
        novelty=novelty if novelty.exists() else None,
        metadata=metadata,
    )


def inside(folder: Path, name: str) -> Path:
    """A path that a file in a folder names; it must not leave the run, or the exported model.

    Symbolic links count with where they lead.
    """
    cell = folder.resolve()
    root = cell.parents[1] if cell.parent.name == "cells" and (cell.parents[1] / RECIPE).exists() else cell
    try:
        leaves = not (cell / name).resolve().is_relative_to(root)
    except (OSError, ValueError, RuntimeError):  # no path, or links in a circle
        leaves = True
    if leaves:
        raise CheckpointError(f"{folder / FILE} names {shown(name)}, which is outside of {root}")
    return folder / name


def _reader_files(folder: Path) -> list[str]:
    return [name for name in (readers.FILE, readers.TOKENIZER) if (folder / name).exists()]


@dataclass(frozen=True)
class Cell:
    """A finished cell or an exported model: its folder and its `run.json`."""

    folder: Path
    metadata: dict[str, Any]


def finished_cells(run: Path) -> list[Cell]:
    """The finished cells that a folder means: all of a run folder, or the one that it is itself.

    Cells of a run folder are in the order of the recipe's methods, then by seed.
    """
    if not run.is_dir():
        raise CheckpointError(f"{run} is not a folder; name the folder of a run, such as runs/photos")
    if not (run / RECIPE).exists():
        return [Cell(run, read_metadata(run))]
    folders = sorted(file.parent for file in (run / "cells").glob("*/run.json"))
    if not folders:
        raise CheckpointError(f"{run} holds no finished run yet; train one with `sgpa train`")
    methods = _methods(run / RECIPE) if len(folders) > 1 else []

    def order(cell: Cell) -> tuple[Any, ...]:
        method = cell.metadata["method"]
        rank = methods.index(method) if method in methods else len(methods)
        return cell.metadata["attention"], rank, method, cell.metadata["seed"]

    cells = [Cell(folder, read_metadata(folder)) for folder in folders]
    for cell in cells:
        if absent := [name for name in CELL if name not in cell.metadata]:
            raise CheckpointError(f"{cell.folder / FILE}: {absent[0]} is missing; it was damaged")
    return sorted(cells, key=order)


def _methods(recipe: Path) -> list[str]:
    """The methods of a recipe.json, in its order; version 0.1 did not write them."""
    return list(read_json(recipe, SavedRecipe).get("values", {}).get("methods", METHOD_NAMES))
