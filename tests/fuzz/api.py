"""Calls of the public Python API with hostile arguments."""

import inspect
import math
import typing
from dataclasses import fields

import torch
from tests.fuzz.doors import Doors
from tests.fuzz.guard import Accepted
from tests.fuzz.values import any_value, tensors
from torch import Tensor

import sgpa
from sgpa.core.arguments import checked, convert, fits
from sgpa.core.types import Classification, Regression
from sgpa.models import Transformer, from_json, to_json

PATCHES = sgpa.PatchConfig(image_size=4, channels=1, patch_size=2)
KERNEL = {"num_heads": 2, "head_width": 4}
CONFIGS = {
    sgpa.PatchConfig: {"image_size": 4, "channels": 1, "patch_size": 2},
    sgpa.TokenConfig: {"vocabulary": 5, "max_tokens": 4, "embedding_width": 4},
    sgpa.GraphConfig: {"node_types": 3, "edge_types": 2, "identifier_width": 2, "max_tokens": 8},
    sgpa.FeatureConfig: {"width": 4, "max_tokens": 4},
    sgpa.KernelConfig: {"locality": (1.0,)},
    sgpa.KernelAttentionConfig: {},
    sgpa.DotProductConfig: {},
    sgpa.SgpaConfig: {"num_global": 3},
    sgpa.ModelConfig: {"embedding": PATCHES, "depth": 1, "heads": 2, "width": 8, "outputs": 3},
    sgpa.OptimConfig: {"epochs": 2},
    sgpa.KlWeights: {},
    sgpa.Mle: {},
    sgpa.Sgpa: {},
    sgpa.Mfvi: {},
    sgpa.McDropout: {},
    sgpa.KfacLaplace: {},
    sgpa.Sngp: {},
    sgpa.TemperatureScaling: {},
    sgpa.Ensemble: {"base": sgpa.Mle()},
}


def finite(result):
    """Raise if a result has numbers that are not finite."""
    if isinstance(result, Classification | Regression):
        result = result.score
    if isinstance(result, Tensor) and result.is_floating_point() and not result.isfinite().all():
        raise Accepted("the result is not finite")


def check_config(config):
    """An accepted config has fields of their types, finite numbers, and can be written and read."""
    hints = typing.get_type_hints(type(config))
    for f in fields(config):
        if not fits(getattr(config, f.name), hints[f.name]):
            raise Accepted(f"{f.name}={getattr(config, f.name)!r}")
    of_models = type(config).__name__.endswith("Config") and type(config) is not sgpa.OptimConfig
    if of_models and from_json(to_json(config)) != config:
        raise Accepted("the config changes when it is saved")


