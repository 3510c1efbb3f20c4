"""The Transformer as a deep GP: embedding, layers, pooling, head."""

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from sgpa.attention import DecoupledSgpa, GlobalState, global_states
from sgpa.attention.base import mask_tokens
from sgpa.attention.kernel import KernelProjections
from sgpa.core.arguments import checked
from sgpa.core.errors import InputError
from sgpa.core.files import check_fit, load_exactly
from sgpa.core.inputs import Inputs, tensors_of
from sgpa.core.noise import (
    MAX_SAMPLES,
    ByRow,
    Dropout,
    check_seed,
    contents,
    drawn_by_row,
    dropping,
    seeded,
    source,
)
from sgpa.core.precision import full_precision
from sgpa.core.types import AttentionOutput, Kl, ModelOutput, Prediction
from sgpa.gp.likelihoods import LIKELIHOODS
from sgpa.models import saving
from sgpa.models.batches import in_batches, no_rows
from sgpa.models.bayesian import bayesian_maps, drawing
from sgpa.models.config import ModelConfig
from sgpa.models.embeddings import embedding_of
from sgpa.models.layer import Layer, Mlp, features_of
from sgpa.models.linearised import label_moments, moments_of_rows, output_moments
from sgpa.models.modes import NoDropout, evaluating
from sgpa.models.sampled import SampledPredictor

States = tuple[GlobalState | None, ...]

SUMMED = 64  # tokens: what sums over tokens are divided by


