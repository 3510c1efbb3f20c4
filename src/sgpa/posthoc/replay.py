"""Passes that skip what noise does not reach.

Blocks before the first noisy attention give the same results in every pass, and so do the heads of that
attention. They are recorded in one pass, and the others take them from there. Which modules are blocks is
guessed: the elements of the `nn.ModuleList` that the attention is in. So a replay is compared with the
recorded pass before it is used.

Where a model answers from its first token, the last block needs no other one after its attention: the output
projection and the feed-forward layer then read the first token alone. Other tokens get a wrong sum, which
nothing reads.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from sgpa.posthoc.sites import Site

TOLERANCE = 1e-4  # of the outputs of a replay, in units of their largest


@dataclass
class Tape:
    """Results of modules that noise does not reach, for the rows of one batch."""

    blocks: list[nn.Module]  # before the one with the first noisy attention
    last: nn.Module  # the last block
    site: Site  # the first noisy attention
    end: Site  # the last attention that has a GP
    projection: nn.Module | None = None  # the first map that reads its heads, where it is in the last block
    results: dict[nn.Module, Any] = field(default_factory=dict)
    heads: Tensor | None = None  # what the output projection of the attention reads, where it has one
    rows: int = 0
    wide: nn.Module | None = None  # the first map of the last block's feed-forward layer
    first_token: bool = True  # it reads the first token alone

    @staticmethod
    def of(model: nn.Module, site: Site, last: Site) -> "Tape | None":
        """For a model whose first noisy attention is `site`; None where it is in no list of blocks.

        Args:
            model: the model.
            site: the first noisy attention.
            last: the last attention that has a GP.
        """
        known, path = dict(model.named_modules()), site.name.split(".")
        for depth in range(len(path) - 1, 0, -1):
            blocks = known[".".join(path[:depth])]
            if isinstance(blocks, nn.ModuleList) and depth < len(path) - 1:
                return Tape(list(blocks)[: int(path[depth])], blocks[-1], site, last)
        return None

    @contextmanager
    def recording(self, rows: int) -> Iterator[None]:
        """A block in which one pass over so many rows is recorded."""
        self.rows = rows
        over: list[bool] = []  # the last attention has returned

        def keep(module: nn.Module, _: object, result: Any) -> None:
            self.results[module] = result

        def keep_map(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            if not args or args[0].ndim != 3:
                return
            if module is self.end.projection or (over and self.projection is None):
                self.projection = module
            if isinstance(module, nn.Linear) and module.out_features > module.in_features:
                self.wide = module

        def keep_heads(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            self.heads = args[0]

        with ExitStack() as undo:
            for module in (*self.blocks, self.site.module):
                undo.callback(module.register_forward_hook(keep).remove)
            inside = list(self.last.modules())
            if any(module is self.end.module for module in inside):
                undo.callback(self.end.module.register_forward_hook(lambda *_: over.append(True)).remove)
            for module in inside:
                if isinstance(module, nn.Linear) or module is self.end.projection:
                    undo.callback(module.register_forward_pre_hook(keep_map).remove)
            if self.site.projection is not None:
                undo.callback(self.site.projection.register_forward_pre_hook(keep_heads).remove)
            yield

    @contextmanager
    def replaying(self, copies: int) -> Iterator[None]:
        """A block in which a pass over several copies of the rows takes the recorded results."""
        with ExitStack() as undo:
            for module in self.blocks:
                undo.enter_context(_replaced(module, repeated(self.results[module], self.rows, copies)))
            attention, projection = self.site.module, self.site.projection
            result = repeated(self.results[attention], self.rows, copies)
            heads = repeated(self.heads, self.rows, copies)
            undo.enter_context(_replaced(attention, result, projection, heads))
            yield

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """A block in which the last block reads the first token alone after its attention.

        To be entered after noise has its hooks: heads are cut once noise was added to them.
        """
        with ExitStack() as undo:
            if self.first_token and self.wide is not None:
                for module in (self.projection, self.wide):
                    if module is not None:
                        undo.callback(module.register_forward_pre_hook(_first_token).remove)
            yield


def _first_token(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (args[0][:, :1], *args[1:])


@contextmanager
def _replaced(
    module: nn.Module, result: Any, projection: nn.Module | None = None, heads: Any = None
) -> Iterator[None]:
    """A block in which a module returns a result; with a projection, of the heads that noise is added to."""

    def forward(*_: Any, **__: Any) -> Any:
        if projection is None:
            return result
        value = projection(heads)
        return (value, *result[1:]) if isinstance(result, tuple) else value

    own = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own


def repeated(value: Any, rows: int, copies: int) -> Any:
    """Tensors [rows, ...] one copy after the other, also inside tuples; other things as they are."""
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(repeated(each, rows, copies) for each in value)
    if copies > 1 and isinstance(value, Tensor) and value.ndim and value.shape[0] == rows:
        return value.repeat(copies, *[1] * (value.ndim - 1))
    return value


def same_outputs(logits: Tensor, expected: Tensor) -> bool:
    """Whether outputs agree up to rounding."""
    if logits.shape != expected.shape:
        return False
    largest = float(expected.abs().amax().clamp_min(1e-6))
    return float((logits - expected).abs().amax()) <= TOLERANCE * largest
