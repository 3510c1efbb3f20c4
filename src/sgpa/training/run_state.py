"""What a training writes to its directory: log, checkpoint, best weights, finished model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from sgpa.core import provenance
from sgpa.core.errors import CheckpointError
from sgpa.core.files import checksum_of, load_exactly, read_json, read_tensors, write_json, write_tensors
from sgpa.methods import Method
from sgpa.models import ModelConfig, Transformer, saving
from sgpa.training import logs, process_group
from sgpa.training.checkpoints import SavedTraining, load_run, other, previous, save_run
from sgpa.training.fingerprint import Fingerprint
from sgpa.training.selection import Choice
from sgpa.training.steps.base import RunState

DIGESTS = "sha256"  # of the models, in finished.json
FINISHED = "finished.json"  # beside the model: which training it is of


class RunFiles:
    """The files of one training. Without a directory nothing is read or written.

    Only the first of several processes writes. `note` is stored in every checkpoint and in `finished.json`:
    the fingerprint, the epoch reached, the best scores so far.
    """

    def __init__(self, directory: Path | None, fingerprint: Fingerprint) -> None:
        self.directory, self.fingerprint = directory, fingerprint
        self.note: dict[str, Any] = {"epoch": 0} | ({} if directory is None else fingerprint.note)

    def finished(self, method: Method, config: ModelConfig, suffixes: Sequence[str]) -> Transformer | None:
        """The saved model of a finished training; None where it is not finished.

        A finished model of other settings or other data is refused: it is never trained over.
        """
        if self.directory is None or not (self.directory / FINISHED).exists():
            return None
        folders = [self.directory / f"model{suffix}" for suffix in suffixes]
        saved = [(folder / "config.json").exists() for folder in folders]
        note = read_json(self.directory / FINISHED, SavedTraining)
        if any(saved) and not self.fingerprint.matches(note):
            raise CheckpointError(
                f"{self.directory} holds a finished model trained {other(self.fingerprint, note)}"
            )
        if not all(saved):
            return None
        for folder in folders:
            digest = note.get(DIGESTS, {}).get(folder.name)
            if digest is not None and checksum_of(read_tensors(folder / saving.WEIGHTS)[0]) != digest:
                raise CheckpointError(
                    f"{folder / saving.WEIGHTS} is not the file that this training wrote; restore it, or "
                    f"delete {self.directory} to train again"
                )
        model = method.build(config)
        load_exactly(model, saving.load(folders[0])[1], folders[0])
        self.note |= note
        return model.eval()

    def resume(self, state: RunState) -> bool:
        """Restore the run from its checkpoint, if there is one."""
        if self.directory is None:
            return False
        path = self.directory / "checkpoint.safetensors"
        if not path.exists() and not previous(path).exists():
            return False
        self.note, random = load_run(path, state.model, state.optimiser, self.fingerprint)
        state.random = state.random | random  # a checkpoint of a machine without a GPU has no state for one
        return True

    def start(self, choices: Sequence[Choice]) -> None:
        """Make the log end where the run resumes, and read the best weights so far."""
        if process_group.from_leader(lambda: self.note) != self.note:
            raise CheckpointError(f"{self.directory} must be a folder that all machines share")
        if log := self._output("log.jsonl"):
            logs.cut(log, self.note["epoch"])
        for choice in choices:
            if self.directory is not None and self.note.get(choice.score) is not None:
                choice.weights = read_tensors(self.directory / f"{choice.score}.safetensors")[0]

    @property
    def last_checkpoint(self) -> str:
        """Where the training can resume, in words."""
        if self.directory is None:
            return "nothing was saved: fit was called without a directory"
        path = self.directory / "checkpoint.safetensors"
        return f"the last good checkpoint is {path}" if path.exists() else "no checkpoint was written yet"

    def log(self, line: dict[str, Any]) -> None:
        """Append the line of an epoch to the log."""
        self.note["epoch"] = line["epoch"]
        if path := self._output("log.jsonl"):
            logs.append(path, line)

    def checkpoint(self, state: RunState) -> None:
        """Write all that is needed to resume."""
        if path := self._output("checkpoint.safetensors"):
            save_run(path, state.model, state.optimiser, state.random, self.note)

    def keep_best(self, choice: Choice, score: float, weights: dict[str, Tensor]) -> None:
        """Store the weights of the best epoch so far."""
        self.note |= {choice.score: score, choice.epoch: self.note["epoch"]}
        choice.weights = weights
        if path := self._output(f"{choice.score}.safetensors"):
            write_tensors(path, weights)

    def finish(self, model: Transformer, choices: Sequence[Choice]) -> None:
        """Save the model that each method chose; at the end `model` is that of the first."""
        digests = {}
        for choice in reversed(choices):
            assert choice.weights is not None
            model.load_state_dict(choice.weights)
            if (path := self._output(f"model{choice.suffix}")) is not None:
                model.save_pretrained(path)
                digests[path.name] = checksum_of(read_tensors(path / saving.WEIGHTS)[0])
        if (path := self._output(FINISHED)) is not None:
            provenance.record(path.parent)
            write_json(path, self.note | {DIGESTS: digests})
            previous(path.with_name("checkpoint.safetensors")).unlink(missing_ok=True)

    def _output(self, name: str) -> Path | None:
        return None if self.directory is None or not process_group.leader() else self.directory / name
