"""Finds the attention modules of a model."""

from collections.abc import Mapping, Sequence

from torch import nn

from sgpa.attention.base import Attention
from sgpa.core.errors import InputError, nearest
from sgpa.posthoc.sites import OwnSite, ProjectedSite, Site, TorchSite

# names of the projections of queries, keys and values: BERT, RoBERTa; DistilBERT; Llama, Qwen, ViT; T5;
# DeBERTa v2 and v3; diffusers; the first Llama
SEPARATE = (
    ("query", "key", "value"),
    ("q_lin", "k_lin", "v_lin"),
    ("q_proj", "k_proj", "v_proj"),
    ("q", "k", "v"),
    ("query_proj", "key_proj", "value_proj"),
    ("to_q", "to_k", "to_v"),
    ("wq", "wk", "wv"),
)
PACKED = ("qkv", "c_attn", "Wqkv", "to_qkv")  # timm; GPT-2; ModernBERT; others
BY_HEAD = ("query_key_value",)  # GPT-NeoX, Bloom: queries, keys and values of a head are side by side
OUTPUTS = ("o_proj", "out_proj", "out_lin", "proj", "c_proj", "o", "wo", "Wo", "to_out", "dense")
HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "heads", "nhead")
WIDTHS = ("head_dim", "attention_head_size", "head_size", "key_value_proj_dim")

SUPPORTED = (
    "attention modules with projections q_proj/k_proj/v_proj, query/key/value, q_lin/k_lin/v_lin, "
    "to_q/to_k/to_v, wq/wk/wv, qkv, Wqkv or c_attn and an integer num_heads (Hugging Face, timm), "
    "nn.MultiheadAttention, and this library's DotProductAttention and KernelAttention"
)


def find_attention(model: nn.Module, modules: Sequence[str] | None = None) -> tuple[Site, ...]:
    """The attention modules of a model, in the order of registration.

    Args:
        model: any module.
        modules: names of the attention modules, as in `model.named_modules()`, or of the linear maps that
            make their queries; all attention that is recognised where it is left out.

    Raises:
        InputError: there is none, or a named module is not one.
    """
    known = dict(model.named_modules())
    if modules is not None:
        for name in modules:
            if name not in known:
                raise InputError(f"attach: modules={name!r} is not in the model{nearest(name, known)}")
        return tuple(recognise(name, known[name]) or around_queries(name, known) for name in modules)
    attention = tuple(site for name, module in known.items() if (site := recognise(name, module)) is not None)
    if not attention:
        raise InputError(
            f"attach: no attention found in {type(model).__name__}; supported are {SUPPORTED}; for "
            "others name the linear maps of their queries by attach(model, modules=[...])"
        )
    return attention


def recognise(name: str, module: nn.Module) -> Site | None:
    """The site of a module, or None where it is no attention."""
    if isinstance(module, nn.MultiheadAttention):
        return TorchSite(name, module, module.num_heads)
    if isinstance(module, Attention):
        if module.stochastic:
            raise InputError(
                f"attach: {name} is {type(module).__name__}, which has a posterior of its own; use the "
                "model's predict instead"
            )
        return OwnSite(name, module, module.num_heads)
    children = dict(module.named_children())
    for names in SEPARATE:
        if children.keys() >= set(names) and (width := _width(children[names[0]])):
            return _projected(name, module, children, names[0], width, 1)
    for packed in (*PACKED, *BY_HEAD):
        if packed in children and (width := _width(children[packed])):
            return _projected(name, module, children, packed, width, 3)
    return None


def around_queries(name: str, known: Mapping[str, nn.Module]) -> Site:
    """The attention around a linear map that is named as that of the queries."""
    owner, _, child = name.rpartition(".")
    width, module = _width(known[name]), known[owner]
    if width is None or not child:
        raise InputError(
            f"attach: modules={name!r} is a {type(known[name]).__name__} (allowed: the linear map of the "
            f"queries, or attention that is recognised: {SUPPORTED})"
        )
    site = _projected(name, module, dict(module.named_children()), child, width, 1)
    if site is None or site.projection is None:
        raise InputError(
            f"attach: modules={name!r}: {type(module).__name__} around it needs an integer {HEADS[0]} that "
            f"divides {width}, and the linear map of its output, of {width} inputs, with one of the names "
            f"{', '.join(OUTPUTS)}"
        )
    return site


def _projected(
    name: str, module: nn.Module, children: dict[str, nn.Module], query: str, width: int, parts: int
) -> Site | None:
    """The site of linear maps; None where their widths do not agree, as of gates beside the queries."""
    heads, width = _number(module, HEADS), width // parts
    if (head_width := _number(module, WIDTHS)) is not None:
        heads = width // head_width  # also where keys and values are grouped
    output = next((linear for key in OUTPUTS if (linear := _linear(children.get(key))) is not None), None)
    if not heads or width % heads or (output is not None and _inputs(output) != width):
        return None
    by_head = query in BY_HEAD or getattr(module, "multi_query", None) is False  # GPTBigCode's c_attn
    return ProjectedSite(name, module, heads, children[query], output, parts, by_head=by_head)


def _linear(module: nn.Module | None) -> nn.Module | None:
    """The linear map, alone or as the first of a sequence with dropout."""
    first = module[0] if isinstance(module, nn.Sequential) and len(module) else module
    return None if first is None or _width(first) is None else first


def _inputs(projection: nn.Module) -> int | None:
    """Inputs of a linear map; GPT-2's Conv1D has them first."""
    size = _number(projection, ("in_features", "nx"))
    weight = getattr(projection, "weight", None)
    return int(weight.shape[0]) if size is None and weight is not None else size


def _number(module: nn.Module, names: Sequence[str]) -> int | None:
    values = (getattr(module, name, None) for name in names)
    return next((value for value in values if isinstance(value, int)), None)


def _width(projection: nn.Module) -> int | None:
    """Outputs of a linear map; GPT-2's Conv1D calls them `nf`."""
    return _number(projection, ("out_features", "nf"))
