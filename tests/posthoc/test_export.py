"""The deterministic prediction as an exported program."""

import pytest
import torch

from support.tiny_transformers import TimmVit, attached, batch, bert, distilbert, make, vit


def test_a_model_in_training_stays_in_training():
    model = make(lambda: bert(hidden_dropout_prob=0.5))
    gp = attached(model)
    model.train()
    rows = batch(model, 6, 71, labels=False)
    program = torch.export.export(gp.as_module(), (), rows)
    assert all(module.training for module in model.modules())
    torch.testing.assert_close(program.module()(**rows)[0], gp.predict(rows).probabilities)


@pytest.mark.parametrize("build", [bert, distilbert, vit, TimmVit])
def test_exported_program_gives_the_same_answers(build):
    model = make(build)
    gp = attached(model)
    first, second = (batch(model, 6, seed, labels=False) for seed in (70, 71))
    named = isinstance(first, dict)
    program = torch.export.export(gp.as_module(), () if named else (first,), first if named else None)
    run = program.module()
    probabilities, novelty = run(**second) if named else run(second)
    answer = gp.predict(second)
    torch.testing.assert_close(probabilities, answer.probabilities, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(novelty, answer.novelty, rtol=0, atol=0.03)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
