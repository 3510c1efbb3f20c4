"""What a module with `MultiheadSgpa` layers needs: its KL, draws or means, inducing points on data."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.attention.masks import as_bool
from sgpa.attention.multihead import LEAST_SCALE, SCALES, MultiheadSgpa
from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.noise import samples_check
from sgpa.core.user_code import errors_of


def sgpa_layers(module: nn.Module) -> list[MultiheadSgpa]:
    """All `MultiheadSgpa` layers of a module, each once, in the order of registration."""
    layers = [layer for layer in module.modules() if isinstance(layer, MultiheadSgpa)]
    if not layers:
        raise InputError(f"{type(module).__name__} has no MultiheadSgpa layer")
    return layers


@checked
def total_kl(
    module: nn.Module, *, dataset_size: int | None = None, amortised_weight: float | None = None
) -> Tensor:
    """The KL of all `MultiheadSgpa` layers of a module in its last forward pass, to add to a mean loss.

    The global part counts once, the amortised part is averaged over the sequences of the batch. A layer
    that one pass calls several times counts with its last call.

    Args:
        module: any module that contains the layers.
        dataset_size: N, training sequences: a mean loss per sequence takes KL / N. Left out, the KL itself
            in nats is returned.
        amortised_weight: weight of the amortised part instead of 1 / N.

    Returns:
        A scalar with gradients.

    Example:
        >>> layer = MultiheadSgpa(8, 2, batch_first=True, num_global=3)
        >>> x = torch.randn(4, 5, 8)
        >>> loss = layer(x, x, x)[0].square().mean() + total_kl(layer, dataset_size=1200)
    """
    size_ok = dataset_size is None or dataset_size >= 1
    weight_ok = amortised_weight is None or 0 <= amortised_weight < float("inf")
    check_fields(
        "total_kl",
        [
            ("dataset_size", dataset_size, size_ok, "1 or more"),
            ("amortised_weight", amortised_weight, weight_ok, "a number that is not negative"),
        ],
    )
    kls = [layer.kl for layer in sgpa_layers(module)]
    made = [kl for kl in kls if kl is not None]
    if len(made) < len(kls):
        raise InputError(
            f"total_kl: {len(kls) - len(made)} of {len(kls)} MultiheadSgpa layers had no forward pass yet"
        )
    trained = module.training and any(layer.attention.Z_g.requires_grad for layer in sgpa_layers(module))
    if trained and torch.is_grad_enabled() and not any(kl.g.requires_grad for kl in made):
        raise InputError(
            "total_kl: the last forward pass kept no gradient, so the KL would not be trained; run it "
            "outside torch.no_grad(), and checkpoint with use_reentrant=False"
        )
    weight = 1.0 if dataset_size is None else 1 / dataset_size
    weight_a = weight if amortised_weight is None else amortised_weight
    return torch.stack([weight * kl.g + weight_a * kl.a.mean() for kl in made]).sum()


@contextmanager
def _drawing(module: nn.Module, draws: bool) -> Iterator[None]:
    before = [(layer, layer.draws) for layer in sgpa_layers(module)]
    for layer, _ in before:
        layer.draws = draws
    try:
        yield
    finally:
        for layer, was in before:
            layer.draws = was


@contextmanager
@checked
def sampling(module: nn.Module) -> Iterator[None]:
    """A block in which every pass draws a sample of the posterior, in evaluation mode too.

    Args:
        module: any module that contains `MultiheadSgpa` layers.

    Example:
        >>> layer, x = MultiheadSgpa(8, 2, num_global=3).eval(), torch.randn(5, 8)
        >>> with sampling(layer):
        ...     one, other = layer(x, x, x)[0], layer(x, x, x)[0]
        >>> torch.equal(one, other)
        False
    """
    with _drawing(module, True):
        yield


@contextmanager
@checked
def posterior_mean(module: nn.Module) -> Iterator[None]:
    """A block in which every pass computes posterior means, in training mode too: a point model.

    Args:
        module: any module that contains `MultiheadSgpa` layers.

    Example:
        >>> layer, x = MultiheadSgpa(8, 2, num_global=3), torch.randn(5, 8)
        >>> with posterior_mean(layer):
        ...     one, other = layer(x, x, x)[0], layer(x, x, x)[0]
        >>> torch.equal(one, other)
        True
    """
    with _drawing(module, False):
        yield


@torch.no_grad()
@checked
def sample(module: nn.Module, *inputs: Any, samples: int = 10, **options: Any) -> Tensor:
    """Outputs of several passes, each with its own draw from the posterior.

    The module's mode is left as it is: call `module.eval()` first, or dropout stays on.

    Args:
        module: any module that contains `MultiheadSgpa` layers and returns a tensor, or a tuple of which the
            first entry is one, as attention layers do.
        inputs: passed to the module.
        samples: S, passes.
        options: passed to the module.

    Returns:
        Outputs [S, ...]; for a classifier average their softmax over S.

    Example:
        >>> model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> model.self_attn = MultiheadSgpa(8, 2, batch_first=True, num_global=3)
        >>> sample(model.eval(), torch.randn(4, 5, 8), samples=3).shape
        torch.Size([3, 4, 5, 8])
    """
    check_fields("sample", [samples_check(samples)])
    with sampling(module):
        outputs = [module(*inputs, **options) for _ in range(samples)]
    values = [output[0] if isinstance(output, tuple) else output for output in outputs]
    if not isinstance(values[0], Tensor):
        raise InputError(
            f"sample: the module returns {type(outputs[0]).__name__} (allowed: a tensor, or a tuple that "
            "starts with one); draw in passes of your own inside `sgpa.sampling(module)`"
        )
    return torch.stack(values)


@torch.no_grad()
@checked
def prepare(module: nn.Module, batch: Tensor | Sequence[Any], *, initial_variance_scale: float = 0.1) -> None:
    """Put the inducing points of every layer on data, and lower the initial variance around the same mean.

    Call it once, before training by the ELBO: each call multiplies the kernels' variances by
    `initial_variance_scale`.

    Args:
        module: any module that contains `MultiheadSgpa` layers.
        batch: the module's input, or its inputs in a list or tuple; enough tokens for `num_global` points.
        initial_variance_scale: share of the kernels' variances that stays, above 0 and up to 1.

    Example:
        >>> layer, x = MultiheadSgpa(8, 2, batch_first=True, num_global=3), torch.randn(4, 5, 8)
        >>> prepare(layer, (x, x, x))
    """
    scale = initial_variance_scale
    check_fields("prepare", [("initial_variance_scale", scale, LEAST_SCALE <= scale <= 1, SCALES)])
    queries: dict[MultiheadSgpa, Tensor] = {}
    modes = [(each, each.training) for each in module.modules()]
    with ExitStack() as undo:
        for layer in sgpa_layers(module):
            hook = layer.register_forward_pre_hook(
                lambda layer, args, options: queries.update({layer: _real_queries(layer, *args, **options)}),
                with_kwargs=True,
            )
            undo.callback(hook.remove)
        undo.enter_context(posterior_mean(module.eval()))
        try:
            with errors_of(f"prepare: {type(module).__name__} does not take this batch"):
                module(batch) if isinstance(batch, Tensor) else module(*batch)
        finally:
            for each, mode in modes:
                each.training = mode
    for layer in sgpa_layers(module):
        if layer not in queries:
            raise InputError("prepare: the module's forward pass did not call all its MultiheadSgpa layers")
        layer.attention.init_on_data(queries[layer])
        layer.attention.scale_initial_variance(initial_variance_scale)


def _real_queries(
    layer: MultiheadSgpa,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    *_: object,
    **options: object,
) -> Tensor:
    """The tokens that a layer reads, without padding, [N, E]."""
    del options
    if not isinstance(query, Tensor) or query.ndim < 2:
        return torch.empty(0, 0)  # the layer itself refuses it
    rows = query if layer.batch_first or query.ndim == 2 else query.transpose(0, 1)  # [B, T, E] or [T, E]
    rows = rows.flatten(0, -2)
    if key_padding_mask is None or not query is key is value:
        return rows
    return rows[~as_bool(key_padding_mask, "key_padding_mask", layer.name).flatten()]
