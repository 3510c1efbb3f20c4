"""Whether two functions are the same for a run that is resumed."""

from functools import partial
from types import FunctionType

import pytest
import torch

import sgpa
from sgpa.core.errors import CheckpointError
from sgpa.training.function_data import function_as_data


def noisy(images, generator, strength=0.1):
    return images + strength * torch.randn(images.shape, generator=generator)


def mirrored(images, generator):
    del generator
    return images.flip(-1)


def scaled_by(factor):
    return lambda images, _: images * factor


class Scaling:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, images, _):
        return images * self.factor


def test_functions_that_do_something_else_differ():
    functions = [
        *(noisy, mirrored, partial(noisy, strength=0.2), partial(noisy, strength=0.3)),
        *(scaled_by(1.5), scaled_by(2.0), Scaling(1.5), Scaling(2.0), Scaling(1.5).__call__, abs),
    ]
    data = [str(function_as_data(function)) for function in functions]
    assert len(set(data)) == len(data)


@pytest.mark.parametrize(
    "make", [lambda: noisy, lambda: partial(noisy, strength=0.2), lambda: scaled_by(2), lambda: Scaling(2)]
)
def test_the_same_function_made_again_is_equal(make):
    assert function_as_data(make()) == function_as_data(make())


def test_lines_that_move_do_not_count():
    code = noisy.__code__.replace(co_firstlineno=500, co_filename="moved.py")
    moved = FunctionType(code, noisy.__globals__, argdefs=noisy.__defaults__)
    assert function_as_data(moved) == function_as_data(noisy)


def test_a_model_of_another_augmentation_is_not_taken_for_this_one(tmp_path):
    x, y = torch.randn(40, 1, 4, 4), torch.arange(40) % 2
    options = {"method": "mle", "epochs": 1, "directory": tmp_path, "on_progress": lambda _: None}
    first = sgpa.fit(x, y, augment=noisy, **options)
    again = sgpa.fit(x, y, augment=noisy, **options)
    assert torch.equal(first.predict(x).probabilities, again.predict(x).probabilities)
    for other in (mirrored, None):
        with pytest.raises(CheckpointError, match="other settings or data"):
            sgpa.fit(x, y, augment=other, **options)
