"""examples/layer.py in a shortened form."""

import importlib.util

import pytest

from support.paths import ROOT


@pytest.mark.slow
def test_layer_example_runs():
    spec = importlib.util.spec_from_file_location("example_layer", ROOT / "examples" / "layer.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    numbers = example.main(warm_epochs=5, epochs=5)
    assert numbers["accuracy"] > 0.6
    assert numbers["nll"] < 1.2
    assert numbers["noise more novel than 95 % of digits"] > 0.5
