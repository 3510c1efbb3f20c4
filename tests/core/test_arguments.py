"""Types of arguments are checked against their annotations, at every public door."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import sgpa
from sgpa.core.arguments import checked, convert, fits, type_in_words
from sgpa.core.errors import ArgumentError, ConfigError, InputError, SgpaError, shown


@checked
@dataclass(frozen=True, kw_only=True)
class Settings:
    epochs: int = 1
    rate: float = 0.5
    names: tuple[str, ...] = ()
    how: Literal["fast", "slow"] = "fast"

    def __post_init__(self):
        assert self.epochs >= 0  # would be a TypeError for a text


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (1, float, True),
        (float("nan"), float, False),
        (float("inf"), float, False),
        ("a", str | None, True),
        (None, str | None, True),
        (1, str | None, False),
        ((1, 2), tuple[int, ...], True),
        ((1, "2"), tuple[int, ...], False),
        ((1, 2), tuple[int, int], True),
        ((1, 2, 3), tuple[int, int], False),
        ("fast", Literal["fast", "slow"], True),
        (["fast"], Literal["fast", "slow"], False),
        (len, Settings.__post_init__.__class__, False),
        (Path("a"), str | Path, True),
        (object(), Any, True),
        ({"a": 1}, dict[str, int], True),
        ({"a": "1"}, dict[str, int], False),
        ([1], list[int], True),
        (iter("ab"), Iterable[int], True),
        (torch.tensor(1), Iterable[Any], False),
        ([(1, 2)], list[tuple[int, int]], True),
        ("12", list[str], False),
        (10**300, float, True),
        (10**400, float, False),  # no float is as large
        (10**400, int, True),
    ],
)
def test_values_and_annotations(value, wanted, expected):
    assert fits(value, wanted) is expected


def test_numbers_of_numpy_and_lists_are_converted():
    settings = Settings(epochs=np.int64(3), rate=np.float32(0.25), names=["a", "b"])
    assert (settings.epochs, settings.rate, settings.names) == (3, 0.25, ("a", "b"))
    assert type(settings.epochs) is int
    assert convert([1], list[int]) == [1]
    assert convert([[1, 2]], tuple[tuple[int, int], ...]) == ((1, 2),)


def test_what_can_be_read_once_is_not_read_by_the_check():
    once = iter([1, 2])
    assert fits(once, Iterable[int])
    assert list(once) == [1, 2]


def test_all_wrong_arguments_are_named_in_one_line():
    with pytest.raises(ArgumentError) as error:
        Settings(epochs="ten", rate=float("inf"), names="ab", how="medium")
    assert str(error.value) == (
        "Settings: epochs='ten' (allowed: a whole number); rate=inf (allowed: a finite number); "
        "names='ab' (allowed: a list, each item a word); how='medium' (allowed: fast or slow)"
    )
    assert isinstance(error.value, SgpaError | ConfigError | InputError | TypeError | ValueError)


def test_unknown_and_missing_arguments_are_one_line():
    with pytest.raises(
        ArgumentError, match=r"Settings: .*unexpected keyword argument 'epoch'; did you mean epochs"
    ):
        Settings(epoch=3)
    with pytest.raises(ArgumentError, match=r"TokenConfig: missing a required .*argument: 'vocabulary'"):
        sgpa.TokenConfig()


def test_a_value_is_shown_in_one_short_line():
    assert shown(torch.zeros(2, 3)) == "Tensor [2, 3] of torch.float32"
    assert shown("a\n" * 500).count("\n") == 0
    assert len(shown(list(range(10_000)))) <= 80

    class Hostile:
        def __repr__(self):
            raise RuntimeError

    assert shown(Hostile()) == "a Hostile"


def test_annotations_are_words():
    assert type_in_words(int | None) == "a whole number or none"
    assert type_in_words(tuple[float, ...]) == "a list, each item a number"


def public_classes():
    public = [getattr(sgpa, name) for name in sgpa.__all__]
    return [each for each in public if inspect.isclass(each) and not issubclass(each, Exception)]


@pytest.mark.parametrize("kind", [k for k in public_classes() if is_dataclass(k) and "Config" in k.__name__])
def test_every_field_of_every_public_config_is_checked(kind):
    class Wrong:
        pass

    good = {"vocabulary": 10, "node_types": 2, "edge_types": 2, "embedding": sgpa.PatchConfig(), "width": 8}
    needed = {f.name: good[f.name] for f in fields(kind) if f.name in good}
    for f in fields(kind):
        with pytest.raises(ArgumentError, match=rf"{kind.__name__}: {f.name}="):
            kind(**needed | {f.name: Wrong()})


MODEL = sgpa.ModelConfig(
    embedding=sgpa.PatchConfig(image_size=4, channels=1, patch_size=2), depth=1, heads=2, width=8, outputs=3
)


def test_complex_probabilities_are_refused():
    with pytest.raises(InputError, match=r"probabilities of torch.complex64 \(allowed: floating-point"):
        sgpa.Classification(torch.zeros(2, 3, dtype=torch.complex64), torch.zeros(2))


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: sgpa.fit(torch.zeros(30, 1, 4, 4), torch.arange(30) % 3, "config"), "config='config'"),
        (lambda: sgpa.fit(torch.zeros(30, 1, 4, 4), torch.arange(30) % 3, lr="fast"), "lr='fast'"),
        (lambda: sgpa.fit(torch.zeros(30, 1, 4, 4), torch.arange(30) % 3, seed=None), "seed=None"),
        (lambda: sgpa.fit(torch.zeros(30, 1, 4, 4), torch.arange(30) % 3, directory=3), "directory=3"),
        (lambda: sgpa.load(3), "path=3"),
        (lambda: sgpa.Transformer("config"), "config='config'"),
        (lambda: sgpa.Transformer(MODEL).predict([[1]]), "inputs="),
        (lambda: sgpa.Transformer(MODEL).predict(torch.zeros(1, 1, 4, 4), samples="10"), "samples='10'"),
        (lambda: sgpa.Transformer(MODEL).predict(torch.zeros(1, 1, 4, 4), batch_size=0.5), "batch_size=0.5"),
        (lambda: sgpa.serve("model", rows=3), "predictor='model'"),
        (lambda: sgpa.serve(sgpa.Transformer(MODEL), rows="3"), "rows='3'"),
        (lambda: sgpa.OrthogonalSgpa("8", 2, sgpa.ArdRbfKernel(2, 4)), "embed_dim='8'"),
        (lambda: sgpa.OrthogonalSgpa(8, 2, "rbf"), "kernel='rbf'"),
        (lambda: sgpa.KernelAttention(8, 2, sgpa.ArdRbfKernel(2, 4))([1.0]), "x="),
        (lambda: sgpa.MultiheadSgpa(8, 2)("q", "k", "v"), "query='q'"),
        (lambda: sgpa.MultiheadSgpa(8, 2.0), "num_heads=2.0"),
        (lambda: sgpa.ArdRbfKernel(2, 4, variance="1"), "variance='1'"),
        (lambda: sgpa.total_kl("model"), "module='model'"),
        (lambda: sgpa.sample(3), "module=3"),
        (lambda: sgpa.Ensemble(base=3), "base=3"),
        (lambda: sgpa.TemperatureScaling(base=sgpa.PatchConfig), "base="),
        (lambda: sgpa.attach("model"), "model='model'"),
        (lambda: sgpa.audit(3, "rows.csv"), "model=3"),
        (lambda: sgpa.audit("model", "rows.csv", seed="1"), "seed='1'"),
        (lambda: sgpa.Features(3, torch.zeros(2, 3, dtype=torch.bool)), "values=3"),
        (lambda: sgpa.Features.of("rows"), "values='rows'"),
        (lambda: sgpa.Classification([[0.5, 0.5]], torch.zeros(1)), "probabilities="),
        (lambda: sgpa.Regression(torch.zeros(1, 1), 0.5), "scale=0.5"),
        (lambda: sgpa.Regression(torch.zeros(1, 1), torch.ones(())).interval("0.9"), "level='0.9'"),
        (lambda: sgpa.attach(torch.nn.Linear(2, 2), layers=1), "layers=1"),
        (lambda: sgpa.attach(torch.nn.Linear(2, 2), lengthscale="1"), "lengthscale='1'"),
    ],
)
def test_wrong_types_at_the_public_doors(call, argument):
    with pytest.raises(ArgumentError) as error:
        call()
    assert argument in str(error.value)
    assert "(allowed: " in str(error.value)
    assert "\n" not in str(error.value)
