"""Sequences of several lengths in captured steps: few shapes, and the numbers of the plain step."""

from dataclasses import replace

import pytest
import torch

from sgpa.core.inputs import Batch, Graphs, Words
from sgpa.methods import Mle, Sgpa
from sgpa.models import GraphConfig, ModelConfig, SgpaConfig, TokenConfig, WordsConfig
from sgpa.training.optim import OptimConfig
from sgpa.training.steps.body import COLUMNS
from sgpa.training.steps.captured import shape_of
from sgpa.training.steps.compiled import one_width
from support.compiled_runs import captured, compiled
from support.training_runs import assert_same_step, make_steps, plain_step, run_state, step_info

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
OPTIM = OptimConfig(epochs=1, batch_size=3)
every_kind = pytest.mark.parametrize("kind", CONFIGS)


def ids(lengths):
    rows = torch.zeros(len(lengths), WIDEST, dtype=torch.long)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = torch.randint(1, 30, (length,))
    return rows


def batch(kind, lengths):
    """Rows of these lengths, padded to the widest."""
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


def state_of(method, kind, dropout=None, optim=OPTIM, device="cpu"):
    config = CONFIGS[kind] if dropout is None else replace(CONFIGS[kind], dropout=dropout)
    return run_state(method, config, optim, batch(kind, (9, 8, 7, 6)).to(device), device)


@every_kind
@pytest.mark.parametrize("lengths", [(3, 5, 2), (17, 9, 4), (40, 8, 21), (2, 2, 3)])
def test_padding_changes_nothing_where_nothing_is_random(kind, lengths):
    expected, state = (state_of(Mle(), kind, 0.0) for _ in range(2))
    others = make_steps(plain_step(expected, Mle(), OPTIM), [batch(kind, lengths)])
    results = make_steps(captured(state, Mle(), OPTIM, most=0), [batch(kind, lengths)])
    assert_same_step(state, expected, results, others)


@every_kind
@pytest.mark.parametrize("lengths", [(COLUMNS + 1, 5, 2 * COLUMNS), (WIDEST, 3, 7)])
def test_the_noise_is_that_of_the_plain_step_where_no_column_is_added(kind, lengths):
    given = batch(kind, (WIDEST, WIDEST, WIDEST) if kind == "graphs" else lengths)
    if kind == "graphs":  # one edge more, so that no column of edges is padding either
        given.inputs.edge_types[:, -1] = 0
    method = METHODS["sgpa"]
    expected, state = (state_of(method, kind, 0.1) for _ in range(2))
    others = make_steps(plain_step(expected, method, OPTIM), [given])
    results = make_steps(captured(state, method, OPTIM, most=0), [given])
    assert_same_step(state, expected, results, others)


@every_kind
def test_few_shapes_occur(kind):
    step = captured(state_of(Mle(), kind, 0.0), Mle(), OPTIM, most=0)
    make_steps(step, [batch(kind, (n, 1 + n // 2)) for n in range(2, WIDEST + 1)])
    assert len(step.seen) <= 3 * (1 if kind != "graphs" else 2)
    assert sum(step.seen.values()) == WIDEST - 1


@every_kind
def test_no_more_columns_than_there_are(kind):
    model = state_of(Mle(), kind, 0.0).model
    for lengths in ((1, 2), (15, 3), (16, 16), (WIDEST, 1)):
        own = batch(kind, lengths)
        trimmed = model.trimmed(own.inputs, COLUMNS)
        assert shape_of(Batch(trimmed, own.targets)) <= shape_of(own)
        torch.testing.assert_close(
            model.eval()(trimmed).f, model(own.inputs).f, atol=1e-5, rtol=1e-5
        )  # the model trims by itself


@pytest.mark.gpu_too
@pytest.mark.parametrize("name", METHODS)
@every_kind
def test_a_recorded_step_has_the_numbers_of_the_unrecorded_one(kind, name):
    """Dropout and all noise included; on a GPU by CUDA graphs."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    method, lengths = METHODS[name], [(3, 5, 2), (17, 9, 4), (40, 8, 21)]
    unrecorded, state = (state_of(method, kind, 0.1, device=device) for _ in range(2))
    expected, ours = captured(unrecorded, method, OPTIM, most=0), captured(state, method, OPTIM)
    weights = {name: value.clone() for name, value in state.model.state_dict().items()}
    with expected, ours:
        for i in range(6):
            for each in lengths:
                given = batch(kind, each).to(device)
                pair = [step.step(given, step_info(i)).parts for step in (ours, expected)]
                torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)
                for run in (unrecorded, state):  # equal weights before every step
                    run.model.load_state_dict(weights)
    assert (len(ours.recordings), len(expected.recordings)) == (3, 0)
    assert torch.equal(state.random[device], unrecorded.random[device])


@pytest.mark.parametrize("name", METHODS)
@every_kind
def test_a_compiled_step_has_all_columns(monkeypatch, kind, name):
    """Traced, neither compiled nor recorded: the numbers of the plain step on all columns."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    method, given = METHODS[name], batch(kind, (17, 9, 4))
    expected, state = (state_of(method, kind, 0.1) for _ in range(2))
    others = make_steps(compiled(expected, method, OPTIM, most=0), [given])
    step = compiled(state, method, OPTIM)
    results = make_steps(step, [given])
    assert step.body.compiled is not None
    assert_same_step(state, expected, results, others)


def test_only_whole_batches_are_compiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    step = compiled(state_of(Mle(), "graphs", 0.0), Mle(), OPTIM)
    make_steps(step, [batch("graphs", lengths) for lengths in ((3, 5), (17, 9, 4), (40, 8))])
    assert [shape[0] for shape in step.recordings] == [3]
    large = replace(OPTIM, batch_size=300)
    few = compiled(state_of(Mle(), "graphs", 0.0, large), Mle(), large)
    with few:
        few.step(batch("graphs", (3, 5)), step_info(0, dataset_size=2))  # all rows there are
    assert [shape[0] for shape in few.recordings] == [2]


def test_texts_are_not_padded_to_the_longest():
    assert {kind: one_width(config) for kind, config in CONFIGS.items()} == {
        "text": False,
        "words": True,
        "graphs": True,
    }


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["words", "graphs"])
def test_compiled_steps_of_several_lengths_have_the_gradient_of_unrecorded_ones(kind, name, caplog):
    method, given = METHODS[name], batch(kind, (17, 9, 4)).to("cuda")
    expected, state = (state_of(method, kind, 0.1, device="cuda") for _ in range(2))
    make_steps(compiled(expected, method, OPTIM, most=0), [given])
    step = compiled(state, method, OPTIM)
    make_steps(step, [given])
    assert step.body.compiled is not None
    assert len(step.recordings) == 1
    assert "slower" not in caplog.text
    assert_same_step(state, expected, [], [], rtol=2e-2)  # products with weights in TF32
