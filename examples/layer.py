"""A calibrated classifier of digits: torch's own Transformer with its attention replaced.

Run `python examples/layer.py`; it takes half a minute on one core. Mean over seeds 0, 1 and 2 with its
standard error: accuracy 98.0 ± 0.2 %, NLL 0.069 ± 0.005, and all images of noise are more novel than 95 % of
digits. The same model with `nn.MultiheadAttention`, 60 epochs: 97.0 ± 0.2 %, 0.118 ± 0.004.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, unfold

import sgpa
from sgpa.data.images import digits


class Classifier(nn.Module):
    """2 x 2 patches of 8 x 8 images, two layers of `nn.TransformerEncoder`, ten classes."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(4, width)
        self.positions = nn.Parameter(0.5 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(width, heads, 128, dropout=0.0, batch_first=True, norm_first=True)
        layer.self_attn = sgpa.MultiheadSgpa(width, heads, batch_first=True, num_global=8)  # the only change
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, 10] of images [B, 1, 8, 8]."""
        patches = unfold(images, 2, stride=2).mT  # [B, 16, 4]
        return self.head(self.encoder(self.embed(patches) + self.positions).mean(1))


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, kl: bool) -> None:
    """Minimise the mean cross-entropy, plus KL / N with `kl`."""
    optimiser = torch.optim.AdamW(model.parameters())
    steps = epochs * -(-len(images) // 50)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(50):
            loss = cross_entropy(model(images[rows]), labels[rows])
            if kl:
                loss = loss + sgpa.total_kl(model, dataset_size=len(images))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


def main(warm_epochs: int = 10, epochs: int = 50, seed: int = 0) -> dict[str, float]:
    """Train, test, and compare the novelty of noise with that of digits."""
    torch.manual_seed(seed)
    data = digits.load(train=1100, validation=100)  # 597 are left for the test
    images, labels = data.train.inputs, data.train.targets
    model = Classifier()
    with sgpa.posterior_mean(model):  # start as a point model
        train(model, images, labels, warm_epochs, kl=False)
    sgpa.prepare(model, images[:200])
    train(model, images, labels, epochs, kl=True)

    model.eval()
    p = sgpa.sample(model, data.test.inputs, samples=10).softmax(-1).mean(0)  # [597, 10]
    layers = list(model.encoder.layers)[1:]
    novelty = sgpa.novelty_of(
        model, images, labels, held_out=data.validation.inputs, layers=layers, head=model.head
    )
    noise = 2 * torch.rand(200, 1, 8, 8) - 1
    threshold = novelty.score(data.test.inputs).quantile(0.95)
    return {
        "accuracy": (p.argmax(-1) == data.test.targets).double().mean().item(),
        "nll": cross_entropy(p.log(), data.test.targets).item(),
        "noise more novel than 95 % of digits": (novelty.score(noise) > threshold).double().mean().item(),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.3f}")