class Cases:
    """Makes a case from a generator of random numbers."""

    def __init__(self, folder):
        self.folder = folder
        torch.manual_seed(0)
        config = sgpa.ModelConfig(**CONFIGS[sgpa.ModelConfig] | {"attention": sgpa.SgpaConfig(num_global=3)})
        self.model = Transformer(config).eval()
        self.text_model = Transformer(
            sgpa.ModelConfig(
                embedding=sgpa.TokenConfig(vocabulary=5, max_tokens=4), depth=1, heads=2, width=8
            )
        )
        self.x = torch.randn(3, 1, 4, 4)
        self.y = torch.arange(30) % 3
        self.model.save_pretrained(folder / "model")
        self.served = sgpa.serve(self.model, rows=2)
        self.layers = {
            kind: kind(8, 2, sgpa.ArdRbfKernel(2, 4), **more)
            for kind, more in (
                (sgpa.OrthogonalSgpa, {"num_global": 3}),
                (sgpa.ChengBootsSgpa, {"num_global": 3}),
                (sgpa.StandardSgpa, {"max_tokens": 5}),
                (sgpa.KernelAttention, {}),
            )
        } | {sgpa.DotProductAttention: sgpa.DotProductAttention(8, 2)}
        self.multihead = sgpa.MultiheadSgpa(8, 2, batch_first=True, num_global=3)
        self.kinds = [
            *(
                (self.config, 30),
                (self.predict, 25),
                (self.layer, 20),
                (self.build_layer, 12),
                (self.functions, 8),
            ),
            *((self.load, 3), (self.fit, 1), (self.graphs, 4)),
            *Doors(folder, self.call).kinds,
        ]

    def make(self, rng, _=0):
        """The name of a case and its call."""
        kind = rng.choices([k for k, _ in self.kinds], [w for _, w in self.kinds])[0]
        return kind(rng)

    def call(self, rng, function, good, after=lambda _: None, hostile=any_value):
        """A call with one or two arguments replaced, dropped or added."""
        named = dict(good)
        parameters = inspect.signature(function).parameters
        known = [name for name in parameters if name not in ("self", "args", "kwargs", "inputs_", "options")]
        for _ in range(rng.choice((1, 1, 1, 2))):
            change = rng.random()
            if known and (change < 0.9 or not named):
                named[rng.choice(known)] = hostile(rng)
            elif named and change < 0.95:
                named.pop(rng.choice([name for name in named if name != "steps"]))  # the default is many
            else:
                named[rng.choice(("unknown", "epoch"))] = 1
        changed = {name: _shown(value) for name, value in named.items() if value is not good.get(name)}
        hints = _hints(function)

        def run():
            result = function(**named)
            for name, value in named.items():
                if name in hints and not fits(convert(value, hints[name]), hints[name]):
                    raise Accepted(f"{name} has the wrong type")
            after(result)

        return f"{getattr(function, '__qualname__', function)} {changed}", run

    def config(self, rng):
        kind = rng.choice(list(CONFIGS))
        return self.call(rng, kind, CONFIGS[kind], check_config)

    def predict(self, rng):
        target = rng.choice((self.model, self.model, self.served, self.text_model))
        good = (
            {"inputs": self.x}
            if target is not self.text_model
            else {"inputs": torch.ones(2, 3, dtype=torch.long)}
        )
        method = rng.choice((target.predict, target.predict, target.draw))
        return self.call(
            rng,
            method,
            good,
            finite,
            lambda r: small(any_value(r)) if r.random() < 0.5 else r.choice(tensors()),
        )

    def layer(self, rng):
        x = torch.randn(2, 5, 8)
        hostile = [
            *(
                x[0],
                x[:0],
                x[:, :0],
                x[..., :7],
                x * math.nan,
                x * math.inf,
                x * 1e20,
                x + 1e4,
                x + 1e6,
                x.double(),
                x.half(),
            ),
            *(
                x.long(),
                x.bool(),
                torch.zeros(2, 5, dtype=torch.bool),
                torch.ones(2, 5, dtype=torch.bool),
                x.to(torch.complex64),
            ),
            *(
                torch.zeros(5, 5),
                torch.full((5, 5), -math.inf),
                torch.ones(5, 5, dtype=torch.bool),
                torch.empty(2, 5, 8, device="meta"),
            ),
        ]

        def value(r):
            return r.choice(hostile) if r.random() < 0.7 else small(any_value(r))

        if rng.random() < 0.3:
            good = {"query": x, "key": x, "value": x}
            return self.call(rng, self.multihead.forward, good, lambda out: finite(out[0]), value)
        layer = self.layers[rng.choice(list(self.layers))]
        return self.call(rng, layer.forward, {"x": x}, lambda out: finite(out.value), value)

    def build_layer(self, rng):
        kind = rng.choice((*self.layers, sgpa.MultiheadSgpa, sgpa.ArdRbfKernel, sgpa.ExponentialKernel))
        good = {"embed_dim": 8, "num_heads": 2, "kernel": sgpa.ArdRbfKernel(2, 4)}
        if kind in (sgpa.MultiheadSgpa, sgpa.DotProductAttention):
            good.pop("kernel")
        good = KERNEL if kind.__name__.endswith("Kernel") else good
        good = good | ({"max_tokens": 5} if kind is sgpa.StandardSgpa else {})
        return self.call(rng, kind, good)

    def functions(self, rng):
        x = torch.randn(2, 5, 8)
        layer = sgpa.MultiheadSgpa(8, 2, batch_first=True, num_global=3)
        layer(x, x, x)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
        rows = torch.randn(30, 4)
        novelty = {"train": rows, "labels": torch.arange(30) % 3, "held_out": rows, "layers": [model[0]]}
        choices = [
            (sgpa.total_kl, {"module": layer}),
            (sgpa.prepare, {"module": layer, "batch": (x, x, x), "initial_variance_scale": 1.0}),
            (sgpa.serve, {"predictor": self.model, "rows": 2}),
            (sgpa.novelty_of, {"module": model, "head": model[1], **novelty}),
            (sgpa.ArdRbfKernel.preset, {"name": "paper", **KERNEL}),
            (self.model.with_samples, {"samples": 2}),
        ]
        function, good = rng.choice(choices)
        return self.call(rng, function, good, hostile=lambda r: small(any_value(r)))

    def load(self, rng):
        function = rng.choice((sgpa.load, self.model.save_pretrained, Transformer))
        name = {sgpa.load: "path", Transformer: "config"}.get(function, "directory")
        good = {name: self.model.config if function is Transformer else self.folder / "model"}
        return self.call(rng, function, good, hostile=_not_a_place_to_write)

    def fit(self, rng):
        good = {"inputs": torch.randn(30, 1, 4, 4), "targets": self.y, "steps": 1, "batch_size": 30}
        good["method"] = rng.choice(("mle", "sgpa"))
        return self.call(rng, sgpa.fit, good, hostile=_not_a_place_to_write)

    def graphs(self, rng):
        nodes = torch.tensor([[0, 1, 2]])
        edges = torch.tensor([[[0, 1], [1, 0]]])
        good = {"nodes": nodes, "edges": edges, "edge_types": torch.zeros(1, 2, dtype=torch.long)}
        good["identifiers"] = torch.randn(1, 3, 2)
        model = Transformer(
            sgpa.ModelConfig(
                embedding=sgpa.GraphConfig(**CONFIGS[sgpa.GraphConfig]), depth=1, heads=2, width=8
            )
        ).eval()

        @checked
        def predict(nodes, edges, edge_types, identifiers):
            return model.predict(sgpa.Graphs(nodes, edges, edge_types, identifiers))

        hostile = [
            torch.full((1, 3), 99),
            torch.full((1, 2, 2), -7),
            torch.full((1, 2, 2), 99),
            nodes.float(),
            edges[:, :1],
        ]
        hostile += [
            torch.full((1, 3, 2), math.nan),
            torch.randn(2, 3, 2),
            torch.full((1, 3), -1),
            torch.zeros(1, 0, 2),
        ]
        return self.call(
            rng, predict, good, finite, lambda r: r.choice(hostile) if r.random() < 0.6 else any_value(r)
        )


def small(value):
    """Large numbers of samples or rows are a choice of the caller, not a mistake."""
    return 3 if isinstance(value, int | float) and not isinstance(value, bool) and value > 100 else value


def _not_a_place_to_write(rng):
    value = small(any_value(rng))
    return 3 if isinstance(value, str) and (".." in value or value == "auto") else value


def _shown(value):
    if isinstance(value, Tensor):
        return f"{value.dtype} {list(value.shape)}"
    try:
        return repr(value)[:60]
    except Exception:
        return type(value).__name__


def _hints(function):
    try:
        return typing.get_type_hints(function)
    except Exception:
        return {}
