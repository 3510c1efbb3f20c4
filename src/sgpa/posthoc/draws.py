"""Outputs of several passes with noise in the heads of attention."""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from sgpa.models.modes import evaluating
from sgpa.posthoc.calls import Call, logits_of
from sgpa.posthoc.head_gps import HeadGps
from sgpa.posthoc.passes import Pass, dropout_modules, observe, plain_attention
from sgpa.posthoc.replay import Tape, same_outputs
from sgpa.posthoc.sites import Site

MAX_TOGETHER = {"cuda": 2048, "cpu": 64}  # rows that samples are drawn of at once


@dataclass
class Sampler:
    """Draws outputs of one model; remembers for which layers earlier blocks can be replayed."""

    model: nn.Module
    sites: tuple[Site, ...]
    head: nn.Module
    replays: dict[int, bool] = field(default_factory=dict)  # first noisy site -> whether a replay is right
    first_tokens: dict[int, bool] = field(default_factory=dict)  # and whether with first tokens alone

    def __call__(
        self,
        call: Call,
        gps: tuple[HeadGps, ...],
        variance: Tensor,
        *,
        samples: int,
        seed: int,
        dropout: bool = False,
        replay: bool = True,
    ) -> tuple[Pass, Tensor]:
        """One pass without noise, and the outputs of others with it, [S, ..., C].

        Args:
            call: the batch.
            gps: of every site.
            variance: σ² of the noise of every site, [L] or more.
            samples: S.
            seed: of the noise.
            dropout: leave dropout layers on in passes with noise.
            replay: skip earlier blocks where that is possible.
        """
        sigma = variance[: len(self.sites)].tolist()
        noisy = [i for i, x in enumerate(sigma) if x > 0]
        first = noisy[0] if noisy else None
        tape = None
        if replay and first is not None and not dropout and call.rows and self.replays.get(first, True):
            tape = Tape.of(self.model, self.sites[first], self.sites[-1])
        with evaluating(self.model):
            with nullcontext() if tape is None else tape.recording(call.rows or 0):
                seen = observe(self.model, self.sites, self.head, call)
            if first is None and not dropout:
                return seen, seen.logits.expand(samples, *seen.logits.shape)
            noise = Noise(self.sites, gps, sigma, seen, seed)
            if tape is not None and first is not None:
                if first not in self.replays or not self._answers_from_a_place():
                    self._try(first, call, seen, tape)
                tape.first_token = self.first_tokens[first]
                if self.replays[first]:
                    return seen, self._draw(call, noise, samples, tape=tape)
            return seen, self._draw(call, noise, samples, dropout=dropout)

    def _draw(
        self, call: Call, noise: "Noise", samples: int, *, tape: Tape | None = None, dropout: bool = False
    ) -> Tensor:
        limit = MAX_TOGETHER.get(noise.device.type, 1)
        together = max(1, limit // call.rows) if call.rows else 1
        parts = []  # [S', ..., C] each
        for start in range(0, samples, together):
            copies = min(together, samples - start)
            logits = self._pass(call, copies, noise=noise, tape=tape, dropout=dropout)
            parts.append(logits.unflatten(0, (copies, -1)))
        return torch.cat(parts)

    def _pass(
        self,
        call: Call,
        copies: int,
        *,
        noise: "Noise | None" = None,
        tape: Tape | None = None,
        dropout: bool = False,
    ) -> Tensor:
        """Outputs of one pass over several copies of the rows, one copy after the other."""
        several = call if copies == 1 else call.repeated(copies)
        with ExitStack() as undo:
            undo.enter_context(plain_attention())
            for module in dropout_modules(self.model) if dropout else ():
                undo.callback(partial(setattr, module, "training", module.training))
                module.training = True
            if tape is not None:
                undo.enter_context(tape.replaying(copies))
            if noise is not None:
                noise.add(copies, undo.callback)
            if tape is not None:
                undo.enter_context(tape.shortened())
            return logits_of(several(self.model), self.model)

    def _answers_from_a_place(self) -> bool:
        """Whether the token that a model answers from is that of a place, in every batch the same.

        Classes of Hugging Face take the first or the last; others may take the one that a row names.
        """
        return type(self.model).__module__.startswith("transformers.models.")

    def _try(self, first: int, call: Call, seen: Pass, tape: Tape) -> None:
        """Find out what can be left out; rows of one token do not tell which token a model answers from."""
        tokens = seen.states[0].shape[1] if seen.padding is None else int((~seen.padding).sum(1).min())
        several = tape.wide is not None and tokens > 1
        self.first_tokens[first] = several and self._replay_is_right(call, seen, tape)
        tape.first_token = False
        self.replays[first] = self.first_tokens[first] or self._replay_is_right(call, seen, tape)

    def _replay_is_right(self, call: Call, seen: Pass, tape: Tape) -> bool:
        """Whether a replay of two copies gives the outputs that were recorded."""
        try:
            logits = self._pass(call, 2, tape=tape)
        except Exception:  # whatever the model raises for results that it does not expect
            return False
        return same_outputs(logits, torch.cat([seen.logits, seen.logits]))


class Noise:
    """Noise of the GPs for the rows of one batch: every site has a stream of random numbers of its own."""

    def __init__(
        self, sites: tuple[Site, ...], gps: tuple[HeadGps, ...], sigma: list[float], seen: Pass, seed: int
    ) -> None:
        self.sites, self.gps, self.sigma, self.seen = sites, gps, sigma, seen
        self.noisy = [i for i, x in enumerate(sigma) if x > 0]
        self.device = seen.logits.device
        self.streams = {i: torch.Generator(self.device).manual_seed(seed + 7919 * i) for i in self.noisy}
        self.first = None if not self.noisy else self._deviation(self.noisy[0], seen.queries[self.noisy[0]])

    def add(self, copies: int, undo: Callable[[Callable[[], None]], object]) -> None:
        """Hooks that add noise in a pass over several copies; `undo` is told how they are removed."""
        queries: dict[int, Tensor] = {}

        def keep(i: int, _: Tensor, q: Tensor, __: Tensor | None) -> None:
            queries[i] = q

        def make(i: int) -> Tensor:
            deviation = self._deviation(i, queries[i]) if i in queries else self.first  # [B, T, H, 1]
            assert deviation is not None
            if i not in queries:
                deviation = deviation.repeat(copies, 1, 1, 1)
            rows = len(deviation) // copies
            shape = (rows, *deviation.shape[1:3], self.gps[i].spread.shape[-1])
            eps = [torch.randn(shape, generator=self.streams[i], device=self.device) for _ in range(copies)]
            return deviation * torch.cat(eps)

        for i in self.noisy:
            if i != self.noisy[0]:  # queries of the first do not depend on noise
                undo(self.sites[i].read_queries(partial(keep, i)).remove)
            undo(self.sites[i].add_noise(partial(make, i)).remove)

    def _deviation(self, i: int, q: Tensor) -> Tensor:
        """Standard deviation of the noise, [B, T, H, V]."""
        gp = self.gps[i]
        left = gp.variance(q).clamp_min(1e-12).sqrt().unsqueeze(-1)  # [B, T, H, 1]
        return self.sigma[i] ** 0.5 * gp.spread * left
