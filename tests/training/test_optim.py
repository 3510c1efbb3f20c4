"""Adam, and which parameters its weight decay shrinks."""

from dataclasses import replace

import pytest
import torch

from sgpa.core.inputs import Batch
from sgpa.gp.objective import Progress
from sgpa.methods import Mfvi, Mle, Sgpa, Sngp
from sgpa.models import DotProductConfig, GraphConfig, RandomFeatureConfig, SgpaConfig, TokenConfig
from sgpa.training.optim import OptimConfig, adam, decayed
from sgpa.training.steps.base import RunState, StepInfo, random_state
from sgpa.training.steps.plain import LocalPass, PlainStep
from support.training_runs import CONFIG, SGPA, blobs

DECAYING = OptimConfig(epochs=1, weight_decay=20.0)
MLPS = {f"{mlp}.{name}.weight" for mlp in ("layers.1.mlp", "mlp") for name in ("up", "down")}
ENDS = {"embedding.project.weight", "head.weight"}


def attentions(*maps):
    return {f"layers.{i}.attention.{name}.weight" for i in range(2) for name in maps}


KERNEL = MLPS | attentions("W_qk", "W_v", "W_o")
LINEAR = {
    "kernel-mle": (Mle(), CONFIG, KERNEL | ENDS),
    "sdp-mle": (
        Mle(attention=DotProductConfig()),
        CONFIG,
        MLPS | ENDS | attentions("W_q", "W_k", "W_v", "W_o"),
    ),
    "sgpa": (SGPA, CONFIG, KERNEL | ENDS),
    "standard": (
        Sgpa(attention=SgpaConfig(form="standard")),
        CONFIG,
        KERNEL | ENDS | attentions("W_s", "W_log_s"),
    ),
    "mfvi": (Mfvi(), CONFIG, set()),
    "sngp": (
        Sngp(head=RandomFeatureConfig(features=16)),
        CONFIG,
        KERNEL | {"embedding.project.weight", "head.output.weight"},
    ),
    "texts": (
        SGPA,
        replace(CONFIG, embedding=TokenConfig(vocabulary=20, max_tokens=8, embedding_width=6)),
        KERNEL | ENDS,
    ),
    "graphs": (
        SGPA,
        replace(
            CONFIG,
            embedding=GraphConfig(node_types=4, edge_types=3, identifier_width=3),
            outputs=1,
            likelihood="laplace",
        ),
        KERNEL | {"embedding.identify.weight", "head.weight"},
    ),
}


@pytest.mark.parametrize("name", LINEAR)
def test_weight_decay_shrinks_linear_maps_and_nothing_else(name):
    method, config, expected = LINEAR[name]
    model = method.build(config)
    assert decayed(model) == expected
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimiser = adam(DECAYING, model, dict(model.named_parameters()))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimiser.step()
    for n, p in model.named_parameters():
        factor = 1 - DECAYING.lr * DECAYING.weight_decay if n in expected else 1
        assert torch.allclose(p, factor * before[n], rtol=1e-6), n


@pytest.mark.parametrize("clip", [None, 0.05])
def test_steps_are_those_of_adamw(clip):
    def built():
        torch.manual_seed(0)
        return Mle().build(replace(CONFIG, dropout=0.0)).train()

    data = blobs(24, 0)
    batches = [Batch(data.inputs[i : i + 8], data.targets[i : i + 8]) for i in (0, 8, 16)]
    infos = [StepInfo(i, 5e-3 / (i + 1), Progress(0.5, 24)) for i in range(3)]
    model, theirs = built(), built()
    optim = replace(DECAYING, clip=clip)
    state = RunState("seed 0", model, adam(optim, model, dict(model.named_parameters())), random_state())
    named = dict(theirs.named_parameters())
    shrunk = KERNEL | ENDS
    oracle = torch.optim.AdamW(
        [
            {"params": [named[name] for name in shrunk], "weight_decay": 20.0},
            {"params": [p for name, p in named.items() if name not in shrunk], "weight_decay": 0.0},
        ]
    )
    with PlainStep(state, LocalPass(state, Mle()), optim) as step:
        for batch, info in zip(batches, infos, strict=True):
            step.step(batch, info)
            for group in oracle.param_groups:
                group["lr"] = info.lr
            for p, q in zip(model.parameters(), theirs.parameters(), strict=True):
                q.grad = p.grad  # as the step left it, clipped
            oracle.step()
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            assert clip is None or norm == pytest.approx(clip, rel=1e-4)
            for (name, a), b in zip(model.named_parameters(), theirs.parameters(), strict=True):
                assert torch.allclose(a, b, rtol=1e-5, atol=1e-6), name


def test_without_weight_decay_it_is_plain_adam():
    model = SGPA.build(CONFIG)
    optimiser = adam(OptimConfig(), model, dict(model.named_parameters()))
    assert type(optimiser) is torch.optim.Adam
    assert len(optimiser.param_groups) == 1
    assert len(optimiser.param_groups[0]["params"]) == len(list(model.parameters()))
