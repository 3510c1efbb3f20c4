"""Sequences of several lengths in recorded steps: few shapes, and the numbers of the plain way."""

import pytest
import torch

from sgpa.core.inputs import Batch, Graphs, Words
from sgpa.gp.objective import Progress
from sgpa.methods import Mle, Sgpa
from sgpa.models import GraphConfig, ModelConfig, SgpaConfig, TokenConfig, WordsConfig
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.captured import COLUMNS, Captured
from sgpa.training.steps.compiled import Compiled, one_width
from sgpa.training.steps.plain import Member, PlainStep, Stacked, StepInfo, random_state
from sgpa.training.steps.stacking import shape_of
from support.compiled_runs import Run

WIDEST = 40  # columns of the data set
CONFIGS = {
    "text": ModelConfig(
        embedding=TokenConfig(vocabulary=30, max_tokens=WIDEST, embedding_width=8), depth=2, heads=2, width=8
    ),
    "words": ModelConfig(
        embedding=WordsConfig(vocabulary=30, max_tokens=WIDEST, embedding_width=4, features=6, layers=3),
        depth=1,
        heads=2,
        width=8,
    ),
    "graphs": ModelConfig(
        embedding=GraphConfig(node_types=5, edge_types=3, identifier_width=4), depth=2, heads=2, width=8
    ),
}
METHODS = {"mle": Mle(), "sgpa": Sgpa(attention=SgpaConfig(num_global=3))}
every_kind = pytest.mark.parametrize("kind", CONFIGS)


def ids(lengths):
    found = torch.zeros(len(lengths), WIDEST, dtype=torch.long)
    for row, length in zip(found, lengths, strict=True):
        row[:length] = torch.randint(1, 30, (length,))
    return found


def batch(kind, lengths):
    """Rows of these lengths, filled up to the widest."""
    torch.manual_seed(sum(lengths))
    targets = torch.arange(len(lengths)) % 10
    if kind == "text":
        return Batch(ids(lengths), targets)
    if kind == "words":
        return Batch(Words(ids(lengths), torch.randn(len(lengths), WIDEST, 3, 6)), targets)
    B = len(lengths)
    nodes, kinds = torch.full((B, WIDEST), -1), torch.full((B, WIDEST), -1)
    edges = torch.zeros(B, WIDEST, 2, dtype=torch.long)
    for b, length in enumerate(lengths):
        nodes[b, :length] = torch.randint(0, 5, (length,))
        kinds[b, : length - 1] = torch.randint(0, 3, (length - 1,))
        edges[b, : length - 1] = torch.randint(0, length, (length - 1, 2))
    return Batch(Graphs(nodes, edges, kinds, torch.randn(B, WIDEST, 4)), targets)


def member(method, kind, dropout, device="cpu"):
    torch.manual_seed(0)
    config = CONFIGS[kind]
    model = method.build(config if dropout is None else ModelConfig(**vars(config) | {"dropout": dropout}))
    model.to(device)
    optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], fused=True)
    return Member("it", model.train(), optimiser, random_state())


def steps(stepper, given):
    with stepper:
        for at, each in enumerate(given):
            stepper.step([each], StepInfo(at, 1e-3, Progress(0.5, 100)))
    stepper.close()


