"""One pass of a model in evaluation mode, with hooks that are there only while it runs."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.models.modes import evaluating
from sgpa.posthoc.calls import Call, logits_of, padding_of
from sgpa.posthoc.sites import Site

# number of a site and its queries [B, T, H, D] -> what is added to the outputs of its heads, [B, T, H, V]
Noise = Callable[[int, Tensor], Tensor]
OnHeads = Callable[[int, Tensor], None]  # number of a site and the outputs of its heads, [B, T, H, V]


@dataclass
class Pass:
    """What one pass showed: tokens [B, T, ...] of every site, the head's rows, the outputs."""

    states: dict[int, Tensor] = field(default_factory=dict)  # what attention reads          [B, T, E]
    queries: dict[int, Tensor] = field(default_factory=dict)  # [B, T, H, D]
    head: Tensor = field(
        default_factory=lambda: torch.empty(0)
    )  # what the last layer reads [B, E] or [B, T, E]
    logits: Tensor = field(default_factory=lambda: torch.empty(0))  # [B, C] or [B, T, C]
    padding: Tensor | None = None  # [B, T] bool

    @property
    def per_token(self) -> bool:
        """Whether the model answers for every token instead of for every sequence."""
        return self.logits.ndim == 3

    def rows(self, x: Tensor) -> Tensor:
        """One row per answer: tokens [B, T, ...] as they are, or their mean without padding [B, ...]."""
        if self.per_token:
            return x
        if self.padding is None:
            return x.mean(1)
        real = (~self.padding).to(x.dtype).view(*self.padding.shape, *[1] * (x.ndim - 2))  # [B, T, 1...]
        return (x * real).sum(1) / real.sum(1).clamp_min(1)


def observe(
    model: nn.Module,
    sites: tuple[Site, ...],
    head: nn.Module,
    call: Call,
    *,
    noise: Noise | None = None,
    on_heads: OnHeads | None = None,
) -> Pass:
    """Run the model once and read its attention.

    The model runs in evaluation mode and without torch's fused inference path, which calls no hooks.

    Args:
        model: the model.
        sites: its attention modules; there may be none.
        head: the linear layer that makes its outputs.
        call: the batch.
        noise: added to the outputs of heads; where it is left out, the pass is the model's own.
        on_heads: called with the outputs of heads.
    """
    seen = Pass(padding=padding_of(model, call))
    features: list[tuple[Tensor, Tensor]] = []

    def keep_queries(i: int, x: Tensor, q: Tensor, padding: Tensor | None) -> None:
        seen.states[i], seen.queries[i] = x, q
        seen.padding = seen.padding if padding is None else padding

    with ExitStack() as undo:
        undo.enter_context(evaluating(model))
        undo.enter_context(plain_attention())
        for i, site in enumerate(sites):
            undo.callback(site.read_queries(partial(keep_queries, i)).remove)
            if on_heads is not None:
                undo.callback(site.read_heads(partial(on_heads, i)).remove)
            if noise is not None:
                undo.callback(site.add_noise(partial(_make_noise, noise, i, seen)).remove)
        keep = head.register_forward_hook(lambda _, args, result: features.append((args[0], result)))
        undo.callback(keep.remove)
        seen.logits = logits_of(call(model), model)
    missing = [site.name for i, site in enumerate(sites) if i not in seen.queries]
    if missing:
        raise InputError(
            f"{type(model).__name__}: the pass did not call {missing[0]}; name others by modules=[...]"
        )
    if not features:
        raise InputError(f"{type(model).__name__}: the pass did not call the head; name it by head=...")
    _fold_windows(seen, sites)
    tokens = seen.states[0].shape[1] if sites else seen.logits.shape[1]
    if seen.per_token and seen.logits.shape[1] != tokens:
        raise InputError(
            f"{type(model).__name__} answers for {seen.logits.shape[1]} of {tokens} tokens (allowed: all); "
            "leave out arguments such as logits_to_keep"
        )
    if sites:
        seen.padding = _padding_of_tokens(model, seen.padding, tokens, call)
    seen.head = answered_rows(*features[-1], seen.logits, seen.padding)
    return seen


def _fold_windows(seen: Pass, sites: tuple[Site, ...]) -> None:
    """Tokens of windows that images were cut into, [B W, T, ...], as tokens of images [B, W T, ...]."""
    rows = seen.logits.shape[0]
    for i, x in seen.states.items():
        if x.ndim != 3 or (x.shape[0] != rows and (x.shape[0] % rows or seen.padding is not None)):
            raise InputError(
                f"{sites[i].name} reads {list(x.shape)} for {rows} rows (allowed: [rows, tokens, width]); "
                "leave it out by modules=[...]"
            )
        if x.shape[0] != rows:
            q = seen.queries[i]
            seen.states[i], seen.queries[i] = (
                x.reshape(rows, -1, x.shape[-1]),
                q.reshape(rows, -1, *q.shape[2:]),
            )


