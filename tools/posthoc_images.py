"""A softmax ViT of Hugging Face's class trained on CIFAR-10 with 3-Augment, with a GP attached.

    python -m tools.posthoc_images --seeds 0 1 2 --device cuda --out runs/posthoc

A trained model is kept under OUT/vit-SEED and not trained again. Results: OUT/vit-SEED.json.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import ViTConfig, ViTForImageClassification

from sgpa.core.files import write_json
from sgpa.core.provenance import provenance
from sgpa.data import corruptions
from sgpa.data.images.augment import three_augment
from sgpa.data.images.cifar import cifar, ood_images
from tools import posthoc_scores as scores

OOD = {"SVHN": "svhn", "CIFAR-100": "cifar100", "mini-ImageNet": "mini_imagenet"}


def pixels(images: Tensor) -> Tensor:
    """uint8 [N, 3, 32, 32] -> float in [-1, 1]."""
    return images.float() / 127.5 - 1


def batches(images: Tensor, labels: Tensor | None = None, size: int = 250) -> list[Any]:
    """Batches in order."""
    inputs = [{"pixel_values": pixels(part)} for part in images.split(size)]
    if labels is None:
        return inputs
    return [rows | {"labels": y} for rows, y in zip(inputs, labels.split(size), strict=True)]


def train(model: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, rate: float, seed: int) -> None:
    """AdamW with one cycle, bfloat16 products on a GPU."""
    device, size = next(model.parameters()).device, 256
    images, labels = images.to(device), labels.to(device)
    steps = epochs * (len(images) // size)
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps, pct_start=0.1)
    order, noise = torch.Generator().manual_seed(seed), torch.Generator(device).manual_seed(seed)
    model.train()
    for epoch in range(epochs):
        total = torch.zeros((), device=device)
        rows = torch.randperm(len(images), generator=order)[: len(images) // size * size].to(device)
        for part in rows.split(size):
            x = three_augment(images[part], noise)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = cross_entropy(model(pixel_values=pixels(x)).logits, labels[part])
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            total += loss.detach()
        print(f"epoch {epoch + 1} of {epochs}: loss {float(total) / (len(rows) // size):.3f}", flush=True)
    model.eval()


def main() -> None:
    """Train where needed, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--depth", type=int, default=7)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--severities", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--corrupted-rows", type=int, default=500, help="test images of every corruption")
    parser.add_argument("--ood-rows", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path("runs/posthoc"))
    options = parser.parse_args()
    splits = cifar("cifar10", data_dir=options.data_dir)
    tests = {"test": batches(splits.test.inputs, splits.test.targets)}
    few, labels = splits.test.inputs[: options.corrupted_rows], splits.test.targets[: options.corrupted_rows]
    for severity in options.severities:
        made = [corruptions.corrupt(few, name, severity) for name in corruptions.NAMES]
        tests[f"corrupted, {severity}"] = batches(torch.cat(made), labels.repeat(len(made)))
    strangers = {
        name: batches(ood_images(folder, options.data_dir)[: options.ood_rows])
        for name, folder in OOD.items()
    }
    config = ViTConfig(
        image_size=32,
        patch_size=4,
        num_labels=10,
        num_hidden_layers=options.depth,
        hidden_size=options.width,
        num_attention_heads=options.width // 32,
        intermediate_size=2 * options.width,
        hidden_dropout_prob=0.1,
    )
    for seed in options.seeds:
        folder = options.out / f"vit-{seed}"
        torch.manual_seed(seed)
        if (folder / "config.json").exists():
            model = ViTForImageClassification.from_pretrained(folder).to(options.device)
        else:
            model = ViTForImageClassification(config).to(options.device)
            data, rate = splits.train, options.rate
            assert isinstance(data.inputs, Tensor)
            train(model, data.inputs, data.targets, epochs=options.epochs, rate=rate, seed=seed)
            model.save_pretrained(folder)
        order = torch.randperm(len(splits.train), generator=torch.Generator().manual_seed(seed))[:8000]
        shown = batches(splits.train.inputs[order], splits.train.targets[order])
        held = batches(splits.validation.inputs, splits.validation.targets)
        found = scores.measure(model.eval(), shown, held, tests, strangers)
        write_json(options.out / f"vit-{seed}.json", found | {"made": provenance()})
        print(seed, found, flush=True)


if __name__ == "__main__":
    main()