def assert_same(one, other):
    for (name, a), b in zip(one.model.named_parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def unrecorded(own, method):
    """As on a GPU, but for the recording."""
    stepper = Captured([own], method, OptimConfig(epochs=1))
    stepper.most = 0
    return stepper


@every_kind
def test_columns_of_padding_change_nothing_where_nothing_is_random(kind):
    given = [batch(kind, lengths) for lengths in ((3, 5, 2), (17, 9, 4), (40, 8, 21), (2, 2, 3))]
    plain, ours = (member(Mle(), kind, 0.0) for _ in range(2))
    steps(PlainStep(plain, Mle(), OptimConfig(epochs=1)), given)
    steps(unrecorded(ours, Mle()), given)
    assert_same(ours, plain)


@every_kind
@pytest.mark.parametrize("lengths", [(COLUMNS + 1, 5, 2 * COLUMNS), (WIDEST, 3, 7)])
def test_the_noise_is_the_plain_ways_where_no_column_is_added(kind, lengths):
    if kind == "graphs":
        lengths = (WIDEST, WIDEST, WIDEST)
    method = METHODS["sgpa"]
    given = [batch(kind, lengths)] * 3
    if kind == "graphs":  # one edge more, so that no column of edges is padding either
        given[0].inputs.edge_types[:, -1] = 0
    plain, ours = (member(method, kind, 0.1) for _ in range(2))
    steps(PlainStep(plain, method, OptimConfig(epochs=1)), given)
    steps(unrecorded(ours, method), given)
    assert_same(ours, plain)


@every_kind
def test_few_shapes_occur(kind):
    own = member(Mle(), kind, 0.0)
    stepper = unrecorded(own, Mle())
    steps(stepper, [batch(kind, (n, 1 + n // 2)) for n in range(2, WIDEST + 1)])
    assert len(stepper.seen) <= 3 * (1 if kind != "graphs" else 2)
    assert sum(stepper.seen.values()) == WIDEST - 1


@every_kind
def test_no_more_columns_than_there_are(kind):
    model = member(Mle(), kind, 0.0).model
    for lengths in ((1, 2), (15, 3), (16, 16), (WIDEST, 1)):
        own = batch(kind, lengths)
        trimmed = model.trimmed(own.inputs, COLUMNS)
        assert shape_of(Batch(trimmed, own.targets)) <= shape_of(own)
        torch.testing.assert_close(
            model.eval()(trimmed).f, model(own.inputs).f, atol=1e-5, rtol=1e-5
        )  # the model trims by itself


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", METHODS)
@every_kind
def test_steps_of_several_lengths_are_recorded(kind, name, caplog):
    """The same batches, again and again, with and without recordings; dropout and all noise included."""
    method = METHODS[name]
    each = [batch(kind, lengths) for lengths in ((3, 5, 2), (17, 9, 4), (40, 8, 21))] * 6
    given = [b.to("cuda") for b in each]
    found = []
    for most in (0, 32):
        own = member(method, kind, 0.1, "cuda")
        stepper = Captured([own], method, OptimConfig(epochs=1))
        stepper.most = most
        steps(stepper, given)
        assert len(stepper.recordings) == min(most, 3)
        found.append(own)
    assert "slower" not in caplog.text
    assert_same(*found)


@pytest.mark.parametrize("name", METHODS)
@every_kind
def test_a_compiled_step_has_all_columns(monkeypatch, kind, name):
    """Traced, neither compiled nor recorded: the plain step's numbers, for inputs of several tensors too."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    method = METHODS[name]
    given = [batch(kind, lengths) for lengths in ((3, 5, 2), (17, 9, 4), (40, 8, 21))]
    plain, ours = (member(method, kind, 0.1) for _ in range(2))
    steps(Stacked([plain], method, OptimConfig(epochs=1)), given)
    stepper = Run([ours], method, OptimConfig(epochs=1))
    steps(stepper, given)
    assert stepper.compiled is not None
    assert_same(ours, plain)


def test_whole_batches_are_compiled_and_no_others():
    stepper = Compiled([member(Mle(), "graphs", 0.0)], Mle(), OptimConfig(epochs=1, batch_size=3))
    recorded = []
    stepper._record = lambda shape, *_: recorded.append(shape)
    steps(stepper, [batch("graphs", lengths) for lengths in ((3, 5), (17, 9, 4), (40, 8))])
    assert [shape[0] for shape in recorded] == [3]
    few = Compiled([member(Mle(), "graphs", 0.0)], Mle(), OptimConfig(epochs=1, batch_size=300))
    few._record = lambda shape, *_: recorded.append(shape)
    with few:
        few.step([batch("graphs", (3, 5))], StepInfo(0, 1e-3, Progress(0.5, 2)))  # all rows there are
    assert [shape[0] for shape in recorded] == [3, 2]


def test_texts_are_not_filled_up_to_the_longest():
    assert {kind: one_width(config) for kind, config in CONFIGS.items()} == {
        "text": False,
        "words": True,
        "graphs": True,
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["words", "graphs"])
def test_compiled_steps_of_several_lengths_are_near_the_plain_ones(kind, name, caplog):
    method = METHODS[name]
    given = [batch(kind, n).to("cuda") for n in ((3, 5, 2), (17, 9, 4), (40, 8, 21))] * 2
    plain, ours = (member(method, kind, 0.1, "cuda") for _ in range(2))
    steps(Stacked([plain], method, OptimConfig(epochs=1)), given)
    stepper = Compiled([ours], method, OptimConfig(epochs=1, batch_size=3))
    steps(stepper, given)
    assert stepper.compiled is not None
    assert len(stepper.recordings) == 1
    assert "slower" not in caplog.text
    for (label, a), b in zip(ours.model.named_parameters(), plain.model.parameters(), strict=True):
        error = (a - b).detach().abs()  # products with weights in TF32; Adam's steps of 1e-3 have a sign,
        assert error.median() < 1e-4, label  # which rounding may turn where a gradient is nearly zero
        assert error.max() < 2.5e-3, label  # once
