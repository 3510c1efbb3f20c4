"""The answer for an input does not depend on the other inputs of a call."""

import pytest
import torch

import sgpa
from sgpa.core.noise import ByRow, Draw, by_row, contents
from sgpa.data.graphs.batch import identified
from sgpa.data.graphs.graph import Graph
from sgpa.data.images import digits
from sgpa.inference.readers import Rows
from sgpa.methods import McDropout, Mfvi, Sgpa
from sgpa.models import GraphConfig, ModelConfig, PatchConfig, TokenConfig
from sgpa.models.modes import evaluating

IMAGES = ModelConfig(
    embedding=PatchConfig(image_size=8, channels=1, patch_size=4), depth=2, heads=2, width=16, dropout=0.2
)
TEXTS = ModelConfig(
    embedding=TokenConfig(vocabulary=30, max_tokens=12), depth=2, heads=2, width=16, dropout=0.2
)
METHODS = {"sgpa": Sgpa(dropout_at_prediction=True), "mcd": McDropout(), "mfvi": Mfvi()}


def images():
    return torch.randn(7, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def texts():
    ids = torch.randint(1, 30, (7, 12), generator=torch.Generator().manual_seed(0))
    return ids.masked_fill(torch.arange(12) >= torch.tensor([[12], [3], [5], [3], [12], [7], [5]]), 0)


KINDS = {"images": (IMAGES, images), "texts": (TEXTS, texts)}


def outputs(model, rows, **options):
    with evaluating(model, dropout=True), by_row():
        return model.draw(rows, samples=4, **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_outputs_of_a_row_are_those_of_the_row_alone(method, kind):
    config, rows = KINDS[kind][0], KINDS[kind][1]()
    torch.manual_seed(0)
    model = method.build(config).eval()
    together = outputs(model, rows)
    for i in range(len(rows)):
        torch.testing.assert_close(
            outputs(model, rows[i : i + 1])[:, 0], together[:, i], rtol=1e-4, atol=1e-5
        )
    torch.testing.assert_close(outputs(model, rows.flip(0)).flip(1), together, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(outputs(model, rows, batch_size=2), together, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(outputs(model, rows, seed=1), together, atol=1e-3)
    assert together.std(0).min() > 0


def test_numbers_follow_from_seed_content_and_request():
    rows = contents(torch.arange(12).reshape(3, 4))
    assert rows == contents(torch.arange(12).reshape(3, 4))
    assert len(set(rows)) == 3
    draw = Draw(torch.Size((2, 3, 500)), torch.float32, torch.device("cpu"), rows=1)
    drawn = ByRow(0, rows)
    first, second = drawn.take(draw), drawn.take(draw)
    assert first.shape == (2, 3, 500)
    assert (
        torch.corrcoef(torch.cat([first.flatten(0, 1), second.flatten(0, 1)])).fill_diagonal_(0).abs().max()
        < 0.2
    )
    alone = ByRow(0, rows[1:2]).take(
        Draw(torch.Size((2, 1, 500)), torch.float32, torch.device("cpu"), rows=1)
    )
    torch.testing.assert_close(alone[:, 0], first[:, 1])
    copies = Draw(torch.Size((6, 500)), torch.float32, torch.device("cpu"), 0.5, rows=0)  # two of the batch
    masks = ByRow(0, rows).take(copies)
    assert set(masks.unique().tolist()) == {0.0, 1.0}
    assert not torch.equal(masks[:3], masks[3:])
    shared = Draw(torch.Size((4,)), torch.float32, torch.device("cpu"))
    torch.testing.assert_close(ByRow(0, rows).take(shared), ByRow(0, rows[:1]).take(shared))


def test_an_answer_is_the_same_alone_and_among_others():
    model, x = sgpa.load("digits"), digits.load().test.inputs[:30]
    among = model.predict(x)
    for i in (0, 7, 29):
        (alone,) = model.predict(x[i : i + 1])
        assert alone.label == among[i].label
        assert alone.probability == pytest.approx(among[i].probability, abs=1e-5)


def chain(n):
    """Nodes in a row, edges in both directions."""
    pairs = [(i, i + 1) for i in range(n - 1)]
    edges = torch.tensor(pairs + [(v, u) for u, v in pairs], dtype=torch.long).reshape(-1, 2)
    return Graph(torch.arange(n) % 2, edges, torch.zeros(len(edges), dtype=torch.long))


def test_graphs_of_several_sizes():
    graphs = [chain(n) for n in (2, 5, 3, 5)]
    config = ModelConfig(
        embedding=GraphConfig(node_types=2, edge_types=1, identifier_width=4),
        depth=2,
        heads=2,
        width=16,
        dropout=0.2,
    )
    torch.manual_seed(0)
    model = Sgpa(dropout_at_prediction=True).build(config).eval()
    together = outputs(model, identified(graphs, "walks", 4))
    for i, graph in enumerate(graphs):
        alone = outputs(model, identified([graph], "walks", 4))
        torch.testing.assert_close(alone[:, 0], together[:, i], rtol=1e-4, atol=1e-5)


def test_answers_of_many_inputs_come_in_parts_with_progress(monkeypatch):
    model, x = sgpa.load("digits"), digits.load().test.inputs[:5]
    whole = model.predict(x)
    monkeypatch.setattr("sgpa.inference.answers.AT_ONCE", 2)
    told = []
    parts = model.answers(Rows(x, [{} for _ in x]), lambda *progress: told.append(progress))
    assert told == [("predicting", n, 5, "") for n in (2, 4, 5)]
    assert [a["label"] for a in parts] == [a.label for a in whole]
    assert [a["novelty"] for a in parts] == pytest.approx([a.novelty for a in whole])
    assert [a["probability"] for a in parts] == pytest.approx([a.probability for a in whole], abs=1e-5)
