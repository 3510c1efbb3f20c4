"""`sgpa.attach`: calibrated uncertainty and novelty for a Transformer that is trained already."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from sgpa.core.arguments import checked
from sgpa.core.errors import CheckpointError, ConfigError, InputError, check_fields, nearest
from sgpa.posthoc.adapter import Adapter
from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.find import find_attention
from sgpa.posthoc.fingerprint import weights_fingerprint
from sgpa.posthoc.hub import download, is_name
from sgpa.posthoc.passes import check_not_compiled


@checked
def attach(
    model: nn.Module,
    adapter: str | Path | None = None,
    *,
    layers: Sequence[int] | None = None,
    num_inducing: int = 64,
    lengthscale: float = 1.0,
    modules: Sequence[str] | None = None,
    head: str | None = None,
) -> AttachedGp:
    """Attach a sparse GP to every attention head of a trained Transformer; the model stays as it is.

    Args:
        model: a classifier or regressor: of Hugging Face transformers, timm, `nn.TransformerEncoder`, or of
            this library with deterministic attention.
        adapter: a folder that `save_pretrained` wrote for this model, or `owner/name` on the hub; then
            nothing has to be fitted, and the other arguments are those of the adapter.
        layers: numbers of the attention layers that get GPs, from 0, or from -1 at the end; all where it is
            left out.
        num_inducing: M, inducing queries of every head.
        lengthscale: of the kernel, in units of the median distance of queries.
        modules: names of the attention modules in `model.named_modules()`, where only some are wanted; where
            they are not recognised, names of the linear maps that make their queries.
        head: name of the linear layer that makes the outputs, where it is not recognised.

    Returns:
        An object with `fit`, `calibrate`, `predict`, `save_pretrained` and `detach`.

    Example:
        >>> gp = sgpa.attach(model)  # doctest: +SKIP
        >>> gp.fit(train_loader)  # doctest: +SKIP
        >>> gp.calibrate(validation_loader)  # doctest: +SKIP
        >>> answer = gp.predict(batch)  # doctest: +SKIP
    """
    check_model(model)
    if adapter is not None:
        return _from_adapter(model, download(str(adapter)) if is_name(adapter) else Path(adapter))
    check_fields(
        "attach",
        [
            ("num_inducing", num_inducing, 1 <= num_inducing <= 1024, "1 to 1024"),
            ("lengthscale", lengthscale, 0 < lengthscale <= 10, "above 0, up to 10"),
        ],
    )
    sites = find_attention(model, modules)
    if layers is not None:
        wrong = [i for i in layers if not -len(sites) <= i < len(sites)]
        if wrong or not layers:
            raise ConfigError(
                f"attach: layers={list(layers)} (allowed: {-len(sites)} to {len(sites) - 1}, at least one)"
            )
        sites = tuple(sites[i] for i in sorted({i % len(sites) for i in layers}))
    module = None if head is None else _named(model, head)
    return AttachedGp(model, sites, module, points=num_inducing, share=lengthscale)


def check_model(model: nn.Module) -> None:
    """Raise an error of one line where hooks could not work."""
    if isinstance(model, nn.DataParallel) or hasattr(model, "_orig_mod"):
        inside = "model.module" if isinstance(model, nn.DataParallel) else "the model before torch.compile"
        raise InputError(f"attach: {type(model).__name__} runs copies without hooks; attach to {inside}")
    check_not_compiled(model, "attach")
    if isinstance(model, torch.jit.ScriptModule):
        raise InputError("attach: a TorchScript model takes no hooks; attach to the model before torch.jit")
    if any(p.is_meta for p in model.parameters()):
        raise InputError(f"attach: weights of {type(model).__name__} are on the meta device; load them first")
    both = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    if both and any(name.rpartition(".")[2] == "decoder" for name, _ in model.named_modules()):
        raise InputError(
            f"attach: {type(model).__name__} is an encoder-decoder; allowed: encoders and decoder-only models"
        )


def _named(model: nn.Module, name: str) -> nn.Module:
    known = dict(model.named_modules())
    if not name or name not in known:  # the model itself has no name
        raise InputError(f"attach: head={name!r} is not in the model{nearest(name, known)}")
    return known[name]


def _from_adapter(model: nn.Module, folder: Path) -> AttachedGp:
    adapter = Adapter.load(folder)
    if weights_fingerprint(model) != adapter.model:
        raise CheckpointError(
            f"{folder}: the adapter is of another model ({adapter.model_type}, weights {adapter.model}); "
            f"this is {type(model).__name__} with weights {weights_fingerprint(model)}"
        )
    sites, head = find_attention(model, adapter.modules), _named(model, adapter.head)
    points, share = adapter.gps[0].Z.shape[1], adapter.share
    return AttachedGp(model, sites, head, points=points, share=share, adapter=adapter)