def check_not_compiled(model: nn.Module, action: str) -> None:
    """Raise where a part of a model was compiled: what was compiled calls no hooks that come later."""
    for name, module in model.named_modules():
        own = module.__dict__.get("forward")
        if (
            hasattr(module, "_orig_mod")
            or module._compiled_call_impl is not None
            or hasattr(own, "_torchdynamo_orig_callable")
        ):
            raise InputError(
                f"{action}: {name or type(module).__name__} was compiled and calls no hooks; attach to the "
                "model before torch.compile"
            )


def dropout_modules(model: nn.Module) -> list[nn.Module]:
    """Dropout layers that drop something."""
    return [module for module in model.modules() if isinstance(module, nn.Dropout) and module.p > 0]


def _make_noise(noise: Noise, i: int, seen: Pass) -> Tensor:
    return noise(i, seen.queries[i])


def answered_rows(x: Tensor, result: Tensor, logits: Tensor, padding: Tensor | None = None) -> Tensor:
    """The rows of a head's input [B, ..., E] whose outputs are the model's, [B, E] or [B, T, E].

    Decoders score every token and return the scores of one; other models average the scores of tokens.
    """
    if result.ndim == logits.ndim:
        return x
    if x.ndim == 3 and logits.ndim == 2 and result.shape[-1] == logits.shape[-1]:
        same = (result.to(logits.dtype) == logits.unsqueeze(1)).all(-1)  # [B, T]
        rows = torch.arange(x.shape[0], device=x.device)  # not len(x), which an exported program would fix
        one = x[rows, same.float().argmax(1)]
        real = torch.ones_like(same) if padding is None or padding.shape != same.shape else ~padding
        mean = (x * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True).clamp_min(1)
        return torch.where(same.any(1, keepdim=True), one, mean.to(x.dtype))
    if x.shape[:-1].numel() != logits.shape[:-1].numel():
        raise InputError(
            f"head: its input {list(x.shape)} does not give the outputs {list(logits.shape)}; name the layer "
            "that makes them"
        )
    return x.reshape(*logits.shape[:-1], x.shape[-1])


def find_head(model: nn.Module, call: Call) -> nn.Module:
    """The linear layer that makes the outputs of a model: the last one that was called with their width.

    Raises:
        InputError: there is none.
    """
    called: list[tuple[nn.Module, int]] = []

    def keep(module: nn.Module, _: object, result: object) -> None:
        if isinstance(result, Tensor) and result.ndim:
            called.append((module, result.shape[-1]))

    with ExitStack() as undo, torch.no_grad():
        undo.enter_context(evaluating(model))
        undo.enter_context(plain_attention())
        for module in model.modules():
            if isinstance(module, nn.Linear):
                undo.callback(module.register_forward_hook(keep).remove)
        width = logits_of(call(model), model).shape[-1]
    fitting = [module for module, size in called if size == width]
    if not fitting or called[-1][1] != width:
        raise InputError(
            f"{type(model).__name__}: no linear layer makes its {width} outputs; name the module that reads "
            "the features by attach(model, head=...)"
        )
    return fitting[-1]


@contextmanager
def plain_attention() -> Iterator[None]:
    """A block without torch's fused inference path for encoder layers and multi-head attention.

    The path is a flag of the whole process: the first thread to enter turns it off, the last one restores it.
    """
    with _counting:
        if not _fused:
            _fused.append(torch.backends.mha.get_fastpath_enabled())
            torch.backends.mha.set_fastpath_enabled(False)
        else:
            _fused.append(_fused[0])
    try:
        yield
    finally:
        with _counting:
            before = _fused.pop()
            if not _fused:
                torch.backends.mha.set_fastpath_enabled(before)


_counting = Lock()
_fused: list[bool] = []  # the flag as it was, once for each block that is open


def _padding_of_tokens(model: nn.Module, padding: Tensor | None, tokens: int, call: Call) -> Tensor | None:
    """Padding of the tokens of this pass, of a mask that may be longer.

    With a key-value cache the mask also covers earlier tokens. Speech models have a token for many samples.
    """
    if padding is None or padding.shape[1] < tokens:
        return None
    if padding.shape[1] == tokens or call.options.get("past_key_values") is not None:
        return padding[:, padding.shape[1] - tokens :]
    of_tokens = getattr(model, "_get_feature_vector_attention_mask", None)
    if of_tokens is None:
        raise InputError(
            f"{type(model).__name__}: a mask of {padding.shape[1]} columns for {tokens} tokens of attention "
            "(allowed: one column a token)"
        )
    mask: Tensor = of_tokens(tokens, (~padding).long())
    return mask == 0
