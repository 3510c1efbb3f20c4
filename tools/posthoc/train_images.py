"""Train softmax ViTs of Hugging Face's class on CIFAR-10 with 3-Augment; one process per seed.

    python -m tools.posthoc.train_images --seed 0 --device cuda --out runs/posthoc

Writes OUT/vit-SEED (model and history.json). Reads CIFAR-10's training images only.
"""

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from transformers import ViTConfig, ViTForImageClassification

from sgpa.core.files import write_json
from sgpa.core.provenance import provenance
from sgpa.data.images.augment import three_augment
from sgpa.data.images.cifar import load_images

BATCH, RATE, DECAY, WARM_UP = 256, 1e-3, 0.05, 5  # images, AdamW's rate and decay, epochs
DROPOUT = 0.1
Loss = Callable[[Tensor, Tensor], Tensor]


def pixels(images: Tensor) -> Tensor:
    """uint8 [N, 3, 32, 32] -> float in [-1, 1]."""
    return images.float() / 127.5 - 1


def split(data_dir: Path | None) -> tuple[Tensor, Tensor, Tensor]:
    """Training images and labels, and their order: the first tenth is held out, as in `cifar`."""
    images, labels = load_images("cifar10", "train", data_dir)
    return images, labels, torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))


def make_model(depth: int, width: int) -> ViTForImageClassification:
    """A ViT for images of 32 pixels in patches of 4, heads of width 32."""
    return ViTForImageClassification(
        ViTConfig(
            image_size=32,
            patch_size=4,
            num_labels=10,
            num_hidden_layers=depth,
            hidden_size=width,
            num_attention_heads=width // 32,
            intermediate_size=2 * width,
            hidden_dropout_prob=DROPOUT,
        )
    )


def make_loss(model: nn.Module) -> Loss:
    """Cross-entropy of a batch of uint8 images; products in bfloat16 on a GPU."""

    def loss(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            f = model(pixel_values=pixels(x)).logits
        return cross_entropy(f.float(), y)

    return loss


def compiled(loss: Loss, x: Tensor, y: Tensor) -> Loss:
    """The loss compiled, or as it is where that fails."""
    try:
        fast: Loss = torch.compile(loss)
        fast(x, y).backward()
        return fast
    except Exception as error:
        print(f"not compiled: {str(error).splitlines()[0] if str(error) else type(error)}", flush=True)
        return loss


def train(
    model: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, limit: float, compile: bool, seed: int
) -> list[dict[str, float]]:
    """AdamW with a warm-up of five epochs and a cosine; loss and seconds of every epoch.

    Args:
        model: trained in place.
        images: all on the model's device, uint8.
        labels: their classes.
        epochs: at most.
        limit: seconds; where the second epoch says that all would take longer, there are fewer epochs.
        compile: compile the loss.
        seed: of order and augmentation.
    """
    device, steps = images.device, len(images) // BATCH
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=RATE, fused=True)
    noise = torch.Generator(device).manual_seed(seed)
    model.train()
    loss = make_loss(model)
    if compile:
        loss = compiled(loss, images[:BATCH], labels[:BATCH])
    history: list[dict[str, float]] = []
    started, step = time.perf_counter(), 0
    while len(history) < epochs:
        total = torch.zeros((), device=device)
        for part in torch.randperm(len(images), generator=noise, device=device)[: steps * BATCH].split(BATCH):
            rate = RATE * schedule(step / steps, epochs)
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad()
            value = loss(three_augment(images[part], noise), labels[part])
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            total += value.detach()
            step += 1
        history.append({"loss": float(total) / steps, "seconds": time.perf_counter() - started})
        if len(history) == 2:  # the first is slower than the others
            each = history[1]["seconds"] - history[0]["seconds"]
            epochs = int(min(epochs, max(2 * WARM_UP, limit / each)))
        if len(history) <= 3 or len(history) % 10 == 0:
            print(f"epoch {len(history)} of {epochs}: {history[-1]}", flush=True)
    model.eval()
    return history


def schedule(done: float, epochs: int) -> float:
    """Share of the largest rate after so many epochs."""
    if done < WARM_UP:
        return (done + 0.01) / (WARM_UP + 0.01)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (done - WARM_UP) / max(1, epochs - WARM_UP))))


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Of images in float32."""
    answers = [model(pixel_values=pixels(x)).logits.argmax(-1) for x in images.split(500)]
    return float((torch.cat(answers) == labels).float().mean())


def main() -> None:
    """Train one model and write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds of training")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--rows", type=int, help="training images; all where it is left out")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/posthoc"))
    options = parser.parse_args()
    images, labels, order = split(options.data_dir)
    held, shown = order[: len(order) // 10], order[len(order) // 10 :][: options.rows]
    images, labels = images.to(options.device), labels.to(options.device)
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    model = make_model(options.depth, options.width).to(options.device)
    history = train(
        model,
        images[shown.to(options.device)],
        labels[shown.to(options.device)],
        epochs=options.epochs,
        limit=options.limit,
        compile=options.compile,
        seed=options.seed,
    )
    folder = options.out / f"vit-{options.seed}"
    model.save_pretrained(folder)
    tested = {
        "validation_accuracy": accuracy(
            model, images[held.to(options.device)], labels[held.to(options.device)]
        )
    }
    setting = {"epochs": len(history), "rate": RATE, "decay": DECAY, "batch": BATCH, "warm_up": WARM_UP}
    write_json(
        folder / "history.json", {"setting": setting, "epochs": history, "made": provenance()} | tested
    )
    print(options.seed, tested, flush=True)


if __name__ == "__main__":
    main()
