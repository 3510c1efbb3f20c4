"""Hostile calls of what is opened, attached and loaded: runs, attached GPs, `DataLoader`s."""

import torch
from tests.fuzz.files import read_saved_or_old
from tests.fuzz.guard import Accepted
from tests.fuzz.values import any_value, tensors
from tests.support.paths import KEPT
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
        self.kinds = [(self.attach, 3), (self.attached, 5), (self.open, 5), (self.fit, 1)]

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
