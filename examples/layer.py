"""A calibrated classifier of digits from torch's own Transformer with its attention replaced."""

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
        self.places = nn.Parameter(0.02 * torch.randn(16, width))
        layer = nn.TransformerEncoderLayer(width, heads, 128, dropout=0.0, batch_first=True, norm_first=True)
        layer.self_attn = sgpa.MultiheadSgpa(width, heads, batch_first=True, num_global=8)  # the one change
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:  # [B, 1, 8, 8] -> [B, 10]
        patches = unfold(images, 2, stride=2).mT  # [B, 16, 4]
        return self.head(self.encoder(self.embed(patches) + self.places).mean(1))


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int, kl: float) -> None:
    """Minimise the mean loss plus `kl` times KL / N."""
    N, batch = len(images), 50
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = epochs * -(-N // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=2e-3, total_steps=steps)
    for _ in range(epochs):
        for rows in torch.randperm(N).split(batch):
            loss = cross_entropy(model(images[rows]), labels[rows])
            loss = loss + kl * sgpa.total_kl(model, dataset_size=N) if kl else loss
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


def main(warm: int = 10, epochs: int = 50, seed: int = 0) -> dict[str, float]:
    """Train and test; returns the numbers that it prints."""
    torch.manual_seed(seed)
    splits = digits.load(train=1190, validation=10)
    x, y = splits.train.inputs, splits.train.targets
    test, labels = splits.test.inputs, splits.test.targets
    model = Classifier()
    with sgpa.posterior_mean(model.train()):  # a point model first
        train(model, x, y, warm, kl=0.0)
    sgpa.prepare(model, x[:200])
    train(model, x, y, epochs, kl=1.0)
    p = sgpa.sample(model.eval(), test, samples=10).softmax(-1).mean(0)  # [N, 10]
    return {"accuracy": float((p.argmax(-1) == labels).float().mean()), "nll": float(cross_entropy(p.log(), labels))}


if __name__ == "__main__":
    import sys, time
    t=time.time()
    print(main(seed=int(sys.argv[1])), time.time()-t)
