"""Text that a decoder generates, token by token, with the uncertainty of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sgpa.core.errors import InputError, check_fields
from sgpa.core.noise import check_seed
from sgpa.posthoc.answers import ClassAnswer

if TYPE_CHECKING:
    from sgpa.posthoc.attached import AttachedGp


@dataclass(frozen=True)
class GeneratedToken:
    """The next token of every row, and what is known of the text before it."""

    token: Tensor  # its number in the vocabulary                                  [B]
    probability: Tensor  # calibrated, of this token                               [B]
    entropy: Tensor  # of the probabilities of all tokens                          [B]
    novelty: Tensor  # in [0, 1]: of the last token before it                      [B]


def generate(
    gp: "AttachedGp", prompt: Mapping[str, Any], *, max_new_tokens: int, sample: bool, seed: int
) -> Iterator[GeneratedToken]:
    """See `AttachedGp.generate`."""
    check_fields("generate", [("max_new_tokens", max_new_tokens, max_new_tokens >= 1, "1 or more")])
    check_seed(seed)
    ids = prompt.get("input_ids") if isinstance(prompt, Mapping) else None
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.shape[1] == 0:
        raise InputError("generate: the prompt needs input_ids [B, T], such as a tokenizer returns")
    mask = prompt.get("attention_mask")
    if isinstance(mask, Tensor) and not bool(mask.all()):
        raise InputError("generate: the prompts differ in length (allowed: rows of one length, no padding)")
    if not gp._ready("generate").shift:
        raise InputError("generate: the model does not answer for the next token; use predict")
    return _tokens(gp, ids, max_new_tokens, torch.Generator().manual_seed(seed) if sample else None)


def _tokens(
    gp: "AttachedGp", ids: Tensor, count: int, generator: torch.Generator | None
) -> Iterator[GeneratedToken]:
    cache = import_module("transformers").DynamicCache()
    length = ids.shape[1]
    ends = _end_tokens(gp).to(ids.device)
    ended = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    for _ in range(count):
        mask = torch.ones(ids.shape[0], length, dtype=torch.long, device=ids.device)
        answer = gp.predict(
            {"input_ids": ids, "attention_mask": mask, "past_key_values": cache, "use_cache": True}
        )
        assert isinstance(answer, ClassAnswer)
        p = answer.probabilities[:, -1]  # [B, C]
        if generator is None:
            token = p.argmax(-1)
        else:
            token = torch.multinomial(p.cpu(), 1, generator=generator).squeeze(-1).to(p.device)
        chosen = p.gather(-1, token.unsqueeze(-1)).squeeze(-1)
        yield GeneratedToken(token, chosen, answer.entropy[:, -1], answer.novelty[:, -1])
        ids, length = token.unsqueeze(-1).to(ids.device), length + 1
        ended |= torch.isin(ids.squeeze(-1), ends)
        if bool(ended.all()):
            return


def _end_tokens(gp: "AttachedGp") -> Tensor:
    """Tokens that end a text, as the model's config names them; none where it does not."""
    model = gp._attached("generate")
    for config in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        if (ends := getattr(config, "eos_token_id", None)) is not None:
            return torch.tensor([ends] if isinstance(ends, int) else list(ends))
    return torch.empty(0, dtype=torch.long)
