"""Every number of every config, replaced by hostile ones: refused in one line, or predictions are finite."""

import math
from dataclasses import fields, is_dataclass, replace

import pytest
import torch
from tests.fuzz.guard import Accepted, judge
from tests.support.small_models import GRAPHS, PATCHES, TOKENS, graphs, images, small, texts

import sgpa
from sgpa.core.config import leaves
from sgpa.core.inputs import Words
from sgpa.methods import Ensemble, KfacLaplace, McDropout, Mfvi, Sgpa, Sngp
from sgpa.models import (
    FeatureConfig,
    KernelConfig,
    MeanFieldConfig,
    RandomFeatureConfig,
    SgpaConfig,
    SpectralConfig,
    Transformer,
    WordsConfig,
)

WHOLE = (0, -1, 2**31, 2**63, 2**70, -(2**70))
NUMBERS = (0.0, -0.5, 1e-320, 1e-40, 1e-20, 1e20, 1e40, 1e308, -1e308, math.nan, math.inf, -math.inf)
WORDS = WordsConfig(vocabulary=7, features=4, layers=2, max_tokens=6, embedding_width=8)
SCALED = replace(PATCHES, mean=(0.5,), std=(0.5,), normalise_floats=True)
LOCAL = SgpaConfig(num_global=3, kernel=KernelConfig(locality=(1.0,)))
CONFIGS = {
    "patches": (small(SCALED, LOCAL), images),
    "tokens": (small(TOKENS, SgpaConfig(form="standard")), texts),
    "graphs": (small(GRAPHS, outputs=1, likelihood="laplace", pooling="sum"), graphs),
    "words": (small(WORDS), lambda: Words(torch.ones(2, 5, dtype=torch.long), torch.randn(2, 5, 2, 4))),
    "features": (
        small(FeatureConfig(width=4)),
        lambda: sgpa.Features(torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.bool)),
    ),
    "mean-field": (small(weights=MeanFieldConfig()), images),
    "spectral": (small(weights=SpectralConfig(), head=RandomFeatureConfig(features=8)), images),
}


def changed(config):
    """The config with every number replaced by every hostile one; calls that may raise."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            for inner in changed(value):
                yield lambda inner=inner, name=field.name: replace(config, **{name: inner()})
        elif isinstance(value, tuple):
            for number in NUMBERS if value else ():
                yield lambda number=number, name=field.name: replace(config, **{name: (number,)})
        elif isinstance(value, int | float) and not isinstance(value, bool):
            for number in WHOLE if isinstance(value, int) else NUMBERS:
                yield lambda number=number, name=field.name: replace(config, **{name: number})


@pytest.mark.parametrize("name", CONFIGS)
def test_hostile_numbers_in_a_model_config(name):
    config, inputs = CONFIGS[name]
    given = inputs()
    for number, make in enumerate(changed(config)):

        def predict(make=make):
            prediction = Transformer(make()).eval().predict(given, samples=1)
            if not prediction.score.isfinite().all():
                raise Accepted("the prediction is not finite")

        assert judge(number, name, predict) is None


@pytest.mark.parametrize(
    "method",
    [Ensemble(base=Sgpa()), KfacLaplace(), McDropout(), Mfvi(), Sgpa(), Sngp(), sgpa.OptimConfig()],
    ids=lambda method: type(method).__name__,
)
def test_hostile_numbers_in_the_config_of_a_method(method):
    for number, make in enumerate(changed(method)):

        def build(make=make):
            numbers = [value for _, value in leaves(make()) if isinstance(value, int | float)]
            if not all(abs(number) < 1e300 for number in numbers):
                raise Accepted(f"numbers are {numbers}")

        assert judge(number, type(method).__name__, build) is None
