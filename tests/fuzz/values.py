"""Hostile values for arguments, settings and entries of JSON files."""

import math
from pathlib import Path

import numpy as np
import torch

import sgpa


def _loop():
    values = []
    values.append(values)
    return values


class Odd:
    """An object that fails at everything."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None


PLAIN = (
    *(None, True, False, 0, 1, 2, 3, -1, 7, 10**9, 2**31, 2**63, 2**70, -(2**70)),
    *(0.0, -0.0, 0.5, -0.5, 1.0, 1.5, 1e-320, 1e308, -1e308, math.nan, math.inf, -math.inf),
    *(
        "",
        "0",
        "1/N",
        "nan",
        "auto",
        "sgpa",
        "a\0b",
        "a\nb",
        "../../etc/passwd",
        "é" * 300,
        "\ud800",
        "<script>",
    ),
    *([], [1], ["a", 2], [[]], [None], {}, {"kind": "model"}, {"a": {"b": []}}),
)
PYTHON = (
    *((), (1,), (0.5, "a"), b"", b"\xff", object(), object, len, Odd(), _loop(), set(), frozenset({1})),
    *(
        1j,
        slice(3),
        range(3),
        iter([]),
        ...,
        NotImplemented,
        ValueError("a"),
        Path(),
        Path("/dev/null"),
        Path("a\0b"),
    ),
    *(
        np.int64(2),
        np.float32(0.5),
        np.bool_(True),
        np.array(3),
        np.zeros(3),
        np.array(["a"]),
        np.float64("nan"),
    ),
    *(torch.tensor(1), torch.tensor(math.nan), torch.zeros(0), torch.device("cpu"), torch.float16),
    *(sgpa.PatchConfig(), sgpa.PatchConfig, sgpa.OptimConfig(), sgpa.Mle(), sgpa.ArdRbfKernel(2, 4)),
    *(sgpa.KernelConfig(), sgpa.TokenConfig(vocabulary=5), torch.nn.Linear(2, 2)),
)


def tensors():
    """Tensors that are wrong in shape, type or content, made anew."""
    x = torch.randn(3, 1, 4, 4)
    return [
        *(x[0], x[0, 0], x[0, 0, 0], x[:0], x[..., :3], x[:, :0], x.unsqueeze(0), torch.tensor(0.5)),
        *(x * math.nan, x * math.inf, x * 1e30, x * 1e-40, x + 1e6, x.half(), x.double(), x.bfloat16()),
        *(
            x.long(),
            x.bool(),
            x.to(torch.complex64),
            x.to(torch.int8),
            x.to(torch.uint8),
            x.expand(3, 2, 4, 4),
        ),
        *(
            torch.zeros(3, 4, dtype=torch.long),
            torch.full((3, 4), 10**9),
            torch.full((3, 4), -5),
            x.to_sparse(),
        ),
        *(x.mT, x.permute(3, 2, 1, 0), torch.empty(3, 1, 4, 4, device="meta"), x.clone().requires_grad_()),
        *(
            x.numpy(),
            x.tolist(),
            [x],
            (x, x),
            torch.nn.Parameter(x),
        ),
    ]


def any_value(rng):
    """One of all."""
    return rng.choice((*PLAIN, *PYTHON, *tensors()))
