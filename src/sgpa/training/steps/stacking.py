"""Models of one shape, and their batches, side by side: tensors with a first dimension that counts them."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sgpa.core.inputs import Batch, Inputs, made_of, tensors_of
from sgpa.models import Transformer


def side_by_side(batches: Sequence[Batch]) -> tuple[Inputs, Tensor]:
    """Inputs and targets of all members' batches, stacked, [E, B, ...]."""
    each = zip(*(tensors_of(batch.inputs) for batch in batches), strict=True)
    inputs = made_of(batches[0].inputs, [torch.stack(tensors) for tensors in each])
    return inputs, torch.stack([batch.targets for batch in batches])


def shape_of(batch: Batch) -> tuple[int, ...]:
    """The shapes of all that the inputs are made of, in a row."""
    return tuple(size for tensor in tensors_of(batch.inputs) for size in (*tensor.shape, -1))


def stack(models: Sequence[Transformer]) -> dict[str, Tensor]:
    """Parameters and buffers of all models stacked, [E, ...]; the models' own become slices of them."""
    stacked = {}
    for name, p in models[0].named_parameters():
        together = torch.stack([model.get_parameter(name).detach() for model in models])
        stacked[name] = together.requires_grad_(p.requires_grad)
        for e, model in enumerate(models):
            model.get_parameter(name).data = together.data[e]
    for name, _ in models[0].named_buffers():
        stacked[name] = torch.stack([model.get_buffer(name) for model in models])
        for e, model in enumerate(models):
            _set_buffer(model, name, stacked[name][e])
    return stacked


def unstack(models: Sequence[Transformer]) -> None:
    """Give every model tensors of its own again."""
    for model in models:
        for p in model.parameters():
            p.data = p.data.clone()
        for name, buffer in list(model.named_buffers()):
            _set_buffer(model, name, buffer.clone())


def _set_buffer(model: nn.Module, name: str, value: Tensor) -> None:
    owner, _, last = name.rpartition(".")
    setattr(model.get_submodule(owner), last, value)
