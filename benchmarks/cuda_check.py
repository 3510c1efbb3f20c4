"""Does everything run on a GPU? Trains, predicts, saves and compares with the CPU in a few seconds.

Usage: python -m benchmarks.cuda_check
"""

import tempfile

import torch

import sgpa
from sgpa.data.images import digits
from sgpa.experiments.recipes.digits import DIGITS
from sgpa.training.diagnostics import diagnose


def main() -> None:
    """Print what was checked; fail loudly otherwise."""
    splits = digits.load()
    model = sgpa.fit(
        splits.train.inputs,
        splits.train.targets,
        DIGITS.model,
        epochs=10,
        batch_size=50,
        lr=3e-3,
        device="cuda",
    )
    found = model.predict(splits.test.inputs)
    accuracy = (found.label.cpu() == splits.test.targets).float().mean().item()
    print(f"trained on {model.device}: accuracy {accuracy:.3f} after 10 epochs")
    with tempfile.TemporaryDirectory() as folder:
        again = sgpa.load(model.save_pretrained(folder))
    many = {"samples": 400, "batch_size": 20}
    gpu = model.predict(splits.test.inputs[:20], **many).probabilities.cpu()
    cpu = again.predict(splits.test.inputs[:20], **many).probabilities
    print(f"largest difference of probabilities, CPU against GPU, 400 samples: {(gpu - cpu).abs().max():.3f}")
    assert torch.allclose(gpu, cpu, atol=0.15)
    moments = [
        m.gp_layers[0].attention.moments(
            m.gp_layers[0].features(m.embedding(x)[0])[1], None, m.global_state()[0]
        )
        for m, x in ((again, splits.test.inputs[:8]), (model, splits.test.inputs[:8].cuda()))
    ]
    for name in ("mean", "variance"):
        cpu, gpu = (getattr(m, name).detach().cpu() for m in moments)
        error = ((cpu - gpu).norm() / cpu.norm()).item()
        print(f"first layer's {name}, CPU against GPU: relative difference {error:.1e}")
        assert error < 1e-4
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model(splits.test.inputs[:8].cuda())
    assert output.kl_a.dtype == torch.float32
    print("bfloat16 autocast: the KL stays in float32")
    print([round(layer.snr or 0.0, 2) for layer in diagnose(model, splits.test.inputs[:8].cuda())])


if __name__ == "__main__":
    main()
