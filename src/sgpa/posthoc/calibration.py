"""One pass over held-out rows: scales of the variance, and the standard that novelty is measured against."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.posthoc.adapter import Adapter
from sgpa.posthoc.calls import Call, read_batch
from sgpa.posthoc.fingerprint import weights_fingerprint
from sgpa.posthoc.layer_gps import LayerGps
from sgpa.posthoc.novelty import TransformerNovelty
from sgpa.posthoc.passes import Pass, observe
from sgpa.posthoc.reservoir import Reservoir
from sgpa.posthoc.rows import flat_rows, read_rows, real_rows
from sgpa.posthoc.scales import fit_classes, fit_values
from sgpa.posthoc.sites import Site
from sgpa.posthoc.statistics import Statistics, device_of
from sgpa.posthoc.unfamiliar import made_unfamiliar

MAX_NUMBERS = 5e7  # logits that are kept at most
MAX_ROWS = 20_000
MAX_STRANGERS = 500  # rows of each kind that are made unfamiliar
CAUSAL = ("CausalLM", "LMHead", "ConditionalGeneration")  # in the names of decoders
IGNORED = -100  # target of tokens that do not count


@torch.no_grad()
def calibrate(
    model: nn.Module,
    sites: tuple[Site, ...],
    fitted: Statistics,
    loader: Iterable[Any],
    max_batches: int | None,
    unfamiliar: Mapping[str, Iterable[Any]] | None = None,
) -> Adapter:
    """Everything that a prediction needs.

    Args:
        model: the model.
        sites: its attention modules.
        fitted: what `fit_statistics` returned.
        loader: batches with labels.
        max_batches: batches to read; all where it is None.
        unfamiliar: batches by kind; made from those of the loader where it is None.
    """
    if torch.is_inference_mode_enabled():
        raise InputError("calibrate: needs gradients; call it outside torch.inference_mode()")
    device, shift = device_of(model), answers_for_next(model, fitted.head)
    gps = LayerGps.on(fitted.gps, fitted.head_gp, device)
    rows: Reservoir | None = None
    strangers = Strangers(model, sites, fitted, gps)
    for batch in islice(loader, max_batches):
        call = read_batch(batch, device)
        seen = observe(model, sites, fitted.head, call)
        if rows is None:
            rows = Reservoir(int(min(MAX_ROWS, MAX_NUMBERS / seen.logits.shape[-1])))
        targets = aligned_targets(call, seen, shift)
        real = real_rows(seen)
        labelled = _labelled(targets)
        keep = labelled if real is None else labelled & real
        rows.add([*read_rows(seen, gps, fitted.views).flat(keep), targets[keep]])
        if unfamiliar is None:
            strangers.add_changed(replace(call, padding=seen.padding))
    if rows is None or not len(rows):
        raise InputError("calibrate: the loader yields no labelled row")
    logits, carried, views, targets = rows.columns()
    classes = logits.shape[1] > 1
    if classes and targets.is_floating_point():
        raise InputError(
            f"calibrate: targets are {targets.dtype} for {logits.shape[1]} outputs (allowed: whole numbers)"
        )
    check_outputs(logits, targets)
    with torch.enable_grad():
        fit = fit_classes(logits, carried, targets) if classes else fit_values(logits[:, 0], carried, targets)
    for kind, batches in (unfamiliar or {}).items():
        for batch in batches:
            strangers.add(kind, read_batch(batch, device))
    novelty = TransformerNovelty.fit(fitted.views, views, strangers.columns())
    head_name = next(name for name, module in model.named_modules() if module is fitted.head)
    names = tuple(site.name for site in sites)
    return Adapter(
        gps=fitted.gps,
        head_gp=fitted.head_gp,
        scales=fit,
        novelty=novelty,
        share=fitted.share,
        modules=names,
        head=head_name,
        classes=classes,
        shift=shift,
        model=weights_fingerprint(model),
        model_type=type(model).__name__,
    )


def _labelled(targets: Tensor) -> Tensor:
    """False at class labels that stand for no label; every value is a target of a regressor."""
    return torch.ones_like(targets, dtype=torch.bool) if targets.is_floating_point() else targets != IGNORED


def check_outputs(logits: Tensor, targets: Tensor) -> None:
    """Raise where the outputs [N, C] are probabilities instead of logits, or one logit of two classes."""
    if logits.shape[1] == 1:
        if bool(((targets == 0) | (targets == 1)).all()):
            raise InputError(
                "calibrate: one output and targets 0 and 1; a classifier of two classes must return two "
                "logits, such as torch.cat([torch.zeros_like(f), f], -1)"
            )
    elif bool((logits >= 0).all()) and bool(((logits.sum(1) - 1).abs() < 1e-3).all()):
        raise InputError("calibrate: the model returns probabilities; attach to one that returns logits")


class Strangers:
    """What the model shows of rows that are unfamiliar, by kind; of each at most `MAX_STRANGERS`."""

    def __init__(self, model: nn.Module, sites: tuple[Site, ...], fitted: Statistics, gps: LayerGps) -> None:
        self.model, self.sites, self.fitted, self.gps = model, sites, fitted, gps
        self.kinds: dict[str, Reservoir] = {}

    def add_changed(self, call: Call) -> None:
        """Rows of a batch, made unfamiliar."""
        if all(kind.full for kind in self.kinds.values()) and self.kinds:
            return
        for i, changed in enumerate(made_unfamiliar(call)):
            with suppress(InputError):  # a model need not take every kind of changed rows
                self.add(str(i), changed)

    def add(self, kind: str, call: Call) -> None:
        """Rows of a batch."""
        seen = observe(self.model, self.sites, self.fitted.head, call)
        views = self.fitted.views.columns(seen, self.gps.head.variance(seen.head))  # [..., K]
        columns = flat_rows([views], seen.logits.ndim - 1, real_rows(seen))
        self.kinds.setdefault(kind, Reservoir(MAX_STRANGERS)).add(columns)

    def columns(self) -> list[Tensor]:
        """Columns of novelty of every kind, [N, K] each."""
        return [kind.columns()[0] for kind in self.kinds.values()]


def answers_for_next(model: nn.Module, head: nn.Module) -> bool:
    """Whether the output of a token answers for the next one, as in Hugging Face's causal language models.

    Such a model may be inside another module, which returns the scores of its head.
    """

    def is_causal(module: nn.Module) -> bool:
        return any(word in type(module).__name__ for word in CAUSAL)

    def makes_outputs(module: nn.Module) -> bool:
        output = getattr(module, "get_output_embeddings", lambda: None)()
        return output is not None and any(part is head for part in output.modules())

    return is_causal(model) or any(is_causal(m) and makes_outputs(m) for m in model.modules())


def aligned_targets(call: Call, seen: Pass, shift: bool) -> Tensor:
    """The target of every answer, [B] or [B, T]; the label of the next token where outputs answer for it."""
    if call.targets is None:
        raise InputError(
            "calibrate: the batch has no labels; yield (inputs, labels), or a mapping with 'labels'"
        )
    targets, expected = call.targets, seen.logits.shape[:-1]
    targets = targets if targets.is_floating_point() else targets.long()
    if targets.ndim == len(expected) + 1 and targets.shape[-1] == 1:
        targets = targets.squeeze(-1)
    if targets.shape == seen.logits.shape and targets.shape[-1] > 1:
        raise InputError(
            f"calibrate: labels of the shape of the outputs, {list(targets.shape)} (allowed: one class a "
            "row, as its number; several labels a row are not supported)"
        )
    if targets.shape != expected:
        raise InputError(
            f"calibrate: labels of shape {list(call.targets.shape)} for outputs {list(seen.logits.shape)}"
        )
    if not shift or not seen.per_token:
        return targets
    _check_not_moved(call, targets)
    return torch.cat([targets[:, 1:], torch.full_like(targets[:, :1], IGNORED)], 1)


def _check_not_moved(call: Call, targets: Tensor) -> None:
    """Raise where the labels [B, T] are those of the next tokens already."""
    ids = call.args[0] if call.args else call.options.get("input_ids")
    if not isinstance(ids, Tensor) or ids.shape != targets.shape:
        return
    ahead = (targets[:, :-1] == ids[:, 1:])[targets[:, :-1] != IGNORED]
    if len(ahead) and bool(ahead.all()) and not bool((targets == ids)[targets != IGNORED].all()):
        raise InputError(
            "calibrate: the labels are input_ids moved by one token; give input_ids themselves as labels, "
            "which are moved here as in the model"
        )
