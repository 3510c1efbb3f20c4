"""Checks of attention modules on the first rows: that what is read of them is what it is taken for."""

import logging
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.posthoc.calls import Call, padding_of
from sgpa.posthoc.passes import Pass, observe
from sgpa.posthoc.sites import ProjectedSite, Site

MIXED = 0.5  # share of the states' norm that may differ when rows change places: rounding, dropout
ROUNDING = 1e-4  # of the largest derivative
LEAVE_OUT = "leave it out by modules=[...]"

log = logging.getLogger(__name__)


def check_sites(model: nn.Module, sites: tuple[Site, ...], head: nn.Module, call: Call) -> None:
    """Run all checks on the first two rows of a batch."""
    if call.rows is None:
        return
    two = call.first(2)
    outputs: dict[int, Tensor] = {}
    seen = observe(model, sites, head, two, on_heads=outputs.__setitem__)
    mask = padding_of(model, two)
    if mask is not None and seen.padding is None:
        log.warning(
            "the attention mask has %d columns for %d tokens of attention, as where a model adds tokens of "
            "its own: padding counts like other tokens, so use rows of one length",
            mask.shape[1], seen.states[0].shape[1],
        )  # fmt: skip
    if call.rows > 1:
        check_rows(sites, seen, observe(model, sites, head, two.reversed()))
    for i, site in enumerate(sites):
        heads, queries = outputs[i].shape[:-2].numel(), seen.queries[i].shape[:-2].numel()
        if heads != queries:
            raise InputError(f"{site.name} gives {heads} outputs for {queries} queries; {LEAVE_OUT}")
    check_packed(model, sites, head, two)


def check_rows(sites: tuple[Site, ...], seen: Pass, turned: Pass) -> None:
    """Raise unless what attention reads of a row moves with the row, as where tokens come before rows."""
    for i, site in enumerate(sites):
        x = seen.states[i].float()
        moved = (turned.states[i].float().flip(0) - x).norm()
        if moved > MIXED * (x - x.mean((0, 1))).norm():
            raise InputError(
                f"{site.name}: what it reads of a row is not at the place of the row "
                f"(allowed: [rows, tokens, width]); {LEAVE_OUT}"
            )


def check_packed(model: nn.Module, sites: tuple[Site, ...], head: nn.Module, call: Call) -> None:
    """Raise where one map makes queries, keys and values, and others are taken for the queries.

    A query changes the heads of its own token alone; keys and values change those of other tokens.
    """
    packed = {i: s for i, s in enumerate(sites) if isinstance(s, ProjectedSite) and s.parts > 1}
    leaves: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}
    with torch.enable_grad(), ExitStack() as undo:
        for i, site in packed.items():

            def add_zero(_: nn.Module, __: object, result: Tensor, i: int = i) -> Tensor:
                leaves[i] = torch.zeros_like(result, requires_grad=True)
                return result + leaves[i]

            undo.callback(site.query.register_forward_hook(add_zero).remove)
        if packed:
            observe(model, sites, head, call, on_heads=outputs.__setitem__)
        for i, site in packed.items():
            if not outputs[i].requires_grad:
                continue  # `fit` says so when it measures gains
            first = outputs[i].flatten(0, -3)[0]  # the heads of the first token
            (grad,) = torch.autograd.grad(first.square().sum(), leaves[i], retain_graph=True)
            others = site.queries(grad).flatten(0, -3)[1:].abs()
            if others.numel() and float(others.amax()) > ROUNDING * float(grad.abs().amax()):
                raise InputError(
                    f"{site.name}: the first third of what {type(site.query).__name__} returns is not the "
                    f"queries (allowed: queries, keys, values); {LEAVE_OUT}"
                )