class Transformer(nn.Module):
    """A Transformer read as a deep GP, with the likelihood of its outputs.

    `forward` returns outputs [B, C], or [S, B, C] with `samples=S`. All that comes before the first random
    step, and the moments of a first sampled layer, are then computed once.

    Args:
        config: what to build.

    >>> model = Transformer(ModelConfig(embedding=PatchConfig()))
    >>> model(torch.randn(2, 3, 32, 32)).f.shape
    torch.Size([2, 10])
    """

    @checked
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = c = config
        self.embedding = embedding_of(c.embedding, c.width)
        self.dropout = Dropout(c.dropout)
        self.layers = nn.ModuleList(
            Layer(
                f"layer {i + 1}",
                c.attention.build(c.width, c.heads, c.dropout, c.embedding),
                Mlp(c.width, c.dropout) if i else None,
            )
            for i in range(c.depth)
        )
        self.mlp = Mlp(c.width, c.dropout)
        self.norm = nn.LayerNorm(c.width)
        self.pool = nn.Linear(c.width, 1) if c.pooling == "sequence" else None
        self.head = c.head.build(c.width, c.outputs)
        self.likelihood = LIKELIHOODS[c.likelihood]()
        c.weights.apply(self)

    @property
    def gp_layers(self) -> list[Layer]:
        """The layers, typed."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]

    @property
    def stochastic(self) -> bool:
        """Whether two passes over the same inputs differ in the model's present mode."""
        sampled = any(layer.attention.stochastic for layer in self.gp_layers)
        return sampled or dropping(self) or bool(bayesian_maps(self))

    @property
    def controls_own_precision(self) -> bool:
        """Whether float32 products outside the layers' operators may run in TF32."""
        return all(layer.attention.controls_own_precision for layer in self.gp_layers)

    @property
    def usual_samples(self) -> int:
        """The default number of samples of a prediction: ten for a stochastic model, otherwise one."""
        return 10 if self.stochastic else 1

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def trimmed(self, inputs: Inputs, multiple: int = 1) -> Inputs:
        """The inputs without the columns that are padding in every row, up to a multiple of columns."""
        trimmed: Inputs = self.embedding.trimmed(inputs, multiple)  # type: ignore[operator]
        return trimmed

    def global_state(self) -> States:
        """What depends on the parameters alone, for all layers in one batch: G_phi(Z_g), K_gg, S_g, KL_g.

        It is a value, not a cache: training computes it every step, prediction once per call.
        """
        sparse = [layer for layer in self.gp_layers if isinstance(layer.attention, DecoupledSgpa)]
        computed = iter(self._states_of(sparse))
        return tuple(next(computed) if layer in sparse else None for layer in self.gp_layers)

    def _states_of(self, layers: list[Layer]) -> tuple[GlobalState, ...]:
        attentions = [layer.attention for layer in layers if isinstance(layer.attention, DecoupledSgpa)]
        if not attentions:
            return ()
        with NoDropout(self), full_precision(attentions[0].Z_g):
            return global_states(attentions, features_of(layers, [a.Z_g for a in attentions]))

    def run_layers(
        self, inputs: Inputs, states: States | None = None, samples: int | None = None
    ) -> Iterator[tuple[Layer, Tensor, Tensor | None, AttentionOutput]]:
        """Run the layers; yields each with its input f, the padding of its output and that output.

        Samples multiply the batch at the first random step: from there on f is [S B, T, E].
        """
        states = self.global_state() if states is None else states
        if samples is not None and (bayesian_maps(self) or dropping(self.embedding)):
            inputs, samples = inputs[torch.arange(len(inputs), device=self.device).repeat(samples)], None
        f, padding = self.embedding(inputs)  # [B, T, E], [B, T] or None
        if samples is not None and self.dropout.active:
            f = f.repeat(samples, 1, 1)
            padding = None if padding is None else padding.repeat(samples, 1)
            samples = None
        f = self.dropout(f)
        for layer, state in zip(self.gp_layers, states, strict=True):
            draws = samples if layer.attention.stochastic else None
            out = layer(f, padding, state, draws)
            if draws is not None:
                out = AttentionOutput(out.value.flatten(0, 1), Kl(out.kl.g, out.kl.a.repeat(draws)))
                padding = None if padding is None else padding.repeat(draws, 1)
                samples = None
            yield layer, f, padding, out
            f = out.value

    def forward(
        self, inputs: Inputs, *, samples: int | None = None, states: States | None = None
    ) -> ModelOutput:
        """Outputs before the likelihood, and the KL of each layer."""
        with drawing(self, samples):
            x, kl = self.features(inputs, samples=samples, states=states)
            f = self.head(x)  # [B or S B, C]
        if samples is not None:
            f = f.unflatten(0, (samples, -1)) if self.stochastic else f.expand(samples, *f.shape)
        return ModelOutput(f, kl)

    def features(
        self, inputs: Inputs, *, samples: int | None = None, states: States | None = None
    ) -> tuple[Tensor, tuple[Kl, ...]]:
        """The input of the head, [B, E], or [S B, E] with samples of a stochastic model; and the KLs."""
        steps = [(padding, out) for _, _, padding, out in self.run_layers(inputs, states, samples)]
        padding, last = steps[-1]
        x = self.pooled(self.norm(self.mlp(last.value)), padding)
        return x, tuple(out.kl for _, out in steps)

    def pooled(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """One vector per sequence, from its tokens that are not padding: [B, T, E] -> [B, E]."""
        if self.config.pooling == "sum":
            return mask_tokens(x, padding).sum(1) / SUMMED
        scores = x.new_zeros(x.shape[:2]) if self.pool is None else self.pool(x).squeeze(-1)  # [B, T]
        if padding is not None:
            scores = scores.masked_fill(padding, -float("inf"))
        return (scores.softmax(-1).unsqueeze(1) @ x).squeeze(1)

    def scale_initial_variance(self, share: float) -> None:
        """Multiply the prior variance of every sampled layer by `share`; the means K_qa v_a stay."""
        for layer in self.gp_layers:
            if layer.attention.stochastic and isinstance(layer.attention, KernelProjections):
                layer.attention.scale_initial_variance(share)

    @torch.no_grad()
    def place_inducing_points(self, inputs: Inputs) -> None:
        """Set every layer's Z_g to tokens of its own input space, in one pass over `inputs`."""
        with NoDropout(self):
            f, padding = self.embedding(inputs)
            cells = torch.arange(f.shape[1], device=f.device).expand(f.shape[:2])  # [B, T]
            real = torch.ones_like(cells, dtype=torch.bool) if padding is None else ~padding
            for layer in self.gp_layers:
                state = None
                if isinstance(layer.attention, DecoupledSgpa):
                    layer.attention.init_on_data(f[real], cells[real])
                    (state,) = self._states_of([layer])
                f = layer(f, padding, state).value

    @torch.no_grad()
    @checked
    def predict(
        self, inputs: Inputs, *, samples: int | None = None, batch_size: int | None = None, seed: int = 0
    ) -> Prediction:
        """Predict labels or values for all rows, with uncertainty.

        The caller's random state and the model's mode are left as they are. Several threads may predict with
        one model: they take turns, and each gets the answers of its seed.

        Args:
            inputs: images, token ids, graphs, words or features, as the config's embedding reads them.
            samples: draws to average over; ten for a stochastic model, otherwise one. With 0 nothing is
                drawn: posterior means go through the model, the layers' variances are carried to the outputs
                to first order (`linearised.label_moments`), and the likelihood averages over that normal
                distribution at fixed points. The prediction of a row then depends neither on the seed nor on
                other rows. A model that samples nothing predicts the same with any number.
            batch_size: rows in one pass; by default what fits the caches of a CPU, or keeps a GPU busy.
            seed: the same seed gives the same prediction.

        Returns:
            `Classification` or `Regression`, by the model's likelihood.

        >>> model = Transformer(ModelConfig(embedding=PatchConfig()))
        >>> model.predict(torch.randn(2, 3, 32, 32)).probabilities.shape
        torch.Size([2, 10])
        """
        with evaluating(self):
            if samples == 0 and not self.stochastic:
                samples = None
            if samples == 0:
                return self.likelihood.predict_normal(
                    *moments_of_rows(self, label_moments, inputs, batch_size)
                )
            f = self.draw(inputs, samples=samples, batch_size=batch_size, seed=seed)  # [S, N, C]
        return self.likelihood.predict(f)

    @checked
    def with_samples(self, samples: int) -> SampledPredictor:
        """This model as a predictor that draws `samples` samples; 0 draws none (`predict`)."""
        return SampledPredictor(self, samples)

    @torch.no_grad()
    @checked
    def draw(
        self, inputs: Inputs, *, samples: int | None = None, batch_size: int | None = None, seed: int = 0
    ) -> Tensor:
        """Outputs [S, N, C] of all rows in the model's present mode; arguments as in `predict`."""
        check_seed(seed)
        samples = self.usual_samples if samples is None else samples
        if not 1 <= samples <= MAX_SAMPLES:
            raise InputError(
                f"samples={samples} (allowed: 1 to {MAX_SAMPLES}; `predict` takes 0 to draw nothing)"
            )
        states = self.global_state()

        def outputs(rows: Inputs) -> Tensor:
            return self(rows, samples=samples, states=states).f

        def outputs_alone(rows: Inputs) -> Tensor:
            with source(ByRow(seed, contents(rows))):
                return outputs(rows)

        if drawn_by_row() and (self.stochastic or dropping(self)) and not no_rows(inputs):
            return self._in_groups(inputs, outputs_alone, samples, batch_size)
        with seeded(seed, self.device):
            return torch.cat(list(in_batches(self, outputs, inputs, samples=samples, rows=batch_size)), 1)

    def _in_groups(
        self, inputs: Inputs, outputs: Callable[[Inputs], Tensor], samples: int, batch_size: int | None
    ) -> Tensor:
        """Outputs [S, N, C], computed for rows of one size at a time: no row has padding."""
        groups: dict[tuple[torch.Size, ...], list[int]] = {}
        for i in range(len(inputs)):
            sizes = tuple(x.shape for x in tensors_of(self.trimmed(inputs[i : i + 1])))
            groups.setdefault(sizes, []).append(i)
        parts = [
            torch.cat(list(in_batches(self, outputs, rows, samples=samples, rows=batch_size)), 1)
            for rows in (self.trimmed(inputs[torch.tensor(places)]) for places in groups.values())
        ]
        order = torch.tensor([i for places in groups.values() for i in places])
        return torch.cat(parts, 1)[:, order.argsort().to(self.device)]

    @checked
    def moments(self, inputs: Inputs, *, batch_size: int | None = None) -> tuple[Tensor, Tensor]:
        """Mean [N, C] and covariance [N, C, C] of the outputs of all rows (`linearised.output_moments`)."""
        return moments_of_rows(self, output_moments, inputs, batch_size)

    @checked
    def save_pretrained(self, directory: str | Path) -> Path:
        """Save the model.

        Args:
            directory: where config.json and model.safetensors are written, each file whole or not at all.

        Returns:
            The directory.
        """
        return saving.save(self.config, self.state_dict(), Path(directory))

    @classmethod
    @checked
    def from_pretrained(cls, directory: str | Path) -> "Transformer":
        """Load a model that `save_pretrained` wrote; also `sgpa.load`.

        Args:
            directory: with config.json and model.safetensors.

        Returns:
            The model on the CPU, in evaluation mode.

        >>> model = Transformer.from_pretrained("runs/photos/model")  # doctest: +SKIP
        """
        config, weights = saving.load(Path(directory))
        with torch.random.fork_rng(devices=[]):  # initial values are drawn, then replaced
            with torch.device("meta"):  # nothing is allocated before the sizes are known to fit
                check_fit(cls(config).state_dict(), weights, Path(directory))
            model = cls(config)
        load_exactly(model, weights, Path(directory))
        return model.eval()
