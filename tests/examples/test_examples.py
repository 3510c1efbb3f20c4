"""The examples run, shortened where they train."""

import importlib.util

import pytest

from support.paths import ROOT

pytestmark = pytest.mark.slow


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested():
    names = {file.stem for file in (ROOT / "examples").glob("*.py")}
    assert names == {"arrays", "attach", "layer", "methods", "trust"}


def test_layer():
    numbers = example("layer").main(warm_epochs=4, epochs=2)
    assert numbers["accuracy"] > 0.6
    assert numbers["nll"] < 1.2
    assert numbers["noise more novel than 95 % of digits"] > 0.5


def test_arrays(tmp_path):
    numbers = example("arrays").main(steps=100, folder=str(tmp_path / "model"))
    assert numbers["accuracy"] > 0.25  # of ten classes
    assert numbers["share of noise that is trusted"] < 0.1


def test_methods():
    nll = example("methods").main(("ts", "mc-dropout"), steps=50)
    assert set(nll) == {"ts", "mc-dropout"}
    assert all(value < 2.3 for value in nll.values())


def test_trust():
    shares = example("trust").main()
    assert shares["digits"] > 0.75
    assert shares["noise"] < 0.05
    assert shares["plain grey"] == 0


def test_attach():
    numbers = example("attach").main(epochs=10)
    assert numbers["NLL with the GP"] < numbers["NLL of the model"] + 0.05
    assert numbers["noise above 95 % of held-out digits"] > 0.5
