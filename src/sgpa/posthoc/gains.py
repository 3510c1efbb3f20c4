"""How strongly a model's outputs react to noise in the heads of its attention, to first order."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.posthoc.calls import Call
from sgpa.posthoc.passes import observe
from sgpa.posthoc.sites import Site

DIRECTIONS = 8  # of the outputs, for every row


def measure_gains(
    model: nn.Module,
    sites: tuple[Site, ...],
    head: nn.Module,
    calls: Sequence[Call],
    spreads: Sequence[Tensor],
) -> list[Tensor]:
    """Variance of an output if all tokens of one head had independent noise of one unit of its spread.

    Independent noise with variance s_v² on value v of every token t of a head gives output c the variance
    Σ_tv (s_v ∂f_c/∂o_tv)² to first order. Its mean over rows and over classes, relative to the mean of all
    classes, is estimated with a few random directions per row: one forward and a few backward passes.

    Args:
        model: the model.
        sites: its attention modules.
        head: the layer that makes its outputs.
        calls: a few batches.
        spreads: s of every site, [H, V].

    Returns:
        The gain of every head of every site, [H] each.
    """
    generator = torch.Generator().manual_seed(0)
    totals, rows = [torch.zeros(len(s), device=s.device) for s in spreads], 0
    for call in calls:
        leaves: dict[int, Tensor] = {}

        def add_zero(i: int, q: Tensor, leaves: dict[int, Tensor] = leaves) -> Tensor:
            shape = (*q.shape[:3], spreads[i].shape[-1])
            leaves[i] = torch.zeros(shape, dtype=q.dtype, device=q.device, requires_grad=True)
            return leaves[i]

        with torch.enable_grad():
            seen = observe(model, sites, head, call, noise=add_zero)
            f = _one_token(seen.logits, seen.padding, generator)  # [B, C]
            if not f.requires_grad:
                raise InputError(
                    f"{type(model).__name__}: its forward pass allows no gradients, which fit needs"
                )
            wanted = [leaves[i] for i in range(len(sites))]
            for eps in _directions(f.shape, generator).to(f):  # [B, C]
                grads = torch.autograd.grad((eps * f).sum(), wanted, retain_graph=True)
                for i, grad in enumerate(grads):
                    totals[i] += (grad.float() * spreads[i]).square().sum((0, 1, 3)) / DIRECTIONS  # [H]
        rows += len(f)
    return [total / rows for total in totals]


def _directions(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Random directions of outputs, relative to the mean of all classes if there are several, [n, B, C]."""
    eps = torch.randn(DIRECTIONS, *shape, generator=generator)
    if shape[-1] == 1:
        return eps.sign()
    return (eps - eps.mean(-1, keepdim=True)) / (shape[-1] - 1) ** 0.5


def _one_token(logits: Tensor, padding: Tensor | None, generator: torch.Generator) -> Tensor:
    """Outputs of one random real token of each row, [B, C]; of rows where there are no tokens."""
    if logits.ndim == 2:
        return logits
    keys = torch.rand(logits.shape[:2], generator=generator).to(logits.device)
    if padding is not None:
        keys = keys.masked_fill(padding, -1.0)
    return logits[torch.arange(len(logits), device=logits.device), keys.argmax(1)]
