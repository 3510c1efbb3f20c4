"""Which answers of a kept model are trusted: its own test rows, other data sets, colours, noise, text.

Usage: python -m tools.trust_rates [--data-dir DIR] [--rows 1000] [--out docs/results/trust]
Reads the models of `src/sgpa/pretrained`, measures, and writes README.md and rates.json. Nothing is chosen
here: the rule of trust is saved with each model, and was chosen on its validation rows.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from sgpa.core.files import write_json, write_text
from sgpa.core.provenance import provenance
from sgpa.core.types import Classification
from sgpa.data import Dataset
from sgpa.data.images.cifar import cifar, load_images
from sgpa.evaluation.metrics import auroc
from sgpa.experiments.load import load
from sgpa.experiments.runner import calibrate, rows_of
from sgpa.inference.answers import Trained
from sgpa.inference.judged import make_judge
from sgpa.inference.saved import finished_cells

MODELS = Path("src/sgpa/pretrained")
CELL = Path("cells") / "kernel-sgpa-0"
WORDS = ["invoice", "total", "amount due", "page 3", "chapter", "hello", "world", "the variance", "of every"]


def plain_colours(count: int, channels: int = 3, size: int = 32) -> Tensor:
    """One colour per image, uint8 [count, channels, size, size]."""
    colours = torch.randint(0, 256, (count, channels, 1, 1), generator=torch.Generator().manual_seed(0))
    return colours.expand(count, channels, size, size).to(torch.uint8).contiguous()


def uniform_noise(count: int, channels: int = 3, size: int = 32) -> Tensor:
    """Independent uniform pixels, uint8 [count, channels, size, size]."""
    shape, generator = (count, channels, size, size), torch.Generator().manual_seed(1)
    return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)


def limits(model: Trained) -> dict[str, Any]:
    """The limits of a model's rule, without the held-out scores that they come from."""
    return {name: value for name, value in model.rule.to_json().items() if not isinstance(value, list)}


def text_pictures(count: int, size: int = 32) -> Tensor:
    """Words in dark on bright paper, uint8 [count, 3, size, size]."""
    random = np.random.default_rng(0)
    pictures = []
    for _ in range(count):
        paper = tuple(int(v) for v in random.integers(200, 256, 3))
        picture = Image.new("RGB", (size, size), paper)
        pen = ImageDraw.Draw(picture)
        for y in range(0, size, 10):
            ink = tuple(int(v) for v in random.integers(0, 80, 3))
            pen.text((0, y), " ".join(random.choice(WORDS, 3)), fill=ink, font=ImageFont.load_default(10))
        pictures.append(np.asarray(picture).transpose(2, 0, 1))
    return torch.from_numpy(np.stack(pictures))


