"""Attention modules of other libraries, and the hooks that read their queries and reach their heads.

A site is one attention module. Queries are those of the projection: rotary positions and norms come later, so
that a query does not depend on where its token is, and grouped keys and values do not matter.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.hooks import RemovableHandle

from sgpa.attention.base import Attention
from sgpa.attention.kernel import KernelProjections
from sgpa.attention.masks import as_bool

OnQueries = Callable[[Tensor, Tensor, Tensor | None], None]  # x [B, T, E], q [B, T, H, D], padding [B, T]
OnHeads = Callable[[Tensor], None]  # o [B, T, H, V]
MakeNoise = Callable[[], Tensor]  # what is added to o, [B, T, H, V]


@dataclass(frozen=True)
class Site(ABC):
    """One attention module of a model. Each method adds a hook and returns its handle."""

    name: str
    module: nn.Module
    heads: int

    @property
    @abstractmethod
    def projection(self) -> nn.Module | None:
        """The output projection that noise is added before; None where it is added after the module."""

    @abstractmethod
    def read_queries(self, on_queries: OnQueries) -> RemovableHandle:
        """Report what the module reads, its queries and, where it is told, the padding."""

    @abstractmethod
    def read_heads(self, on_heads: OnHeads) -> RemovableHandle:
        """Report the outputs of the heads, before the output projection."""

    @abstractmethod
    def add_noise(self, noise: MakeNoise) -> RemovableHandle:
        """Add to the outputs of the heads; called after `read_queries` reported."""

    def split(self, x: Tensor) -> Tensor:
        """[B, T, H D] -> [B, T, H, D]."""
        return x.unflatten(-1, (self.heads, -1))


@dataclass(frozen=True)
class ProjectedSite(Site):
    """Linear maps for queries and, in most libraries, for the output are modules of their own.

    `parts` is the number of equal blocks that the query projection returns: 1, or 3 where queries, keys and
    values come from one map; with `by_head` each head has its three blocks side by side. Without an output
    projection the module returns the outputs of the heads.
    """

    query: nn.Module
    output: nn.Module | None
    parts: int = 1
    by_head: bool = False

    @property
    def projection(self) -> nn.Module | None:
        """The output projection, where there is one."""
        return self.output

    def read_queries(self, on_queries: OnQueries) -> RemovableHandle:
        """Report after the query projection has run."""

        def read(_: nn.Module, args: tuple[Tensor, ...], result: Tensor) -> None:
            on_queries(args[0], self.queries(result), None)

        return self.query.register_forward_hook(read)

    def queries(self, result: Tensor) -> Tensor:
        """The queries [B, T, H, D] in what the projection returns."""
        if self.by_head:
            return self.split(result).chunk(self.parts, -1)[0]
        return self.split(result.chunk(self.parts, -1)[0])

    def read_heads(self, on_heads: OnHeads) -> RemovableHandle:
        """Before the output projection, or after the module."""
        if self.output is not None:
            return self.output.register_forward_pre_hook(lambda _, args: on_heads(self.split(args[0])))
        return self.module.register_forward_hook(lambda _, __, result: on_heads(self.split(_first(result))))

    def add_noise(self, noise: MakeNoise) -> RemovableHandle:
        """Before the output projection, or after the module."""

        def before(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (args[0] + noise().reshape(args[0].shape).to(args[0].dtype), *args[1:])

        def after(_: nn.Module, __: object, result: Any) -> Any:
            value = _first(result)
            moved = value + noise().reshape(value.shape).to(value.dtype)
            return (moved, *result[1:]) if isinstance(result, tuple) else moved

        if self.output is not None:
            return self.output.register_forward_pre_hook(before)
        return self.module.register_forward_hook(after)


@dataclass(frozen=True)
class TorchSite(Site):
    """`nn.MultiheadAttention`, which calls no module for its projections.

    Queries are projected a second time. The outputs of the heads follow from the module's result by the
    pseudo-inverse of the output projection.
    """

    module: nn.MultiheadAttention

    @property
    def projection(self) -> None:
        """None: the projection is a weight of the module, not a module that is called."""

    def read_queries(self, on_queries: OnQueries) -> RemovableHandle:
        """Report before the module runs, with queries that are projected again."""
        m = self.module

        def read(_: nn.Module, args: tuple[Tensor, ...], options: dict[str, Any]) -> None:
            query = args[0] if args else options["query"]
            key = args[1] if len(args) > 1 else options.get("key")
            mask = args[3] if len(args) > 3 else options.get("key_padding_mask")
            x = query if m.batch_first else query.transpose(0, 1)  # [B, T, E]
            padding = None if mask is None else as_bool(mask, "key_padding_mask", self.name)
            W_q = m.q_proj_weight if m.in_proj_weight is None else m.in_proj_weight[: m.embed_dim]
            bias = None if m.in_proj_bias is None else m.in_proj_bias[: m.embed_dim]
            fits = padding is not None and key is query and padding.shape == x.shape[:2]
            on_queries(x, self.split(linear(x, W_q, bias)), padding if fits else None)

        return m.register_forward_pre_hook(read, with_kwargs=True)

    def read_heads(self, on_heads: OnHeads) -> RemovableHandle:
        """Report after the module has run."""
        W_o, bias = self.module.out_proj.weight.detach(), self.module.out_proj.bias
        undo = torch.linalg.pinv(W_o.float())

        def read(_: nn.Module, __: object, result: tuple[Tensor, Any]) -> None:
            value = self._batch_first(result[0] if bias is None else result[0] - bias)
            on_heads(self.split(linear(value.float(), undo)))

        return self.module.register_forward_hook(read)

    def add_noise(self, noise: MakeNoise) -> RemovableHandle:
        """After the module, through its output projection."""

        def after(_: nn.Module, __: object, result: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
            value, *others = result
            added = linear(noise().flatten(-2).to(value.dtype), self.module.out_proj.weight)
            return (value + self._batch_first(added), *others)

        return self.module.register_forward_hook(after)

    def _batch_first(self, x: Tensor) -> Tensor:
        """Swap the first two dimensions where the module does not have the batch first."""
        return x if self.module.batch_first else x.transpose(0, 1)


@dataclass(frozen=True)
class OwnSite(Site):
    """Deterministic attention of this library: `DotProductAttention` or `KernelAttention`."""

    module: Attention

    @property
    def projection(self) -> nn.Module:
        """The output projection of the layer."""
        return self.module.W_o

    def read_queries(self, on_queries: OnQueries) -> RemovableHandle:
        """Before the module; queries of a kernel are in units of its length-scales."""
        m = self.module

        def read(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
            x, padding = args[0], args[1] if len(args) > 1 else options.get("key_padding_mask")
            q = m.queries_keys(x)[0] if isinstance(m, KernelProjections) else m.heads(x, m.W_q)  # type: ignore[arg-type]
            on_queries(x, q.transpose(-3, -2), padding)

        return m.register_forward_pre_hook(read, with_kwargs=True)

    def read_heads(self, on_heads: OnHeads) -> RemovableHandle:
        """Before the output projection."""
        return self.module.W_o.register_forward_pre_hook(lambda _, args: on_heads(self.split(args[0])))

    def add_noise(self, noise: MakeNoise) -> RemovableHandle:
        """Before the output projection."""
        return self.module.W_o.register_forward_pre_hook(
            lambda _, args: (args[0] + noise().flatten(-2).to(args[0].dtype),)
        )


def _first(result: Any) -> Tensor:
    """The tensor that a module returns, alone or before others."""
    return result[0] if isinstance(result, tuple) else result
