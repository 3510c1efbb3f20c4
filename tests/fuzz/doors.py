"""Hostile calls of what is opened, attached and loaded: runs, attached GPs, `DataLoader`s."""

import torch
from tests.fuzz.files import read_saved_or_old
from tests.fuzz.guard import Accepted
from tests.fuzz.values import any_value, tensors
from tests.support.paths import KEPT
from tests.support.tiny_classifiers import text_classifier
from tests.support.tiny_transformers import TorchEncoder, attached, batch, make
from torch.utils.data import DataLoader, TensorDataset

import sgpa


def loaders(rng):
    """A `DataLoader` or data set whose rows are hostile."""
    x, y = torch.randn(30, 1, 4, 4), torch.arange(30) % 3
    rows = rng.choice(
        [
            *(TensorDataset(x), TensorDataset(x, y, y), TensorDataset(y, x), TensorDataset(x[:0], y[:0])),
            *(TensorDataset(x * torch.nan, y), TensorDataset(x, y.float() * torch.inf)),
            *(TensorDataset(x, y - 5), TensorDataset(x, torch.zeros(30)), [(x[0], 0), (x[0, 0], 1)] * 15),
            *([(x[0], None)] * 30, [x[0]] * 30, [("a", 1)] * 30, [{"x": x[0], "y": 1}] * 30, range(30), []),
            *([(x[0], any_value(rng))] * 30, [(any_value(rng), 1)] * 30),
        ]
    )
    return rows if isinstance(rows, TensorDataset) and rng.random() < 0.3 else DataLoader(rows, batch_size=7)


class Doors:
    """Makes cases; `call` is that of the cases around it."""

    def __init__(self, folder, call):
        self.call, self.folder = call, folder
        self.encoder = make(TorchEncoder)
        self.gp = attached(self.encoder)
        self.adapter = self.gp.save_pretrained(folder / "adapter")
        read_saved_or_old(KEPT["digits"]).export(folder / "opened")
        self.opened = sgpa.load(folder / "opened")
        self.regression = sgpa.Regression(torch.randn(4, 3), torch.tensor(0.5), torch.rand(9).sort().values)
        text_classifier(folder / "classifier")
        (folder / "rows.csv").write_text("text,label\n" + "kara,cat\nloso,dog\nmiti,horse\n" * 20)
        self.kinds = [(self.attach, 3), (self.attached, 5), (self.open, 5), (self.fit, 1)]
        self.kinds += [(self.audit, 3), (self.values, 5), (self.multihead, 8)]

    def attach(self, rng):
        good = {"model": self.encoder} | ({"adapter": self.adapter} if rng.random() < 0.3 else {})
        return self.call(rng, sgpa.attach, good)

    def attached(self, rng):
        rows = batch(self.encoder, 12, 0)
        gp = sgpa.attach(self.encoder, self.adapter)
        ready = sgpa.attach(self.encoder, num_inducing=8).fit([rows])
        function, good = rng.choice(
            [
                (gp.predict, {"batch": rows}),
                (gp.predict, {"batch": rows, "samples": 2, "seed": 1}),
                (gp.save_pretrained, {"folder": self.folder / "saved"}),
                (sgpa.attach(self.encoder, num_inducing=8).fit, {"loader": [rows]}),
                (ready.calibrate, {"loader": [rows]}),
            ]
        )

        def hostile(r):
            value = r.choice([any_value(r), r.choice(tensors()), [any_value(r)], (rows, any_value(r))])
            return 3 if isinstance(value, int | float) and value > 100 else value

        before = torch.backends.mha.get_fastpath_enabled(), self.encoder.training

        def unchanged(_):
            hooks = any(m._forward_hooks or m._forward_pre_hooks for m in self.encoder.modules())
            if hooks or (torch.backends.mha.get_fastpath_enabled(), self.encoder.training) != before:
                raise Accepted("the model or a flag of torch is not what it was")

        return self.call(rng, function, good, unchanged, hostile)

    def audit(self, rng):
        good = {"model": self.folder / "classifier", "data": self.folder / "rows.csv", "max_rows": 10}
        return self.call(rng, sgpa.audit, good)  # too few rows: an audit of its own takes long

    def values(self, rng):
        values, padding = torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.bool)
        function, good = rng.choice(
            [
                (self.regression.interval, {"level": 0.9}),
                (sgpa.Features, {"values": values, "padding": padding}),
                (sgpa.Features.of, {"values": values, "lengths": [5, 3]}),
                (sgpa.Classification, {"probabilities": padding.float(), "expected_entropy": torch.zeros(2)}),
                (sgpa.Regression, {"samples": torch.zeros(2, 3), "scale": torch.tensor(1.0)}),
            ]
        )
        return self.call(rng, function, good, hostile=lambda r: r.choice([any_value(r), r.choice(tensors())]))

    def multihead(self, rng):
        options = {"batch_first": True, "num_global": 3, "form": rng.choice(("cheng-boots", "orthogonal"))}
        layer, x = sgpa.MultiheadSgpa(8, 2, **options), torch.randn(2, 5, 8)
        memory = torch.randn(2, 7, 8)
        alone, later = {"query": x, "key": x, "value": x}, torch.ones(5, 5).triu(1).bool()
        good = rng.choice(
            [
                {"query": x, "key": memory, "value": memory},
                alone | {"attn_mask": later},
                alone | {"attn_mask": later, "is_causal": True},
                alone | {"key_padding_mask": torch.arange(5).expand(2, 5) > 3},
            ]
        )
        full = (torch.nan, -torch.inf, 1.0, -1e30)
        masks = [*(torch.full((5, 5), value) for value in full), x * 1e20, x + 1e6, torch.zeros(5, 7)]
        masks += [torch.ones(*shape).bool() for shape in ((4, 5, 5), (2, 5), (5, 5), (2, 7))]

        def finite(output):
            if not output[0].isfinite().all() or not sgpa.total_kl(layer, dataset_size=9).isfinite():
                raise Accepted("the output or its KL is not finite")

        def hostile(r):
            return r.choice([any_value(r), r.choice(masks)])

        return self.call(rng, layer.forward, good, finite, hostile)

    def open(self, rng):
        digit = torch.rand(2, 1, 8, 8)
        function, good = rng.choice(
            [
                (sgpa.load, {"path": self.folder / "opened"}),
                (self.opened.predict, {"inputs": digit}),
                (self.opened.predict_files, {"files": [self.folder / "missing.png"]}),
            ]
        )
        return self.call(
            rng,
            function,
            good,
            hostile=lambda r: r.choice([any_value(r), r.choice(tensors()), [any_value(r)]]),
        )

    def fit(self, rng):
        good = {"inputs": loaders(rng), "steps": 2, "batch_size": 30, "method": "mle"}
        if rng.random() < 0.3:
            good |= {"inputs": torch.randn(30, 1, 4, 4), "targets": torch.arange(30) % 3}
            good["validation"] = loaders(rng)
        return f"fit {type(good['inputs']).__name__}", lambda: sgpa.fit(**good, on_progress=lambda _: None)
