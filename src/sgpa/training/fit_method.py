"""The method that `fit` trains: a method of the catalogue with the attention of a model's config."""

from dataclasses import MISSING, fields, replace
from typing import Any

import torch

from sgpa.core.errors import ConfigError, nearest
from sgpa.core.names import METHOD_ALIASES
from sgpa.methods import CATALOGUE, Method, Mle, Sgpa
from sgpa.models import DotProductConfig, KernelAttentionConfig, ModelConfig, SgpaConfig
from sgpa.training.defaults import attention_for, kernel_for

AUTO = "auto"  # SGPA or its point model with a temperature, whichever is better on held-out rows


def point_method(attention: SgpaConfig) -> Mle:
    """The point model with the kernel of a sparse GP."""
    return Mle(attention=KernelAttentionConfig(kernel=attention.kernel, tied=attention.tied))


def sparse_attention(config: ModelConfig) -> SgpaConfig:
    """The sparse-GP attention of a config, or the default one with its kernel."""
    attention = config.attention
    if isinstance(attention, KernelAttentionConfig):
        return replace(attention_for(config.embedding), kernel=attention.kernel, tied=attention.tied)
    if isinstance(attention, DotProductConfig):
        raise ConfigError(
            "fit: config.attention=DotProductConfig() (allowed: SgpaConfig, KernelAttentionConfig): "
            "a Gaussian process needs a kernel"
        )
    return attention


def with_default_kernel(config: ModelConfig) -> ModelConfig:
    """A config whose attention was left at its default gets the default kernel for its kind of inputs."""
    if config.attention != KernelAttentionConfig():
        return config
    return replace(config, attention=KernelAttentionConfig(kernel=kernel_for(config.embedding)))


def check_method(method: str | Method) -> None:
    """Raise for an unknown id."""
    if isinstance(method, str) and METHOD_ALIASES.get(method, method) not in (*CATALOGUE, AUTO):
        raise ConfigError(f"fit: unknown method {method!r}{nearest(method, (*CATALOGUE, AUTO))}")


def resolve_method(method: str | Method, config: ModelConfig, sgpa: Sgpa) -> tuple[Method, ModelConfig]:
    """The method with the config's attention, and the config with the method's; refuses what is ignored.

    Args:
        method: An id, "auto" (trained as SGPA) or a `Method`.
        config: The model.
        sgpa: The settings of SGPA where `method` is an id; its attention is that of `config`.
    """
    if isinstance(method, str):
        known = {**CATALOGUE, AUTO: sgpa, "sgpa": sgpa}
        for name in ("sgpah", "sgpae"):
            known[name] = replace(CATALOGUE[name], base=sgpa)  # type: ignore[type-var]
        check_method(method)
        named = known[METHOD_ALIASES.get(method, method)]
        method, attention = _with_attention(named, with_default_kernel(config))
        config = replace(config, attention=attention)
    if config.likelihood != "categorical" and not method.regression:
        raise ConfigError(
            f"fit: method {method.id} predicts classes; config.likelihood={config.likelihood!r}"
        )
    with torch.random.fork_rng(devices=[]):  # initial values are drawn
        built = method.build(config).config
    for f in fields(config):
        given, used = getattr(config, f.name), getattr(built, f.name)
        default = f.default_factory() if f.default_factory is not MISSING else f.default
        if given not in (default, used):
            raise ConfigError(
                f"fit: method {method.id} would ignore config.{f.name}={given!r}; it has {used!r}"
            )
    return method, config


def _with_attention(method: Any, config: ModelConfig) -> tuple[Method, Any]:
    """A method of the catalogue with the attention of a config, and that attention."""
    if isinstance(method.trains, Sgpa):
        attention: Any = sparse_attention(config)
    elif isinstance(config.attention, SgpaConfig):
        raise ConfigError(
            f"fit: config.attention is a SgpaConfig (allowed with {method.id}: KernelAttentionConfig, "
            "DotProductConfig): this method has no sparse GP"
        )
    else:
        attention = config.attention
    if hasattr(method, "base"):
        return replace(method, base=replace(method.base, attention=attention)), attention
    return replace(method, attention=attention), attention
