"""Under bfloat16 autocast the posterior and its KL keep full precision; the rest may be fast."""

import pytest
import torch

from sgpa import ArdRbfKernel, ChengBootsSgpa, OrthogonalSgpa, StandardSgpa
from sgpa.models import ModelConfig, PatchConfig, SgpaConfig, Transformer

LAYERS = {
    "orthogonal": lambda: OrthogonalSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3),
    "cheng-boots": lambda: ChengBootsSgpa(8, 2, ArdRbfKernel(2, 4), num_global=3),
    "standard": lambda: StandardSgpa(8, 2, ArdRbfKernel(2, 4), max_tokens=5),
}


@pytest.mark.parametrize("name", LAYERS)
def test_autocast_does_not_change_the_kl_of_a_layer(name):
    layer, x = LAYERS[name](), torch.randn(2, 5, 8)
    exact = layer(x).kl
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = layer(x).kl
        from_low_inputs = layer(x.bfloat16()).value
    assert low.a.dtype == torch.float32
    assert torch.equal(low.a, exact.a)
    assert torch.equal(low.g, exact.g)
    assert from_low_inputs.isfinite().all()


@pytest.mark.parametrize("form", ["orthogonal", "cheng-boots", "standard"])
def test_autocast_does_not_change_the_global_state_of_a_model(form):
    config = ModelConfig(
        embedding=PatchConfig(image_size=8, channels=1),
        attention=SgpaConfig(form=form, num_global=3),
        depth=3,
        heads=2,
        width=8,
    )
    model, x = Transformer(config), torch.randn(4, 1, 8, 8)
    exact = model.global_state()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model.global_state()
        output = model(x)
        loss = output.f.float().square().mean() + (output.kl_g + output.kl_a) / 100
    loss.backward()
    for a, b in zip(exact, low, strict=True):
        assert a is b is None or torch.equal(a.L_inv, b.L_inv)
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
