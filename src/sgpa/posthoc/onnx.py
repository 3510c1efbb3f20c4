"""The deterministic prediction with novelty as an ONNX file."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from sgpa.core.errors import InputError, one_line
from sgpa.models.modes import evaluating
from sgpa.posthoc.calls import Call, read_batch
from sgpa.posthoc.module import PredictionModule
from sgpa.posthoc.statistics import device_of

if TYPE_CHECKING:
    from sgpa.posthoc.attached import AttachedGp

PACKAGES = ("onnx", "onnxscript")


class Positional(nn.Module):
    """A prediction module whose named arguments are given in order, as the inputs of an ONNX graph are."""

    def __init__(self, module: PredictionModule, names: tuple[str, ...]) -> None:
        super().__init__()
        self.training = False
        self.module, self.names = module, names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """What the prediction module returns."""
        return (
            self.module(**dict(zip(self.names, inputs, strict=True))) if self.names else self.module(*inputs)
        )


def export_onnx(gp: "AttachedGp", path: str | Path, example: Any) -> Path:
    """See `AttachedGp.export_onnx`."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InputError(f"export_onnx needs the package {missing[0]}: pip install {' '.join(PACKAGES)}")
    module = gp.as_module()
    call = read_batch(example, device_of(module.model))
    names, inputs = graph_inputs(call)
    shapes = tuple(dynamic_sizes(x) for x in inputs)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with torch.no_grad(), quiet(), evaluating(module.model):
            program = torch.onnx.export(
                Positional(module, tuple(call.options)),
                inputs,
                dynamo=True,
                dynamic_shapes=(shapes,),
                input_names=names,
                verbose=False,
            )
    except (torch.onnx.errors.OnnxExporterError, RuntimeError) as error:
        reason = one_line(str(error.__cause__ or error).strip().split("\n")[0])[:200]
        raise InputError(
            f"export_onnx: {type(module.model).__name__} cannot be exported: {reason}"
        ) from error
    assert program is not None
    name_outputs(program.model.graph, module.outputs)
    program.save(path)
    return path


def name_outputs(graph: Any, names: Sequence[str]) -> None:
    """Name the outputs of a graph; values inside it, such as "mean", are renamed."""
    for node in graph:
        for value in node.outputs:
            value.name = f"{value.name}_inside"
    for value, name in zip(graph.outputs, names, strict=True):
        value.name = name


def graph_inputs(call: Call) -> tuple[list[str], tuple[Tensor, ...]]:
    """Names and values of the inputs; a single row is doubled, because a size of 1 would become fixed."""
    given = call.options or {f"input_{i}": x for i, x in enumerate(call.args)}
    others = [name for name, value in given.items() if not isinstance(value, Tensor)]
    if others:
        kind = type(given[others[0]]).__name__
        raise InputError(f"export_onnx: {others[0]} is a {kind} (allowed: tensors)")
    return list(given), tuple(torch.cat([x, x]) if len(x) == 1 else x for x in given.values())


def dynamic_sizes(x: Tensor) -> dict[int, Any]:
    """The sizes that may differ from the example's: rows, and the tokens of ids and masks [B, T]."""
    tokens = x.ndim == 2 and not x.is_floating_point()
    return {0: Dim.DYNAMIC} | ({1: Dim.AUTO} if tokens else {})


@contextmanager
def quiet() -> Iterator[None]:
    """A block without the exporter's remarks on its own internals."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
