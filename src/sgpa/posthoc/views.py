"""What novelty looks at: columns of one pass, each high where the model meets what it does not know.

- *Output*: free energy and entropy of the logits.
- *Tokens*: the variance that a GP over what attention reads leaves, averaged over tokens; one GP a layer.
- *Rows*: the same of states that are averaged over tokens before; one GP a layer, and the one over what the
  head reads.

The GPs read whitened inputs (`feature_gp.py`). Where there are several layers, the first is left out: its
tokens are familiar one by one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sgpa.core.errors import CheckpointError
from sgpa.posthoc.feature_gp import FeatureGp
from sgpa.posthoc.passes import Pass

OUTPUT, HEAD = ("energy", "entropy"), "head"
ROW_POINTS = 256


def viewed_layers(count: int) -> range:
    """Numbers of the layers that novelty looks at."""
    return range(min(1, count - 1), count)


def all_names(layers: int) -> tuple[str, ...]:
    """Names of all columns that there can be of a model with so many layers."""
    return (*OUTPUT, *(f"{kind}.{i}" for kind in ("tokens", "rows") for i in range(layers)), HEAD)


@dataclass(frozen=True)
class Views:
    """Names of columns, and the GPs of those that need one: `tokens.2`, `rows.5`."""

    names: tuple[str, ...]
    gps: Mapping[str, FeatureGp]

    @staticmethod
    def fit(
        tokens: Sequence[Tensor], rows: Sequence[Tensor], *, points: int, classes: bool, device: torch.device
    ) -> "Views":
        """GPs of all layers.

        Args:
            tokens: what attention reads in every layer, [N, E] each.
            rows: averages over tokens in every layer, [N, E] each; none where every token has an answer.
            points: inducing points of a GP over tokens.
            classes: whether the outputs are logits of classes.
            device: where it is computed.
        """
        layers = viewed_layers(len(tokens))
        gps = {f"tokens.{i}": FeatureGp.fit(tokens[i].to(device), points) for i in layers}
        if rows:
            gps |= {f"rows.{i}": FeatureGp.fit(rows[i].to(device), ROW_POINTS) for i in layers}
        return Views((*(OUTPUT if classes else ()), *gps, HEAD), gps)

    def columns(self, seen: Pass, head: Tensor) -> Tensor:
        """The columns side by side [..., K]; `head` is the variance of the GP over what the head reads."""
        return torch.stack([self._column(name, seen, head) for name in self.names], -1)

    def _column(self, name: str, seen: Pass, head: Tensor) -> Tensor:
        if name == HEAD:
            return head
        if name == "energy":
            return -seen.logits.logsumexp(-1)
        if name == "entropy":
            return torch.special.entr(seen.logits.softmax(-1)).sum(-1)
        kind, layer = name.split(".")
        x, gp = seen.states[int(layer)], self.gps[name]
        return seen.rows(gp.token_variance(x)) if kind == "tokens" else gp.variance(seen.rows(x))

    def part(self, keep: Sequence[bool]) -> "Views":
        """Some of the columns."""
        names = tuple(name for name, kept in zip(self.names, keep, strict=True) if kept)
        return Views(names, {name: gp for name, gp in self.gps.items() if name in names})

    def groups(self) -> list[list[int]]:
        """Numbers of the columns by kind: output, tokens, rows and head."""
        kinds = [name.split(".")[0] for name in self.names]
        several = (OUTPUT, ("tokens",), ("rows", HEAD))
        return [[i for i, kind in enumerate(kinds) if kind in group] for group in several]

    def to(self, device: torch.device) -> "Views":
        """The same on another device."""
        return Views(self.names, {name: gp.to(device) for name, gp in self.gps.items()})

    def tensors(self) -> dict[str, Tensor]:
        """The GPs, to be saved."""
        tensors: dict[str, Tensor] = {}
        for name, gp in self.gps.items():
            tensors |= gp.tensors(f"novelty.{name}")
        return tensors

    @staticmethod
    def from_tensors(
        named: Mapping[str, Tensor], names: Sequence[str], layers: int, source: object
    ) -> "Views":
        """What `tensors` returned, of columns with these names."""
        if not names or not set(all_names(layers)).issuperset(names) or len(set(names)) < len(names):
            raise CheckpointError(f"{source}: views={list(names)}; it was damaged")
        gps = {
            name: FeatureGp.from_tensors(named, f"novelty.{name}", source) for name in names if "." in name
        }
        return Views(tuple(names), gps)
