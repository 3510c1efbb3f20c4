"""A trained model with a GP on its attention: fit, calibrate, predict, save."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.arguments import checked
from sgpa.core.errors import InputError, check_fields
from sgpa.core.noise import MAX_SAMPLES, check_seed
from sgpa.posthoc.adapter import Adapter
from sgpa.posthoc.answers import Answer, make_answer
from sgpa.posthoc.calibration import calibrate
from sgpa.posthoc.calls import Call, read_batch
from sgpa.posthoc.draws import Sampler
from sgpa.posthoc.fingerprint import WeightSums, adapters_in_use, weights_fingerprint, weights_version
from sgpa.posthoc.generate import GeneratedToken, generate
from sgpa.posthoc.hub import push
from sgpa.posthoc.module import PredictionModule
from sgpa.posthoc.onnx import export_onnx
from sgpa.posthoc.passes import Pass, check_not_compiled, observe
from sgpa.posthoc.rows import read_rows
from sgpa.posthoc.sites import Site
from sgpa.posthoc.statistics import Statistics, device_of, fit_statistics


class AttachedGp:
    """A trained model with a sparse GP on every attention head; made by `attach`.

    The model itself is not touched: hooks are there only while `fit`, `calibrate` or `predict` run, so that
    `model(x)` is what it was.

    Example:
        >>> gp = sgpa.attach(model).fit(train_loader).calibrate(held_out_loader)  # doctest: +SKIP
        >>> gp.predict(batch).probabilities  # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        sites: tuple[Site, ...],
        head: nn.Module | None,
        *,
        points: int,
        share: float,
        adapter: Adapter | None = None,
    ) -> None:
        self._model: nn.Module | None = model
        self._sites, self._head, self._points, self._share = sites, head, points, share
        self._fitted: Statistics | None = None
        self._adapter = adapter
        self._weights = None if adapter is None else adapter.model  # fingerprint of what was fitted
        self._sums = None if adapter is None else WeightSums.of(model)
        self._version, self._in_use = weights_version(model), adapters_in_use(model)
        self._sampler: Sampler | None = None

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the attention modules that have a GP."""
        return tuple(site.name for site in self._sites)

    @checked
    def fit(self, loader: Iterable[Any], *, max_batches: int | None = None) -> "AttachedGp":
        """Find inducing queries for every head in one pass over training data; no labels are needed.

        Args:
            loader: batches: a tensor, a mapping of the model's arguments (such as a tokenizer returns), or a
                pair (inputs, targets). Where only a part is read, they must come in random order.
            max_batches: batches to read; all where it is left out.

        Returns:
            Itself.

        Example:
            >>> sgpa.attach(model).fit(train_loader, max_batches=50)  # doctest: +SKIP
        """
        model = self._attached("fit")
        _check_batches("fit", max_batches)
        options: dict[str, Any] = {"points": self._points, "share": self._share, "max_batches": max_batches}
        self._fitted = fit_statistics(model, self._sites, loader, head=self._head, **options)
        self._sites = self._fitted.sites
        self._adapter = None
        self._weights, self._sums = weights_fingerprint(model), WeightSums.of(model)
        self._version, self._in_use = weights_version(model), adapters_in_use(model)
        return self

    @checked
    def calibrate(
        self,
        loader: Iterable[Any],
        *,
        max_batches: int | None = None,
        unfamiliar: Mapping[str, Iterable[Any]] | None = None,
    ) -> "AttachedGp":
        """Fit how far the GPs' variance shrinks the confidence, and what is novel, on held-out labelled rows.

        Args:
            loader: batches with labels, of rows that the model was not trained on.
            max_batches: batches to read; all where it is left out.
            unfamiliar: kinds of inputs that are to look novel, batches by name. They choose what novelty
                listens to. Where it is left out, they are made from the rows of the loader: words in another
                order and at random, tiles, noise, blur and mixtures of images. With {} every view counts
                once.

        Returns:
            Itself.

        Example:
            >>> sgpa.attach(model).fit(train_loader).calibrate(validation_loader)  # doctest: +SKIP
        """
        model = self._attached("calibrate")
        _check_batches("calibrate", max_batches)
        if self._fitted is None:
            raise InputError("calibrate: call fit(train_loader) first")
        self._check_unchanged(model)
        self._adapter = calibrate(model, self._sites, self._fitted, loader, max_batches, unfamiliar)
        self._head, self._sampler = self._fitted.head, None
        return self

    @checked
    @torch.no_grad()
    def predict(self, batch: Any, *, samples: int = 0, seed: int = 0) -> Answer:
        """Answers with uncertainty for one batch.

        Args:
            batch: as for `fit`; labels are ignored.
            samples: 0 for one deterministic pass, which never changes the most probable class; S for S passes
                with noise drawn from the GPs.
            seed: of the noise.

        Returns:
            `ClassAnswer`, or `ValueAnswer` for a model with one output: one row per input, or per token where
            the model answers for every token.

        Example:
            >>> answer = gp.predict(tokenizer(texts, return_tensors="pt", padding=True))  # doctest: +SKIP
            >>> answer.probabilities, answer.novelty  # doctest: +SKIP
        """
        model, adapter = self._attached("predict"), self._ready("predict")
        check_fields("predict", [("samples", samples, 0 <= samples <= MAX_SAMPLES, f"0 to {MAX_SAMPLES}")])
        check_seed(seed)
        call = read_batch(batch, device_of(model))
        placed = adapter.on(device_of(model))
        if samples == 0:
            seen = self._observe(model, call)
            return make_answer(adapter, read_rows(seen, placed.gps, placed.novelty.views))
        if call.options.get("past_key_values") is not None:
            raise InputError(
                f"predict: samples={samples} with a key-value cache; allowed: samples=0, or no cache"
            )
        seen, draws = self._draw(model, call, adapter.scales.drawn, samples=samples, seed=seed)
        return make_answer(adapter, read_rows(seen, placed.gps, placed.novelty.views), draws)

    @checked
    def generate(
        self, prompt: Mapping[str, Any], *, max_new_tokens: int = 20, sample: bool = False, seed: int = 0
    ) -> Iterator[GeneratedToken]:
        """Text of a decoder token by token, with the uncertainty of each as soon as it is there.

        Args:
            prompt: `input_ids` [B, T] of one length, such as a tokenizer returns.
            max_new_tokens: tokens to generate at most; it ends when every row has its end token.
            sample: draw from the calibrated probabilities instead of taking the most probable token.
            seed: of the draws.

        Returns:
            An iterator of tokens [B] with their probability, entropy and novelty.

        Example:
            >>> for step in gp.generate(tokenizer("Once", return_tensors="pt")):  # doctest: +SKIP
            ...     print(tokenizer.decode(step.token), float(step.novelty))
            ...     if step.novelty > 0.99:
            ...         break
        """
        return generate(self, prompt, max_new_tokens=max_new_tokens, sample=sample, seed=seed)

    @checked
    def save_pretrained(self, folder: str | Path) -> Path:
        """Write an adapter folder, which `attach(model, folder)` reads; the model is not part of it."""
        return self._ready("save_pretrained").save(Path(folder))

    @checked
    def push_to_hub(self, name: str, *, private: bool = False) -> str:
        """Upload the adapter with a model card to the Hugging Face hub; `attach(model, name)` reads it.

        Args:
            name: `owner/name` of the repository, which is created where it does not exist.
            private: make a new repository private.

        Returns:
            The address of the upload.

        Example:
            >>> gp.push_to_hub("me/reviews-gp", private=True)  # doctest: +SKIP
        """
        return push(self._ready("push_to_hub"), name, private=private)

    def as_module(self) -> PredictionModule:
        """The deterministic prediction as a module with the model's own arguments, for `torch.export`.

        Returns:
            A module that returns probabilities and novelty, or mean, variance and novelty.

        Example:
            >>> program = torch.export.export(gp.as_module(), (), dict(batch))  # doctest: +SKIP
        """
        self._ready("as_module")
        return PredictionModule(self, self._attached("as_module"))

    @checked
    def export_onnx(self, path: str | Path, example: Any) -> Path:
        """Write the deterministic prediction with novelty as an ONNX file; weights are part of it.

        Needs the packages onnx and onnxscript (extra `onnx`). Inputs have the names of the model's arguments,
        or `input_0`, ...; outputs are `probabilities` and `novelty`, or `mean`, `variance` and `novelty`. The
        number of rows is free, and so is the number of tokens where the model allows it.

        Args:
            path: the file.
            example: a batch as for `predict`; tensors only.

        Returns:
            The path.

        Example:
            >>> gp.export_onnx("model.onnx", batch)  # doctest: +SKIP
            >>> session = onnxruntime.InferenceSession("model.onnx")  # doctest: +SKIP
        """
        return export_onnx(self, path, example)

    def detach(self) -> nn.Module:
        """Forget the model and return it, as it was before `attach`."""
        model = self._attached("detach")
        self._model, self._fitted, self._adapter, self._sampler = None, None, None, None
        return model

    def _observe(self, model: nn.Module, call: Call) -> Pass:
        assert self._head is not None
        return observe(model, self._sites, self._head, call)

    def _draw(self, model: nn.Module, call: Call, variance: Tensor, **options: Any) -> tuple[Pass, Tensor]:
        """One pass, and the outputs of others with noise of σ² [L], [S, ..., C]; see `Sampler`."""
        if self._sampler is None:
            assert self._head is not None
            self._sampler = Sampler(model, self._sites, self._head)
        gps = self._ready("predict").on(device_of(model)).gps.layers
        return self._sampler(call, gps, variance, **options)

    def _attached(self, action: str) -> nn.Module:
        if self._model is None:
            raise InputError(f"{action}: the model was detached; call sgpa.attach(model) again")
        if not torch.compiler.is_compiling():
            check_not_compiled(self._model, action)
        return self._model

    def _ready(self, action: str) -> Adapter:
        model = self._attached(action)
        if self._adapter is None:
            todo = (
                "fit(train_loader) and calibrate(validation_loader)"
                if self._fitted is None
                else "calibrate(validation_loader)"
            )
            raise InputError(f"{action}: call {todo} first")
        self._check_unchanged(model)
        return self._adapter

    def _check_unchanged(self, model: nn.Module) -> None:
        """Raise if the weights are not those that the GPs were fitted to."""
        if torch.compiler.is_compiling():
            return
        if adapters_in_use(model) != self._in_use:
            raise InputError(
                f"{type(model).__name__}: other PEFT adapters are on than at fit; switch them back"
            )
        version = weights_version(model)
        if version == self._version:
            return
        same = weights_fingerprint(model) == self._weights
        if not same or self._sums is None or not self._sums.agree(WeightSums.of(model)):
            raise InputError(
                f"{type(model).__name__}: its weights changed after fit; fit and calibrate again"
            )
        self._version = version  # moved to another device and the like


def _check_batches(owner: str, count: int | None) -> None:
    check_fields(owner, [("max_batches", count, count is None or 1 <= count <= sys.maxsize, "1 or more")])
