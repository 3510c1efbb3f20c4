"""What a data loader yields, as a call of the model; and what the model returns, as logits."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError
from sgpa.core.inputs import Batch, Graphs, Words
from sgpa.core.precision import recording
from sgpa.core.user_code import errors_of

TARGETS = ("labels", "label", "targets", "target")  # keys of a mapping that the model must not see
KINDS = "a tensor, a mapping of the model's arguments, or a pair (inputs, targets)"
MASK = "attention_mask"


@dataclass(frozen=True)
class Call:
    """Arguments of one forward pass."""

    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    targets: Tensor | None = None  # [B], or [B, T] for outputs of tokens
    padding: Tensor | None = None  # True at padding                                   [B, T] bool

    def __call__(self, model: nn.Module) -> Any:
        """Run the model."""
        if torch.compiler.is_compiling():
            return model(*self.args, **self.options)
        with errors_of(f"{type(model).__name__} does not take this batch"):
            return model(*self.args, **self.options)

    @property
    def rows(self) -> int | None:
        """How many rows all arguments have; None where they are no tensors, or differ."""
        values = (*self.args, *self.options.values())
        sizes = {x.shape[0] if isinstance(x, Tensor) and x.ndim else None for x in values}
        return sizes.pop() if len(sizes) == 1 else None

    def first(self, rows: int) -> "Call":
        """The first rows without their targets; all of them where `rows` is not known."""
        return self if self.rows is None else self._with_tensors(lambda x: x[:rows])

    def repeated(self, times: int) -> "Call":
        """All rows several times, one copy after the other; `rows` must be known."""
        return self._with_tensors(lambda x: x.repeat(times, *[1] * (x.ndim - 1)))

    def reversed(self) -> "Call":
        """The rows in the opposite order; `rows` must be known."""
        return self._with_tensors(lambda x: x.flip(0))

    def _with_tensors(self, change: Callable[[Tensor], Tensor]) -> "Call":
        """The same call of changed tensors, without targets."""
        options = {key: change(x) for key, x in self.options.items()}
        padding = None if self.padding is None else change(self.padding)
        return Call(tuple(change(x) for x in self.args), options, None, padding)


def read_batch(batch: Any, device: torch.device) -> Call:
    """A batch as a call, on the model's device.

    Args:
        batch: a tensor, a mapping (such as a tokenizer returns) with or without labels, or a pair of any of
            these, or of a tuple of positional arguments, and targets; or one of these in a list. The last of
            three or more tensors are the targets, those before it the arguments.
        device: where the model is.

    Example:
        >>> batch = {"input_ids": torch.ones(2, 3).long(), "labels": torch.zeros(2)}
        >>> call = read_batch(batch, torch.device("cpu"))
        >>> list(call.options), call.targets.shape
        (['input_ids'], torch.Size([2]))
    """
    if isinstance(batch, Batch):
        batch = (batch.inputs, batch.targets)
    targets = None
    if isinstance(batch, tuple | list) and len(batch) in (1, 2):
        batch, targets = (batch[0], None) if len(batch) == 1 else batch
    elif isinstance(batch, tuple | list) and batch and all(isinstance(x, Tensor) for x in batch):
        batch, targets = tuple(batch[:-1]), batch[-1]
    elif isinstance(batch, tuple | list):
        raise InputError(f"a batch must be {KINDS}; got a {type(batch).__name__} of {len(batch)}")
    if isinstance(batch, str | bytes | list):
        raise InputError(f"a batch must be {KINDS}; got a {type(batch).__name__}; tokenise texts first")
    if not isinstance(batch, Mapping):
        args = batch if isinstance(batch, tuple) else (batch,)
        return Call(tuple(_move(x, device) for x in args), {}, _targets(targets, device))
    options = {str(key): _move(value, device) for key, value in batch.items() if key not in TARGETS}
    inside = next((batch[key] for key in TARGETS if key in batch), None)
    padding = _padding(options.get(MASK))
    return Call((), options, _targets(inside if targets is None else targets, device), padding)


def named_arguments(model: nn.Module, args: tuple[Any, ...]) -> dict[str, Any]:
    """Positional arguments by the names that the model gives them; empty where it does not say."""
    try:
        return dict(inspect.signature(model.forward).bind(*args).arguments)
    except (TypeError, ValueError):
        return {}


def padding_of(model: nn.Module, call: Call) -> Tensor | None:
    """True at padding [B, T], also where the mask is a positional argument; None where there is no mask."""
    if call.padding is not None or len(call.args) < 2:
        return call.padding
    return _padding(named_arguments(model, call.args).get(MASK))


def _padding(mask: object) -> Tensor | None:
    return mask == 0 if isinstance(mask, Tensor) and mask.ndim == 2 else None


def logits_of(output: Any, model: nn.Module) -> Tensor:
    """The logits or values that a model returned, [B, C] or [B, T, C]; half precision becomes float32."""
    name = type(model).__name__
    for attribute in ("logits", "f"):  # Hugging Face; this library
        if isinstance(getattr(output, attribute, None), Tensor):
            output = getattr(output, attribute)
    if isinstance(output, Mapping):
        output = output.get("logits")
    if isinstance(output, tuple | list) and output:
        output = output[0]
    if not isinstance(output, Tensor) or not output.is_floating_point():
        raise InputError(f"{name} returns no logits; attach to a classifier or a regressor")
    logits = output.unsqueeze(-1) if output.ndim == 1 else output
    if logits.ndim not in (2, 3):
        raise InputError(f"{name} returns {list(output.shape)}; logits must be [B, C] or [B, T, C]")
    if not recording(logits) and not logits.isfinite().all():
        raise InputError(f"{name}: its outputs are not finite for this batch")
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def _move(value: Any, device: torch.device) -> Any:
    with errors_of(f"a batch cannot be moved to {device}"):
        return value.to(device) if isinstance(value, Tensor | Graphs | Words) else value


def _targets(targets: Any, device: torch.device) -> Tensor | None:
    with errors_of("targets are no array of numbers"):
        return None if targets is None else torch.as_tensor(targets).to(device)
