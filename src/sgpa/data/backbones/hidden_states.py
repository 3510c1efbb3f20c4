"""One hidden state of a Transformer, without the layers behind it."""

from typing import Any

from torch import Tensor, nn

from sgpa.core.errors import InputError


class _Reached(Exception):
    """Ends a pass at a layer and carries the input of that layer, [B, T, F]."""

    def __init__(self, state: Tensor) -> None:
        self.state = state


def hidden_state(model: Any, layer: int | None, name: str, **inputs: Tensor) -> Tensor:
    """`model(**inputs, output_hidden_states=True).hidden_states[layer]`, [B, T, F].

    The state of a layer is the input of the next one, so that the pass ends there. Networks whose layers
    cannot be told are computed to their end.

    Args:
        model: A network of the `transformers` package.
        layer: 0 for the embeddings; by default two thirds of the depth.
        name: The network, for errors.
        inputs: What the network reads.
    """
    blocks = blocks_of(model)
    if blocks is not None and (wanted := chosen_layer(layer, len(blocks), name)) < len(blocks):
        hook = blocks[wanted].register_forward_pre_hook(_stop, with_kwargs=True)
        try:
            model(**inputs)
        except _Reached as reached:
            return reached.state
        finally:
            hook.remove()
    states = model(**inputs, output_hidden_states=True).hidden_states
    state: Tensor = states[chosen_layer(layer, len(states) - 1, name)]
    return state


def blocks_of(model: Any) -> nn.ModuleList | None:
    """The layers of a network: its only list of as many modules as its config says; else None."""
    depth = getattr(model.config, "num_hidden_layers", None)
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList) and len(part) == depth]
    return lists[0] if len(lists) == 1 else None


def chosen_layer(layer: int | None, depth: int, name: str) -> int:
    """The number of a hidden state, by default at two thirds of the depth.

    >>> chosen_layer(None, 6, "minilm")
    4
    """
    chosen = max(1, round(2 / 3 * depth)) if layer is None else layer
    if chosen > depth:
        raise InputError(f"backbone {name}: layer={chosen} (allowed: 0 to {depth})")
    return chosen


def _stop(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    raise _Reached(args[0] if args else kwargs["hidden_states"])
