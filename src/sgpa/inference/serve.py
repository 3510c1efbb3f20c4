"""Fast prediction on a GPU: batches of one size, traced, compiled and recorded once for a final model.

    fast = serve(model, rows=200)
    fast.predict(images).probabilities

All samples are drawn in one pass. What comes before the first random operation, and the moments of a first
sampled layer, are computed once; the global state is computed when the service is set up. Products with
weights run in TF32 where the model's attention controls its own precision. Setting up takes about half a
minute. A model with a layer for which float32 is too coarse takes plain passes: a recorded one cannot choose
float64.
"""

import logging
from collections.abc import Callable
from threading import Lock
from typing import TypeGuard

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sgpa.core.arguments import checked
from sgpa.core.counters import FLOAT64_PASSES, counting
from sgpa.core.errors import InputError, check_fields, first_line
from sgpa.core.inputs import Inputs
from sgpa.core.noise import Draw, Generated, Playback, Recording, check_seed, samples_check, source
from sgpa.core.precision import matrix_units, require_finite, unchecked
from sgpa.core.types import Prediction, Predictor
from sgpa.methods import DropoutPredictor, SampledPredictor
from sgpa.models import PatchConfig, Transformer
from sgpa.models.embeddings.patches import PatchEmbedding
from sgpa.models.modes import evaluating

log = logging.getLogger(__name__)


Servable = Transformer | SampledPredictor | DropoutPredictor


def worth_serving(predictor: Predictor) -> TypeGuard[Servable]:
    """Whether it is a single model that samples; others take one pass, or cannot be served."""
    sampled = isinstance(predictor, SampledPredictor | DropoutPredictor)
    return sampled or (isinstance(predictor, Transformer) and predictor.stochastic)


@checked
def serve(predictor: Servable, rows: int) -> "Served":
    """Set up fast prediction with the model as it is now.

    Args:
        predictor: A model of images, or its MC dropout or sampled predictor.
        rows: Images of a pass; other numbers of images are split and padded.

    Returns:
        A predictor with the same `predict`.

    Example:
        >>> serve(model, rows=200).predict(images).probabilities  # doctest: +SKIP
    """
    if isinstance(predictor, Transformer):
        with evaluating(predictor):
            samples = predictor.usual_samples
        return Served(predictor, samples, rows, dropout=False)
    if not isinstance(predictor, SampledPredictor | DropoutPredictor):
        raise InputError(f"{type(predictor).__name__} cannot be served; a single model, or MC dropout, can")
    return Served(predictor.model, predictor.samples, rows, isinstance(predictor, DropoutPredictor))


class Served(Predictor):
    """The predictions of a predictor, up to rounding, for any number of images."""

    def __init__(self, model: Transformer, samples: int, rows: int, dropout: bool) -> None:
        e = model.config.embedding
        if not isinstance(e, PatchConfig):
            raise InputError("only models of images can be served: other sequences have many lengths")
        check_fields(
            "serve",
            [("rows", rows, rows >= 1, "1 or more"), samples_check(samples)],
        )
        self.model, self.samples, self.rows, self.dropout = model, samples, rows, dropout
        self.inputs = torch.zeros(rows, e.channels, e.image_size, e.image_size, device=model.device)
        self.generator = torch.Generator(model.device)
        self.lock = Lock()  # of the tensors that a pass reads and writes
        self.graph: torch.cuda.CUDAGraph | None = None
        with evaluating(model, dropout=dropout), torch.no_grad():
            self.states = model.global_state()
            with counting() as counted:
                self.draws = self._rehearse()
            self.needs_float64 = FLOAT64_PASSES in counted
            self.run = self._plain
            if self.needs_float64:
                log.warning("float32 is too coarse for a layer: predictions are not compiled or recorded")
            elif model.device.type == "cuda":
                self._record()
            else:
                log.warning("no GPU: served predictions are neither compiled nor recorded")

    @checked
    def predict(self, inputs: Inputs, *, seed: int = 0) -> Prediction:
        """Predictions for all rows; the same seed gives the same answer."""
        return self.model.likelihood.predict(self.draw(inputs, seed=seed))

    @checked
    @torch.no_grad()
    def draw(self, inputs: Inputs, *, seed: int = 0) -> Tensor:
        """Outputs [S, N, C] of all rows; several threads take turns."""
        check_seed(seed)
        if isinstance(inputs, Tensor) and inputs.is_meta:
            raise InputError("inputs are meta tensors (allowed: tensors with values)")
        if not isinstance(inputs, Tensor) or inputs.shape[1:] != self.inputs.shape[1:]:
            shape = list(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise InputError(
                f"expected images [N, {', '.join(map(str, self.inputs.shape[1:]))}], got {shape}"
            )
        if len(inputs) == 0:
            raise InputError("nothing to predict: the inputs have no row")
        embedding = self.model.embedding
        assert isinstance(embedding, PatchEmbedding)
        parts = []
        with self.lock:
            self.generator.manual_seed(seed)
            for batch in inputs.split(self.rows):
                self.inputs[: len(batch)].copy_(embedding.normalised(batch.to(self.inputs.device)))
                parts.append(self._pass()[:, : len(batch)].clone())
        f = torch.cat(parts, 1)
        require_finite(lambda: "the model's outputs are not finite: check the images and the model", f)
        return f

    def _rehearse(self) -> list[Draw]:
        recording = Recording()
        with torch.random.fork_rng(), source(recording):
            self.model(torch.randn_like(self.inputs), samples=self.samples, states=self.states)
        return recording.draws

    def _pass(self) -> Tensor:
        """Outputs [S, rows, C] of the images in `self.inputs`."""
        if self.graph is not None:
            self.graph.replay()
            return self.outputs
        with evaluating(self.model, dropout=self.dropout):
            if not self.needs_float64:
                return self.run(self.inputs, self._numbers())
            with source(Generated(self.generator)):
                return self.model(self.inputs, samples=self.samples, states=self.states).f

    def _numbers(self) -> list[Tensor]:
        return [draw.fresh(self.generator) for draw in self.draws]

    def _plain(self, x: Tensor, numbers: list[Tensor]) -> Tensor:
        with source(Playback(numbers)), unchecked():
            return self.model(x, samples=self.samples, states=self.states).f

    def _record(self) -> None:
        with matrix_units(self.model.controls_own_precision):
            numbers = self._numbers()
            try:
                traced = make_fx(_function(self._plain))(self.inputs, numbers)
                self.run = torch.compile(traced, dynamic=False)
                self.run(self.inputs, numbers)
            except Exception as error:  # compilers fail in many ways; the plain pass remains
                self.run = self._plain
                log.warning("the prediction cannot be compiled and takes a slower way: %s", first_line(error))
            graph = torch.cuda.CUDAGraph()
            graph.register_generator_state(self.generator)
            with torch.cuda.graph(graph):
                self.outputs = self.run(self.inputs, self._numbers())
            self.graph = graph


def _function(method: Callable[[Tensor, list[Tensor]], Tensor]) -> Callable[[Tensor, list[Tensor]], Tensor]:
    """A function that calls a method: `make_fx` would count `self` among the arguments."""

    def function(x: Tensor, numbers: list[Tensor]) -> Tensor:
        return method(x, numbers)

    return function
