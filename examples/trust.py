"""Which answers to trust: the shipped model of digits reads digits, noise and a plain image.

Run `python examples/trust.py`; it takes two seconds.
"""

import torch

import sgpa
from sgpa.data.images import digits


def main() -> dict[str, float]:
    """The share of trusted answers for each kind of input."""
    model = sgpa.load("digits")
    test = digits.load().test
    torch.manual_seed(0)
    inputs = {
        "digits": test.inputs[:200],
        "noise": 2 * torch.rand(200, 1, 8, 8) - 1,
        "plain grey": torch.linspace(-1, 1, 200).view(-1, 1, 1, 1).expand(-1, 1, 8, 8).contiguous(),
    }
    answers = {name: model.predict(x) for name, x in inputs.items()}
    print(answers["noise"][0])  # label, probability, entropy, novelty, trust, reason
    return {name: sum(a.trust for a in rows) / len(rows) for name, rows in answers.items()}


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.1%} trusted")
