"""Novelty of the inputs of any classifier or regressor written in PyTorch, from hooks on its layers."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, shown
from sgpa.inference.novelty import Novelty, some_rows
from sgpa.models.modes import evaluating
from sgpa.models.pooled_features import PooledFeatures

BATCH = 256  # rows at a time


@dataclass(frozen=True)
class Probe:
    """Where the features of a module are read."""

    module: nn.Module
    layers: tuple[nn.Module, ...]  # whose outputs are averaged over tokens
    head: nn.Module  # whose input is the features
    classes: bool  # whether the module's output is the logits of classes
    batch_first: bool


@dataclass(frozen=True)
class ModuleNovelty:
    """Novelty of a module's inputs; made by `novelty_of`."""

    probe: Probe
    novelty: Novelty

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Novelty of every row in [0, 1], [N]: the share of held-out rows that look more familiar."""
        return self.novelty(features_of(self.probe, inputs))

    def score(self, *inputs: Tensor) -> Tensor:
        """The number that novelty is the percentile of, [N]: it has no upper end."""
        return self.novelty.score(features_of(self.probe, inputs))


@checked
def novelty_of(
    module: nn.Module,
    train: Tensor | Sequence[Tensor],
    labels: Tensor | None,
    *,
    held_out: Tensor | Sequence[Tensor],
    layers: Sequence[nn.Module],
    head: nn.Module,
    batch_first: bool = True,
) -> ModuleNovelty:
    """Measure how unfamiliar inputs are to a trained module, without any out-of-distribution data.

    The module runs in evaluation mode, so that its SGPA layers give posterior means. See
    `sgpa.inference.novelty` for what is measured.

    Args:
        module: a trained module that maps inputs to logits [N, C], or to numbers where `labels` is None.
        train: training inputs [N, ...], or several tensors that the module takes together.
        labels: classes of the training inputs [N], or None.
        held_out: inputs that the module was not trained on; novelty is a percentile among them.
        layers: modules inside `module` whose outputs are [N, T, E] or [N, E]; leave out the first layer of a
            Transformer, whose tokens are often familiar one by one.
        head: the module inside `module` that reads the features [N, E], usually its last linear layer.
        batch_first: whether outputs of layers are [N, T, E]; else [T, N, E].

    Returns:
        A function of inputs: novelty in [0, 1], [N].

    Example:
        >>> body, head = nn.Linear(4, 8), nn.Linear(8, 3)
        >>> model, x = nn.Sequential(body, nn.Tanh(), head), torch.randn(400, 4)
        >>> y = x[:200, :3].argmax(-1)
        >>> measure = novelty_of(model, x[:200], y, held_out=x[200:], layers=[body], head=head)
        >>> bool(measure(torch.full((1, 4), 9.0)) > 0.9)
        True
    """
    inside = set(module.modules())
    if not layers or not {*layers, head} <= inside:
        raise InputError(f"novelty_of: layers and head must be modules inside {type(module).__name__}")
    probe = Probe(module, tuple(layers), head, labels is not None, batch_first)
    train, held_out = ((x,) if isinstance(x, Tensor) else tuple(x) for x in (train, held_out))
    kinds = [[(x.shape[1:], x.dtype) for x in given if x.ndim] for given in (train, held_out)]
    if not kinds[0] or kinds[0] != kinds[1]:
        raise InputError(
            f"novelty_of: train={', '.join(map(shown, train))}, held_out={', '.join(map(shown, held_out))} "
            "(allowed: tensors of rows that differ in number only)"
        )
    rows, held_out_rows = some_rows(len(train[0])), some_rows(len(held_out[0]))
    if labels is not None and labels.shape != (len(train[0]),):
        raise InputError(
            f"novelty_of: labels={shown(labels)} (allowed: a class for each of {len(train[0])} rows)"
        )
    labels = None if labels is None else labels.cpu()[rows]
    fitted = features_of(probe, [x[rows] for x in train])
    standard = features_of(probe, [x[held_out_rows] for x in held_out])
    return ModuleNovelty(probe, Novelty.fit(fitted, labels, held_out=standard))


@torch.no_grad()
def features_of(probe: Probe, inputs: Sequence[Tensor]) -> PooledFeatures:
    """What the module makes of each input, tokens averaged, on the CPU."""
    seen: dict[nn.Module, Tensor] = {}
    parts: list[PooledFeatures] = []

    def keep_output(layer: nn.Module, _: object, output: Tensor | tuple[Tensor, ...]) -> None:
        value = output if isinstance(output, Tensor) else output[0]
        seen[layer] = value.mean(1 if probe.batch_first else 0) if value.ndim == 3 else value  # [B, E]

    def keep_input(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        seen[layer] = args[0]

    with ExitStack() as undo:
        undo.enter_context(evaluating(probe.module))
        for layer in probe.layers:
            undo.callback(layer.register_forward_hook(keep_output).remove)
        undo.callback(probe.head.register_forward_pre_hook(keep_input).remove)
        for batch in zip(*(x.split(BATCH) for x in inputs), strict=True):
            output = probe.module(*batch)
            logits = output.cpu() if probe.classes else None  # [B, C]
            if not {*probe.layers, probe.head} <= set(seen):
                raise InputError("novelty_of: the module's forward pass did not call all of layers and head")
            widths = sorted({seen[layer].shape[-1] for layer in probe.layers})
            if len(widths) > 1:
                raise InputError(f"novelty_of: layers of widths {widths} (allowed: one width)")
            layers = torch.stack([seen[layer].cpu() for layer in probe.layers], 1)  # [B, L, E]
            parts.append(PooledFeatures(layers, seen[probe.head].cpu(), logits))
    return PooledFeatures.joined(parts)
