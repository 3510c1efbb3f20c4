"""The attached GP as a method: the same as `sgpa.attach` on the trained model, in a run and on disk."""

import pytest
import torch

import sgpa
from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.data import Dataset
from sgpa.methods import Calibration, Mle, PosthocGp, Sgpa
from sgpa.methods.posthoc_gp import ROWS, batches, count_tokens
from sgpa.models import DotProductConfig, ModelConfig, TokenConfig
from support.training_runs import CONFIG, blobs

METHODS = {"kernel": PosthocGp(num_inducing=8), "sdp": PosthocGp(base=Mle(attention=DotProductConfig()))}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
TEXTS = ModelConfig(
    embedding=TokenConfig(vocabulary=40, max_tokens=9),
    depth=2,
    heads=2,
    width=8,
    outputs=3,
    pooling="sequence",
)


def model_of(method, config=CONFIG):
    torch.manual_seed(0)
    model = method.build(config).eval()
    with torch.no_grad():
        model.head.weight.mul_(10)  # overconfident
    return model


def data():
    return Calibration(blobs(90, 0), blobs(60, 1))


def sentences(n, seed):
    """Token ids of several lengths, padded with 0."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 40, (n, 9), generator=generator)
    lengths = torch.randint(3, 10, (n, 1), generator=generator)
    return Dataset(ids.where(torch.arange(9) < lengths, torch.zeros(1, dtype=torch.int64)), ids[:, 0] % 3)


@every_method
def test_predictions_are_those_of_attach(method):
    model, rows = model_of(method), data()
    predictor = method.predictor(model, method.calibrate(model, rows))
    gp = sgpa.attach(model, num_inducing=method.num_inducing).fit(batches(model, rows.train))
    gp.calibrate(batches(model, rows.validation))
    x = blobs(20, 2).inputs
    ours, theirs = predictor.predict(x), gp.predict(x)
    torch.testing.assert_close(ours.probabilities, theirs.probabilities, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(ours.expected_entropy, theirs.expected_entropy, rtol=1e-6, atol=1e-7)


@every_method
def test_labels_stay_and_an_overconfident_model_becomes_less_confident(method):
    model, rows = model_of(method), data()
    own = model.predict(blobs(200, 3).inputs)
    answer = method.predictor(model, method.calibrate(model, rows)).predict(blobs(200, 3).inputs)
    assert torch.equal(answer.label, own.label)
    assert answer.entropy.mean() > own.entropy.mean() + 0.05
    y = blobs(200, 3).targets
    nll = [torch.nn.functional.nll_loss(p.probabilities.log(), y) for p in (answer, own)]
    assert nll[0] < nll[1]


def test_a_prediction_does_not_depend_on_the_batch_or_the_rows_beside_it():
    method = METHODS["kernel"]
    model = model_of(method)
    predictor = method.predictor(model, method.calibrate(model, data()))
    x = blobs(20, 4).inputs
    whole = predictor.predict(x).probabilities
    torch.testing.assert_close(predictor.predict(x, batch_size=3).probabilities, whole)
    torch.testing.assert_close(predictor.predict(x[5:9]).probabilities, whole[5:9])


def test_samples_are_drawn_where_they_are_asked_for():
    method = METHODS["kernel"]
    model = model_of(method)
    predictor = method.predictor(model, method.calibrate(model, data()))
    x = blobs(20, 4).inputs
    drawn = predictor.with_samples(30)
    assert torch.equal(drawn.predict(x, seed=1).probabilities, drawn.predict(x, seed=1).probabilities)
    assert torch.equal(drawn.with_samples(0).predict(x).probabilities, predictor.predict(x).probabilities)
    with pytest.raises(InputError, match="samples=-1"):
        predictor.with_samples(-1)


def test_padding_of_texts_changes_nothing():
    method = METHODS["kernel"]
    model = model_of(method, TEXTS)
    rows = Calibration(sentences(90, 0), sentences(60, 1))
    predictor = method.predictor(model, method.calibrate(model, rows))
    x = sentences(12, 2).inputs
    padded = torch.cat([x, torch.zeros(12, 2, dtype=torch.int64)], 1)[:, :9]
    alone = torch.cat([predictor.predict(row[row > 0].unsqueeze(0)).probabilities for row in padded])
    torch.testing.assert_close(predictor.predict(padded).probabilities, alone, rtol=1e-4, atol=1e-5)


def test_a_saved_calibration_predicts_the_same_and_a_damaged_one_is_refused(tmp_path):
    method = METHODS["kernel"]
    model = model_of(method)
    calibrated = method.calibrate(model, data())
    write_tensors(tmp_path / "calibrated.safetensors", calibrated)
    read = read_tensors(tmp_path / "calibrated.safetensors")[0]
    x = blobs(20, 4).inputs
    expected = method.predictor(model, calibrated).predict(x).probabilities
    assert torch.equal(method.predictor(model, read).predict(x).probabilities, expected)
    for name, value in (
        ("views", torch.tensor([99])),
        ("views", torch.tensor([-1])),
        ("scales.layers", None),
    ):
        changed = {k: x for k, x in read.items() if k != name} | ({} if value is None else {name: value})
        with pytest.raises(CheckpointError, match=r"views|scales\.layers"):
            method.predictor(model, changed)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: PosthocGp(base=Sgpa()), r"base='sgpa' \(allowed: mle\)"),
        (lambda: PosthocGp(num_inducing=0), r"num_inducing=0 \(allowed: 1 to 1024\)"),
    ],
)
def test_bad_settings_are_refused(call, complaint):
    with pytest.raises(ConfigError, match=complaint):
        call()


def test_what_cannot_be_calibrated_is_refused():
    method = METHODS["kernel"]
    model = model_of(method)
    with pytest.raises(InputError, match=r"no scales\.data; call calibrate first"):
        method.predictor(model)
    with pytest.raises(ConfigError, match=r"validation rows=9 \(allowed: 10 or more\)"):
        method.calibrate(model, Calibration(blobs(30, 0), blobs(9, 1)))
    one = blobs(30, 1)
    with pytest.raises(InputError, match="all 10 rows have label 0"):
        method.calibrate(model, Calibration(blobs(30, 0), one[one.targets == 0]))
    values = model_of(Mle(), ModelConfig(embedding=CONFIG.embedding, outputs=1, likelihood="laplace"))
    with pytest.raises(InputError, match="predicts numbers"):
        method.calibrate(values, data())


def test_many_training_rows_are_read_in_part():
    model = model_of(METHODS["kernel"])
    many = blobs(ROWS + 50, 0)
    read = list(batches(model, many))
    assert sum(len(batch) for batch in read) == ROWS
    assert not torch.equal(read[0].inputs, many.inputs[: len(read[0])])


def test_few_training_tokens_have_fewer_inducing_points():
    method = PosthocGp()
    model = model_of(method)
    tokens = count_tokens(model, blobs(12, 0), 10_000)
    assert tokens == 12 * 4  # patches of an image
    calibrated = method.calibrate(model, Calibration(blobs(12, 0), blobs(60, 1)))
    assert calibrated["gp.0.Z"].shape[1] == tokens // 2
    assert count_tokens(model, blobs(ROWS, 0), 128) < 10_000
    words = sentences(30, 0)
    assert count_tokens(model_of(method, TEXTS), words, 10_000) == int((words.inputs > 0).sum())


def test_fit_takes_it_by_name():
    rows = blobs(120, 0)
    fitted = sgpa.fit(rows.inputs, rows.targets, method="attached-gp", config=CONFIG, epochs=2)
    answer = fitted.predict(blobs(10, 1).inputs)
    assert answer.probabilities.shape == (10, 3)
    assert len(answer.trust) == 10