def judge(trained: Trained, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whether each row is trusted, its label and its novelty, [N] each."""
    prediction = trained.predictor.predict(inputs)
    assert isinstance(prediction, Classification)
    assert trained.novelty is not None
    trusted, novelty = make_judge(trained.rule, trained.novelty)(inputs, prediction)
    return torch.from_numpy(trusted), prediction.label.cpu(), torch.from_numpy(novelty)


def rates(trained: Trained, test: Dataset, strangers: dict[str, Tensor]) -> dict[str, Any]:
    """Shares of trusted answers among right and wrong answers and other inputs; AUROC of novelty."""
    trusted, label, own = judge(trained, test.inputs)
    right = label == test.targets
    shares: dict[str, Any] = {
        "rows": len(test),
        "accuracy": float(right.double().mean()),
        "right": float(trusted[right].double().mean()),
        "wrong": float(trusted[~right].double().mean()),
        "wrong among trusted": float((~right)[trusted].double().mean()),
        "other": {},
    }
    for name, inputs in strangers.items():
        trusted, _, novelty = judge(trained, inputs)
        is_ood = torch.cat([torch.zeros(len(own)), torch.ones(len(novelty))]).long()
        shares["other"][name] = {
            "rows": len(inputs),
            "trusted": float(trusted.double().mean()),
            "auroc of novelty": float(auroc(torch.cat([own, novelty]).numpy(), is_ood.numpy())),
        }
        print(name, shares["other"][name], flush=True)
    return shares


def measure(data_dir: Path, rows: int) -> dict[str, Any]:
    """The rates of all kept models."""

    def some(images: Tensor) -> Tensor:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
        return images[order[:rows]]

    model = load(MODELS / "cifar10" / CELL)
    test = cifar("cifar10", data_dir=data_dir).test
    order = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[: 2 * rows]
    sets = {"SVHN": "svhn", "CIFAR-100": "cifar100", "mini-ImageNet": "mini_imagenet"}
    strangers = {name: some(load_images(key, "test", data_dir)[0]) for name, key in sets.items()}
    strangers |= {
        "plain colours": plain_colours(200),
        "noise": uniform_noise(200),
        "text": text_pictures(200),
    }
    measured = {"cifar10": rates(model, test[order], strangers) | {"rule": limits(model)}}
    digits = load(MODELS / "digits" / CELL)
    (row,) = rows_of(finished_cells(MODELS / "digits" / CELL))
    test = calibrate(*row).task.splits.test
    low, high = -1.0, 1.0
    noise = low + (high - low) * uniform_noise(200, 1, 8).float() / 255
    grey = low + (high - low) * plain_colours(200, 1, 8).float() / 255
    strangers = {"plain grey": grey, "noise": noise}
    measured["digits"] = rates(digits, test, strangers) | {"rule": limits(digits)}
    return measured


HEAD = """# Which answers are trusted

Made by `python -m tools.trust_rates`. An answer is not trusted for one of two reasons: *unsure* (its entropy
is above a limit, chosen on validation rows so that, with confidence 0.9, at most the promised share of the
trusted answers is wrong: half of the model's own share of wrong answers and no more than 10 %) and
*unfamiliar* (its novelty is above that of 95 % of validation rows).
Both limits come from validation rows alone. Which scores novelty
adds up was decided with an earlier CIFAR-10 model on these sets of other images, which makes their rows
slightly optimistic ([decision 16](../../decisions/0016-trust-and-novelty.md)). Shares are of trusted answers;
the standard error of a share of 1,000 rows is at most 0.016. AUROC: novelty of the other set against that of
the test rows.
"""


def page(measured: dict[str, Any], facts: dict[str, Any]) -> str:
    """The numbers as Markdown."""
    lines = [HEAD]
    for name, numbers in measured.items():
        rule = numbers["rule"]
        right = f"right answers (accuracy {numbers['accuracy']:.3f})"
        lines += [f"## {name}", "", "| | rows | trusted | AUROC of novelty |", "|---|--:|--:|--:|"]
        lines.append(f"| {right} | {numbers['rows']} | {numbers['right']:.3f} | |")
        lines.append(f"| wrong answers | | {numbers['wrong']:.3f} | |")
        for other, row in numbers["other"].items():
            lines.append(
                f"| {other} | {row['rows']} | {row['trusted']:.3f} | {row['auroc of novelty']:.3f} |"
            )
        promised = f"at most {rule['max_error']:.0%}; bound {rule['bound']:.3f} from {rule['rows']} rows"
        share = numbers["wrong among trusted"]
        lines += ["", f"Of the trusted test answers {share:.1%} are wrong (promised: {promised}).", ""]
    lines += [f"Commit {facts.get('commit')}, {facts.get('hardware')}, {facts.get('date')}.", ""]
    return "\n".join(lines)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("docs/results/trust"))
    asked = parser.parse_args()
    facts = provenance()
    measured = measure(asked.data_dir, asked.rows)
    write_json(asked.out / "rates.json", {"rates": measured, "run": facts})
    write_text(asked.out / "README.md", page(measured, facts))


if __name__ == "__main__":
    main()
