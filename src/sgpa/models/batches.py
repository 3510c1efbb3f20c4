"""A function of all rows, computed a batch at a time on the model's device."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from sgpa.core.errors import InputError
from sgpa.core.inputs import Inputs, tensors_of

if TYPE_CHECKING:
    from sgpa.models.transformer import Transformer


def in_batches(
    model: "Transformer",
    function: Callable[[Inputs], Tensor],
    inputs: Inputs,
    *,
    samples: int = 1,
    rows: int | None = None,
) -> Iterator[Tensor]:
    """The function of `rows` rows at a time, which are on the model's device.

    Args:
        model: What the function runs.
        function: Of a batch of inputs.
        inputs: All rows.
        samples: Passes that the function makes for every row, for the default of `rows`.
        rows: In a batch; by default what fits the caches of a CPU, or keeps a GPU busy.
    """
    if any(x.is_meta for x in tensors_of(inputs)):
        raise InputError("inputs are meta tensors (allowed: tensors with values)")
    if no_rows(inputs):
        raise InputError("nothing to predict: the inputs have no row")
    if rows is not None and rows < 1:
        raise InputError(f"batch_size={rows} (allowed: 1 or more)")
    rows = rows or _rows_at_once(model, inputs, samples)
    for i in range(0, len(inputs), rows):
        yield function(inputs[i : i + rows].to(model.device))


def no_rows(inputs: Inputs) -> bool:
    """Whether there is no row to predict."""
    return (isinstance(inputs, Tensor) and inputs.ndim == 0) or len(inputs) == 0


def _rows_at_once(model: "Transformer", inputs: Inputs, samples: int) -> int:
    """Rows whose Gram matrices [rows S, H, T, T] stay in the caches of a CPU, or keep a GPU busy."""
    embedding = model.config.embedding
    if isinstance(inputs, Tensor):  # images, token ids [N, T] or features [N, T, F]
        tokens = inputs.shape[1] if inputs.ndim in (2, 3) else embedding.max_tokens
        tokens = -(-tokens // getattr(embedding, "group", 1))
    else:
        tokens = inputs.tokens
    rows, entries = (256, 4_000_000) if model.device.type == "cpu" else (8192, 1_000_000_000)
    return max(1, min(rows, entries // (model.config.heads * tokens**2)) // samples)
