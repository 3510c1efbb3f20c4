"""Novelty of the inputs of any module."""

import pytest
import torch
from torch import nn

import sgpa
from sgpa.core.errors import InputError


class Small(nn.Module):
    """Tokens through a layer, their mean through a head."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.head(self.drop(self.body(x).tanh()).mean(1))


def rows(count, seed=0):
    return torch.randn(count, 6, 4, generator=torch.Generator().manual_seed(seed))


def fitted(labels=True, **options):
    torch.manual_seed(0)
    model, x = Small(), rows(300)
    y = x.mean(1)[:, :3].argmax(-1) if labels else None
    options = {"layers": [model.body], "head": model.head} | options
    return model, sgpa.novelty_of(model, x, y, held_out=rows(300, 1), **options)


@pytest.mark.parametrize("labels", [True, False])
def test_far_inputs_are_novel_and_familiar_ones_are_not(labels):
    model, novelty = fitted(labels)
    assert model.training
    assert (novelty(rows(20, 2) + 5) > 0.95).all()
    assert abs(novelty(rows(300, 3)).mean() - 0.5) < 0.1
    assert torch.equal(novelty(rows(9, 2)), novelty(rows(9, 2)))  # without dropout


def test_batches_do_not_matter():
    _, novelty = fitted()
    x = rows(700, 5)
    batches = torch.cat([novelty.score(part) for part in x.split(99)])
    torch.testing.assert_close(novelty.score(x).float(), batches.float())  # features are float32


def test_hooks_are_removed():
    model, _ = fitted()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_layers_outside_the_module_are_refused():
    with pytest.raises(InputError, match="layers and head must be modules inside Small"):
        fitted(layers=[nn.Linear(4, 8)])
    with pytest.raises(InputError, match="layers and head must be modules inside Small"):
        fitted(layers=[])


def test_layers_that_are_not_called_or_differ_in_width_are_refused():
    torch.manual_seed(0)
    model = Small()
    model.unused = nn.Linear(4, 8)
    both = {"labels": None, "held_out": rows(20), "head": model.head}
    with pytest.raises(InputError, match="did not call all of layers and head"):
        sgpa.novelty_of(model, rows(20), layers=[model.unused], **both)
    with pytest.raises(InputError, match=r"layers of widths \[3, 8\] \(allowed: one width\)"):
        sgpa.novelty_of(model, rows(20), layers=[model.body, model.head], **both)
