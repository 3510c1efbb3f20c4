"""Uncertainty for a trained torch Transformer that stays as it is.

Run `python examples/attach.py`; it takes half a minute on one core.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, unfold

import sgpa
from sgpa.data.images import digits


class Classifier(nn.Module):
    """2 x 2 patches of 8 x 8 images, two layers of `nn.TransformerEncoder`, ten classes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 64)
        self.positions = nn.Parameter(0.5 * torch.randn(16, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(64), enable_nested_tensor=False)
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, 10] of images [B, 1, 8, 8]."""
        return self.head(self.encoder(self.embed(unfold(images, 2, stride=2).mT) + self.positions).mean(1))


def main(epochs: int = 60) -> dict[str, float]:
    """Train a point model, attach Gaussian processes, compare."""
    torch.manual_seed(0)
    data = digits.load()
    model, x, y = Classifier(), data.train.inputs, data.train.targets
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(50):
            optimiser.zero_grad()
            cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    model.eval()

    gp = sgpa.attach(model)
    gp.fit([x[rows] for rows in torch.arange(len(x)).split(100)])
    gp.calibrate([(data.validation.inputs, data.validation.targets)])
    answer = gp.predict(data.test.inputs)
    noise = gp.predict(2 * torch.rand(200, 1, 8, 8) - 1)
    with torch.no_grad():
        plain = model(data.test.inputs)
    assert torch.equal(answer.label, plain.argmax(-1))  # no label changes
    return {
        "NLL of the model": cross_entropy(plain, data.test.targets).item(),
        "NLL with the GP": cross_entropy(answer.probabilities.log(), data.test.targets).item(),
        "noise above 95 % of held-out digits": (noise.novelty > 0.95).double().mean().item(),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.3f}")
