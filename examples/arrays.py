"""Train on arrays, predict with limits of trust, save, open again: 300 digits, 2 to 4 minutes on one core.

Run `python examples/arrays.py`.
"""

import torch

import sgpa
from sgpa.data.images import digits


def main(steps: int | None = None, folder: str = "digits-model") -> dict[str, float]:
    """Train with the defaults; `steps` makes it shorter."""
    data = digits.load()
    model = sgpa.fit(data.train.inputs, data.train.targets, steps=steps)
    print(f"kept: {model.chosen}")

    answers = model.predict(data.test.inputs)  # .label, .probabilities, .entropy, .trust, .reason, .novelty
    right = answers.label.cpu() == data.test.targets
    noise = torch.rand(200, *data.test.inputs.shape[1:]) * data.test.inputs.max()
    model.save_pretrained(folder)
    again = sgpa.load(folder).predict(data.test.inputs)  # the same seed draws the same samples
    assert again.probabilities.allclose(answers.probabilities, atol=1e-5)
    return {
        "accuracy": right.double().mean().item(),
        "accuracy of trusted answers": right[answers.trust].double().mean().item(),
        "share of trusted answers": answers.trust.double().mean().item(),
        "share of noise that is trusted": model.predict(noise).trust.double().mean().item(),
    }


if __name__ == "__main__":
    for name, value in main().items():
        print(f"{name}: {value:.3f}")
