"""Train a bidirectional language model from scratch on any text."""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from sgpa.core.arguments import fits
from sgpa.core.errors import CheckpointError, InputError, NumericalError, check_fields
from sgpa.core.files import load_exactly, read_tensors, write_tensors
from sgpa.core.precision import matrix_units
from sgpa.core.saved_tensors import check_tensors
from sgpa.data.dataset import Dataset
from sgpa.data.language_model.model import ElmoConfig, ElmoModel
from sgpa.data.language_model.next_word import MARKS, NextWord
from sgpa.data.texts.cola import Sentence, characters, sentences

CHECKPOINT = "language-model.safetensors"
SAVE_EVERY = 60.0  # seconds between checkpoints
REPORT_EVERY = 1.0  # seconds between two reports


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe:
    """Settings of the training; the defaults suit the 50,000 reviews of IMDB.

    The `vocabulary` most frequent words are predicted, all others as one unknown word. The softmax is
    estimated with `negatives` sampled words (None: the full softmax). `minutes` limits the training; the
    learning rate then falls to `final_lr` in that time.
    """

    vocabulary: int = 30_000
    negatives: int | None = 2048
    epochs: int = 10
    batch_size: int = 256  # sentences; a GPU reads 1,024 in hardly more time
    max_words: int = 60  # longer sentences are cut into pieces
    lr: float = 2e-3
    final_lr: float = 1e-5
    gradient_norm: float = 1.0
    held_out: int = 1000  # sentences for the reported perplexity
    minutes: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        n, minutes = self.negatives, self.minutes
        check_fields(
            "language model training",
            [
                ("vocabulary", self.vocabulary, self.vocabulary > len(MARKS), f"above {len(MARKS)}"),
                ("negatives", n, n is None or n >= 1, "1 or more, or None"),
                ("lr", self.lr, 0 < self.final_lr <= self.lr, f"final_lr={self.final_lr} or more, above 0"),
                ("gradient_norm", self.gradient_norm, self.gradient_norm > 0, "above 0"),
                ("held_out", self.held_out, self.held_out >= 1, "1 or more"),
                ("minutes", minutes, minutes is None or minutes > 0, "above 0, or None"),
                *(
                    (name, getattr(self, name), getattr(self, name) >= 1, "1 or more")
                    for name in ("epochs", "batch_size", "max_words")
                ),
            ],
        )


@dataclass(frozen=True)
class LanguageProgress:
    """A report: the step, the loss in nats per word, and the held-out perplexity."""

    step: int
    steps: int
    loss: float
    perplexity: float | None  # after every epoch and at the end, with the full softmax
    seconds: float


Report = Callable[[LanguageProgress], None]


@dataclass(frozen=True)
class Corpus:
    """Sentences as word ids between marks, the words by frequency, and the characters of each word."""

    data: Dataset  # ids [N, T] padded with 0; targets are the lengths
    words: tuple[str, ...]  # the marks first; as an input, word 0 is padding
    spelled: Tensor  # [V, C]
    digest: str

    def log_frequency(self, vocabulary: int) -> Tensor:
        """log p of each of the first words; all other words count as word 0: [vocabulary]."""
        assert isinstance(self.data.inputs, Tensor)
        real = torch.arange(self.data.inputs.shape[1]) < self.data.targets.unsqueeze(1)
        counts = self.data.inputs[real].long().bincount(minlength=len(self.words)).double()
        rare = counts[vocabulary:].sum()
        counts = counts[:vocabulary].index_fill(0, torch.tensor(0), float(rare)).clamp(min=1)
        return (counts / counts.sum()).log().float()

    @staticmethod
    def of(texts: Sequence[str | Sentence], max_words: int, max_characters: int) -> "Corpus":
        """The corpus of texts, which are split into sentences and tokens, or of lists of words."""
        rows: list[Sentence] = []
        for text in texts:
            if isinstance(text, str):
                rows += sentences(text, max_words)
            else:
                rows += [text[i : i + max_words] for i in range(0, len(text), max_words)]
        if len(rows) < 2:
            raise InputError(f"{len(rows)} sentences; a language model needs 2 or more")
        counts = Counter(word for row in rows for word in row)
        words = [*MARKS, *sorted(counts.keys() - set(MARKS), key=lambda word: (-counts[word], word))]
        spelled = characters(words, max_characters)
        spelled[0] = 0
        index = {word: i for i, word in enumerate(words)}
        lengths = torch.tensor([len(row) + 2 for row in rows])
        ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int32)
        digest = hashlib.sha256()
        for i, row in enumerate(rows):
            ids[i, : len(row) + 2] = torch.tensor([1, *(index[word] for word in row), 2], dtype=torch.int32)
            digest.update(" ".join(row).encode("utf-8", "ignore") + b"\n")
        return Corpus(Dataset(ids, lengths, lengths=lengths), tuple(words), spelled, digest.hexdigest())


