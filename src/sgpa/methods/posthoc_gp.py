"""A sparse GP attached to the attention of a trained model: its mean stays, its variance is computed.

The model of maximum likelihood is not changed. `sgpa.posthoc` finds inducing queries for every head on
training rows, and carries the variance that they leave to the outputs; a few scales are fitted on validation
rows. One pass predicts, and the labels are those of the base.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from sgpa.core.arguments import checked
from sgpa.core.errors import CheckpointError, check_fields
from sgpa.core.inputs import Batch, Inputs
from sgpa.core.limits import NOVELTY_ROWS
from sgpa.core.noise import check_seed
from sgpa.core.types import Classification, Prediction, Predictor
from sgpa.data import Dataset
from sgpa.methods.base import (
    NOTHING,
    Calibration,
    Method,
    PostHoc,
    Tensors,
    check_calibrated,
    check_classifier,
)
from sgpa.methods.mle import Mle
from sgpa.models import Transformer
from sgpa.models.batches import in_batches
from sgpa.posthoc.adapter import Adapter
from sgpa.posthoc.attached import AttachedGp
from sgpa.posthoc.calibration import calibrate
from sgpa.posthoc.find import find_attention
from sgpa.posthoc.fingerprint import weights_fingerprint
from sgpa.posthoc.statistics import fit_statistics
from sgpa.posthoc.views import all_names

ROWS = 8000  # training rows that inducing points are chosen from
AT_ONCE = 128  # rows of a pass
VIEWS = "views"  # numbers of the columns of novelty among `all_names`


@checked
@dataclass(frozen=True, kw_only=True)
class PosthocGp(PostHoc):
    """p(y | x) = softmax(f / T(x)): the confidence shrinks where a GP on the attention knows little.

    The same as `sgpa.attach(model).fit(train).calibrate(validation)` on a model that `base` trained.

    Args:
        base: maximum likelihood, with kernel or dot-product attention.
        num_inducing: M, inducing queries of every head; fewer where there are fewer than 2 M training tokens.

    Example:
        >>> method = PosthocGp()
        >>> calibration = method.calibrate(model, Calibration(train, validation))  # doctest: +SKIP
        >>> method.predictor(model, calibration).predict(images)  # doctest: +SKIP
    """

    base: Method = field(default_factory=Mle)
    num_inducing: int = 64

    id = "posthoc"
    regression = False

    def __post_init__(self) -> None:
        check_fields(
            self.id,
            [
                ("base", self.base.id, isinstance(self.base, Mle), "mle"),
                ("num_inducing", self.num_inducing, 1 <= self.num_inducing <= 1024, "1 to 1024"),
            ],
        )

    def calibrate(self, model: Transformer, data: Calibration) -> Tensors:
        """Inducing queries, gains and scales; the tensors of an adapter."""
        check_classifier(model, self.id)
        rows = len(data.validation)
        check_fields(self.id, [("validation rows", rows, rows >= NOVELTY_ROWS, f"{NOVELTY_ROWS} or more")])
        sites, head = find_attention(model), _head(model)
        points = min(self.num_inducing, count_tokens(model, data.train, 2 * self.num_inducing) // 2)
        fitted = fit_statistics(
            model, sites, batches(model, data.train), head=head, points=points, share=1.0, max_batches=None
        )
        adapter = calibrate(model, sites, fitted, batches(model, data.validation), None)
        names = all_names(len(sites))
        views = torch.tensor([names.index(name) for name in adapter.novelty.views.names])
        return {**adapter.tensors(), VIEWS: views}

    def predictor(self, model: Transformer, calibration: Tensors = NOTHING) -> Predictor:
        """The model with its GPs attached."""
        check_classifier(model, self.id)
        check_calibrated(calibration, {"scales.data": ()}, self.id)
        sites, head = find_attention(model), _head(model)
        config = {
            "views": _names(calibration, len(sites), self.id),
            "modules": [site.name for site in sites],
            "head": "head",
            "share": 1.0,
            "classes": True,
            "shift": False,
            "model": weights_fingerprint(model),
            "model_type": type(model).__name__,
        }
        adapter = Adapter.from_tensors({k: x.cpu() for k, x in calibration.items()}, config, self.id)
        gp = AttachedGp(model, sites, head, points=self.num_inducing, share=1.0, adapter=adapter)
        return AttachedPredictor(model, gp)


@dataclass(frozen=True)
class AttachedPredictor(Predictor):
    """Predicts by one pass, or by `samples` passes with noise drawn from the GPs."""

    model: Transformer
    gp: AttachedGp
    samples: int = 0

    def predict(self, inputs: Inputs, *, batch_size: int | None = None, seed: int = 0) -> Prediction:
        """Probabilities of all rows; the same seed gives the same answer."""
        check_seed(seed)

        def answers(rows: Inputs) -> Tensor:
            answer = self.gp.predict(self.model.trimmed(rows), samples=self.samples, seed=seed)
            assert isinstance(answer, Classification)
            return torch.cat([answer.probabilities, answer.expected_entropy.unsqueeze(-1)], -1)  # [b, K + 1]

        rows = torch.cat(
            list(in_batches(self.model, answers, inputs, samples=max(1, self.samples), rows=batch_size))
        )
        return Classification(rows[:, :-1], rows[:, -1])

    def with_samples(self, samples: int) -> Predictor:
        """The same GPs with another number of passes; 0 draws nothing."""
        return replace(self, samples=samples) if samples >= 0 else super().with_samples(samples)


def batches(model: Transformer, data: Dataset) -> Iterator[Batch]:
    """At most `ROWS` rows in random order, a pass at a time on the model's device."""
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))[:ROWS]
    for index in order.split(AT_ONCE):
        rows = data[index]
        yield Batch(model.trimmed(rows.inputs.to(model.device)), rows.targets.to(model.device))


@torch.no_grad()
def count_tokens(model: Transformer, data: Dataset, enough: int) -> int:
    """The number of tokens without padding of the rows of `batches`; not counted beyond `enough`."""
    tokens = 0
    for batch in batches(model, data):
        f, padding = model.embedding(batch.inputs)  # [b, T, E], [b, T] or None
        tokens += len(f) * f.shape[1] if padding is None else int((~padding).sum())
        if tokens >= enough:
            break
    return tokens


def _names(calibration: Tensors, layers: int, method: str) -> list[str]:
    """Names of the saved columns of novelty."""
    names, saved = all_names(layers), calibration.get(VIEWS, torch.empty(0)).tolist()
    if any(i not in range(len(names)) for i in saved):
        raise CheckpointError(f"{method}: {VIEWS}={saved} for {layers} layers; it was damaged")
    return [names[int(i)] for i in saved]


def _head(model: Transformer) -> nn.Module:
    head = model.head
    assert isinstance(head, nn.Linear)  # that of every model of maximum likelihood
    return head
