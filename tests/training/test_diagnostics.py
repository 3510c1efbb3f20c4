"""Diagnostics of the layers of a model."""

import pytest
import torch

from sgpa.models import (
    DotProductConfig,
    KernelAttentionConfig,
    ModelConfig,
    SgpaConfig,
    TokenConfig,
    Transformer,
)
from sgpa.training.diagnostics import diagnose


def model(attention):
    embedding = TokenConfig(vocabulary=9, max_tokens=6, embedding_width=8)
    return Transformer(ModelConfig(embedding=embedding, attention=attention, depth=2, heads=2, width=8))


def ids():
    rows = torch.randint(1, 9, (4, 6))
    rows[1, 3:] = 0
    return rows


def test_a_collapsed_layer_has_no_kl_and_no_signal():
    m = model(SgpaConfig(num_global=3, init="prior"))
    with torch.no_grad():
        m.gp_layers[1].attention.W_v.weight.zero_()
        m.gp_layers[1].attention.v_g.zero_()
    healthy, collapsed = diagnose(m, ids())
    assert healthy.kl_a > 0
    assert healthy.snr > 0
    assert collapsed.kl_a == pytest.approx(0, abs=1e-6)
    assert collapsed.kl_g == pytest.approx(0, abs=1e-4)
    assert collapsed.snr == pytest.approx(0, abs=1e-6)


def test_off_diagonal_is_the_weight_on_other_real_tokens():
    m = model(KernelAttentionConfig())
    with torch.no_grad():
        m.gp_layers[0].attention.kernel.log_lengthscale.fill_(-9.0)  # every token attends to itself only
        m.gp_layers[1].attention.kernel.log_lengthscale.fill_(9.0)  # every token attends to all equally
    texts = torch.tensor([[1, 2, 3, 4, 0, 0]])
    alone, even = diagnose(m, texts)
    assert alone.off_diagonal == pytest.approx(0, abs=1e-5)
    assert even.off_diagonal == pytest.approx(3 / 4, abs=1e-4)
    assert alone.snr is None
    assert alone.kl_g is None


def test_softmax_attention_has_no_kernel_to_report():
    (layer, _) = diagnose(model(DotProductConfig()), ids())
    assert layer.variance is None
    assert 0 < layer.off_diagonal < 1


def test_diagnose_changes_nothing():
    m = model(SgpaConfig(num_global=3)).train()
    before = {k: v.clone() for k, v in m.state_dict().items()}
    diagnose(m, ids())
    assert all(torch.equal(before[k], v) for k, v in m.state_dict().items())
    assert all(part.training for part in m.modules())