def predictions(model: ElmoModel, spelled: Tensor, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of an LSTM state and the word that it predicts: [P, width] and [P].

    Left to right, state t predicts word t+1; right to left, state t predicts word t-1.
    """
    ids = ids[:, : int(lengths.max())].long()
    ahead, back = model(model.spell(spelled, ids), lengths)
    real = torch.arange(1, ids.shape[1], device=ids.device) < lengths.unsqueeze(1)  # words 2 ... n   [B, T-1]
    states = torch.cat([ahead[-1][:, :-1][real], back[-1][:, 1:][real]])
    return model.dropout(states), torch.cat([ids[:, 1:][real], ids[:, :-1][real]])


class _Run:
    """The state of one training."""

    def __init__(self, corpus: Corpus, config: ElmoConfig, recipe: LanguageRecipe, device: str) -> None:
        held_out = min(recipe.held_out, max(1, len(corpus.data) // 10))
        order = torch.randperm(len(corpus.data), generator=torch.Generator().manual_seed(recipe.seed))
        self.train, self.unseen = corpus.data[order[held_out:]], corpus.data[order[:held_out]]
        self.recipe, self.device = recipe, device
        self.spelled = corpus.spelled.to(device)
        self.vocabulary = min(recipe.vocabulary, len(corpus.spelled))
        self.head = NextWord(config.width, corpus.words[: self.vocabulary])
        self.head.log_frequency.copy_(corpus.log_frequency(self.vocabulary))
        self.model = ElmoModel(config, self.head).to(device)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=recipe.lr, fused=device.startswith("cuda"))
        self.per_epoch = math.ceil(len(self.train) / recipe.batch_size)
        self.steps = recipe.epochs * self.per_epoch
        self.step, self.seconds = 0, 0.0
        settings = asdict(recipe) | {"minutes": None}  # a resumed run may have another time limit
        self.identity = {"config": _lists(asdict(config)), "recipe": settings, "corpus": corpus.digest}

    @property
    def progress(self) -> float:
        """Share of the steps or of the time that is used, whichever is more."""
        timed = self.seconds / (60 * self.recipe.minutes) if self.recipe.minutes else 0.0
        return min(1.0, max(self.step / self.steps, timed))

    def loss(self, ids: Tensor, lengths: Tensor, negatives: int | None) -> Tensor:
        """Nats per predicted word, both directions together, []."""
        states, target = predictions(self.model, self.spelled, ids.to(self.device), lengths.to(self.device))
        target = target.where(target < self.vocabulary, 0)
        if negatives is None or negatives >= self.vocabulary:
            return self.head(states, target)
        return self.head.sampled(states, target, negatives)

    def update(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """One step of Adam; its random numbers depend on the seed and the step, so a resumed run is equal."""
        r = self.recipe
        torch.manual_seed(1_000_003 * r.seed + self.step)
        rate = r.final_lr + 0.5 * (r.lr - r.final_lr) * (1 + math.cos(math.pi * self.progress))
        self.adam.param_groups[0]["lr"] = rate
        with matrix_units():
            loss = self.loss(ids, lengths, r.negatives)
            self.adam.zero_grad(set_to_none=True)
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), r.gradient_norm)
        self.adam.step()
        self.step += 1
        return loss.detach()

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches from the current step to the last one, or until the time is over."""
        while self.progress < 1:
            epoch, done = divmod(self.step, self.per_epoch)
            for i, batch in enumerate(self.train.batches(self.recipe.batch_size, self.recipe.seed + epoch)):
                if self.progress >= 1:
                    return
                if i >= done and isinstance(batch.inputs, Tensor):
                    yield batch.inputs, batch.targets

    @torch.no_grad()
    def perplexity(self) -> float:
        """exp(nats per word) on held-out sentences, with the full softmax."""
        self.model.eval()
        total, count = 0.0, 0
        for batch in self.unseen.batches(self.recipe.batch_size):
            assert isinstance(batch.inputs, Tensor)
            words = int(batch.targets.sum()) - len(batch)
            total += words * float(self.loss(batch.inputs, batch.targets, None))
            count += words
        self.model.train()
        return math.exp(min(total / count, 700.0))

    def save(self, path: Path) -> None:
        """Weights, Adam's moments and the step, in one file."""
        tensors = dict(self.model.state_dict())
        for name, parameter in self.model.named_parameters():
            state = self.adam.state.get(parameter, {})
            tensors |= {f"adam.{key}.{name}": value for key, value in state.items()}
        write_tensors(path, tensors, self.identity | {"step": self.step, "seconds": self.seconds})

    def load(self, path: Path) -> None:
        """Resume from a file that `save` wrote for the same settings and texts."""
        tensors, note = read_tensors(path)
        if not isinstance(note, dict) or {key: note.get(key) for key in self.identity} != self.identity:
            raise CheckpointError(
                f"{path} belongs to other settings or texts; delete it or choose another directory"
            )
        if not (fits(note.get("step"), int) and fits(note.get("seconds"), float)) or note["step"] < 1:
            raise CheckpointError(f"{path} does not say at which step it was written; it was damaged")
        weights = {name: w for name, w in tensors.items() if not name.startswith("adam.")}
        load_exactly(self.model, weights, path)
        state: dict[int, dict[str, Tensor]] = {}
        for i, (name, parameter) in enumerate(self.model.named_parameters()):
            shapes = {"step": torch.Size(), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
            check_tensors(tensors, {f"adam.{key}.{name}": shape for key, shape in shapes.items()}, path)
            state[i] = {key: tensors[f"adam.{key}.{name}"] for key in shapes}
        self.adam.load_state_dict(self.adam.state_dict() | {"state": state})
        self.step, self.seconds = note["step"], float(note["seconds"])


def _lists(settings: dict[str, object]) -> dict[str, object]:
    """Settings as JSON returns them."""
    filters = settings["filters"]
    assert isinstance(filters, tuple)
    return settings | {"filters": [list(pair) for pair in filters]}


def train_language_model(
    texts: Sequence[str | Sentence],
    config: ElmoConfig | None = None,
    recipe: LanguageRecipe | None = None,
    *,
    directory: str | Path | None = None,
    device: str = "cpu",
    report: Report = lambda _: None,
) -> ElmoModel:
    """Train a language model. The caller's random state does not change.

    Args:
        texts: Texts, or lists of words.
        config: Sizes of the model.
        recipe: Settings of the training.
        directory: Folder of the checkpoint; a call with the same arguments resumes a stopped run.
        device: "cpu" or "cuda".
        report: Called with a `LanguageProgress` about once a second.

    Returns:
        The model in evaluation mode; call its `save` to keep it.

    Example:
        >>> recipe = LanguageRecipe(epochs=1, batch_size=2)
        >>> config = ElmoConfig(filters=((1, 4),), width=4, cell=8)
        >>> model = train_language_model(["It rains. I stay.", "They went home."], config, recipe)
        >>> model.features(["I go"]).shape
        torch.Size([1, 2, 3, 10])
    """
    config, recipe = config or ElmoConfig(), recipe or LanguageRecipe()
    corpus = Corpus.of(texts, recipe.max_words, config.max_characters)
    path = None if directory is None else Path(directory) / CHECKPOINT
    with torch.random.fork_rng(devices=[device] if device.startswith("cuda") else []):
        torch.manual_seed(recipe.seed)
        run = _Run(corpus, config, recipe, device)
        if path is not None and path.exists():
            run.load(path)
        _train(run, path, report)
    return run.model.eval()


def _train(run: _Run, path: Path | None, report: Report) -> None:
    begun, before = time.monotonic(), run.seconds
    saved, reported = begun, 0.0  # the first step is reported immediately
    losses: list[Tensor] = []  # since the last report
    run.model.train()
    for ids, lengths in run.batches():
        losses.append(run.update(ids, lengths))
        run.seconds = before + time.monotonic() - begun
        last, epoch_ends = run.progress >= 1, run.step % run.per_epoch == 0
        save = path is not None and (last or time.monotonic() - saved > SAVE_EVERY)
        if last or epoch_ends or save or time.monotonic() - reported > REPORT_EVERY:
            reported = time.monotonic()
            loss = float(torch.stack(losses).mean())
            losses.clear()
            if not math.isfinite(loss):
                kept = "" if path is None or not path.exists() else f"; {path} is from before"
                raise NumericalError(
                    f"language model: the loss is {loss} by step {run.step}; lower lr or gradient_norm{kept}"
                )
            perplexity = run.perplexity() if epoch_ends or last else None
            report(LanguageProgress(run.step, run.steps, loss, perplexity, run.seconds))
        if path is not None and save:
            run.save(path)
            saved = time.monotonic()
