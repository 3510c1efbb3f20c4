"""What `fit` returns: predictions with limits of trust, saved and opened again."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import sgpa
from sgpa.core.errors import CheckpointError, InputError
from sgpa.core.inputs import Features
from sgpa.inference.saved import FILE
from sgpa.inference.trust import TrustRule
from sgpa.methods import CATALOGUE, KfacLaplace, Mle
from sgpa.training.fitted import Fitted

CONFIG = sgpa.ModelConfig(
    embedding=sgpa.PatchConfig(image_size=4, channels=1, patch_size=2), depth=1, heads=2, width=8, outputs=2
)
QUIET = {"on_progress": lambda _: None}


def two_classes(n=120):
    torch.manual_seed(0)
    y = torch.arange(n) % 2
    return torch.randn(n, 1, 4, 4) + 3.0 * (2 * y - 1).view(-1, 1, 1, 1), y


@pytest.fixture(scope="module")
def model():
    x, y = two_classes()
    return sgpa.fit(x, y, CONFIG, epochs=20, batch_size=16, lr=5e-3, **QUIET)


def same(one, other):
    assert torch.equal(one.probabilities, other.probabilities)
    assert torch.equal(one.trust, other.trust)
    assert one.reason == other.reason
    assert (one.novelty is None) == (other.novelty is None)
    if one.novelty is not None:
        assert torch.equal(one.novelty, other.novelty)


def test_familiar_rows_are_trusted_and_far_ones_are_not(model):
    x, y = two_classes()
    known, far = model.predict(x), model.predict(30 * torch.randn(20, 1, 4, 4))
    assert known.trust.dtype == torch.bool
    assert known.trust.float().mean() > 0.7
    assert (known.label == y)[known.trust].float().mean() > 0.95
    assert not far.trust.any()
    assert all("unfamiliar" in reason for reason in far.reason)
    assert far.novelty.min() > 0.95
    assert [bool(reason) for reason in known.reason] == (~known.trust).tolist()


def test_arrays_and_lists_are_predicted_as_tensors(model):
    x, _ = two_classes()
    expected = model.predict(x[:5])
    for given in (x[:5].numpy(), x[:5].double(), x[:5].tolist()):
        same(model.predict(given), expected)


def test_a_table_shows_what_is_trusted(model):
    x, _ = two_classes()
    shown = model.predict(torch.cat([x[:2], 30 * x[:1]]))._repr_html_()
    assert "<th>novelty</th><th>trust</th>" in shown
    assert "no (unfamiliar)" in shown
    assert "does not trust" in model._repr_html_()
    assert repr(model).startswith(f"Fitted({model.chosen}, PatchConfig")


def test_a_model_alone_has_no_limits_of_trust(model):
    x, _ = two_classes()
    assert not hasattr(model.model.predict(x), "trust")


@pytest.mark.parametrize("method", CATALOGUE)
def test_every_method_is_saved_with_its_limits(method, tmp_path):
    x, y = two_classes(60)
    words = np.array(["no", "yes"])[y.numpy()]
    made = sgpa.fit(x, words, replace(CONFIG, width=4), method=method, epochs=2, batch_size=30,
                    validation=0.3, directory=tmp_path / "run", **QUIET)  # fmt: skip
    made.save_pretrained(tmp_path / "saved")
    for folder in (tmp_path / "saved", tmp_path / "run"):
        opened = sgpa.load(folder)
        assert (opened.chosen, opened.classes, len(opened.models)) == (
            method,
            ("no", "yes"),
            len(made.models),
        )
        same(opened.predict(x), made.predict(x))


def test_values_have_limits_too(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(200, 1, 4, 4)
    y = x.mean((1, 2, 3)) + 0.1 * torch.randn(200)
    made = sgpa.fit(x, y, epochs=6, validation=0.4, directory=tmp_path, **QUIET)
    answer = made.predict(x)
    low, high = answer.interval(0.9)
    assert 0.8 < ((low <= y) & (y <= high)).float().mean() < 1
    assert answer.residuals is not None  # intervals come from held-out rows
    assert answer.trust.float().mean() > 0.7
    assert not made.predict(50 * x[:20]).trust.any()
    assert "<th>trust</th>" in answer._repr_html_()
    again = sgpa.fit(x, y, epochs=6, validation=0.4, directory=tmp_path, **QUIET)  # read, not trained
    assert again.rule == made.rule
    assert sgpa.load(tmp_path).rule == made.rule


def test_limits_and_samples_can_be_changed(model):
    x, _ = two_classes()
    strict = model.with_max_error(1e-6)
    assert strict.predict(x).trust.sum() <= model.predict(x).trust.sum()
    if model.chosen == "sgpa":
        assert not torch.equal(model.with_samples(3).predict(x).probabilities, model.predict(x).probabilities)
    point = sgpa.fit(*two_classes(), CONFIG, method="ts", epochs=2, **QUIET)
    with pytest.raises(InputError, match="does not offer that choice"):
        point.with_samples(3)


def test_too_few_held_out_rows_measure_no_novelty():
    x, y = two_classes(30)
    answer = sgpa.fit(x, y, CONFIG, epochs=2, **QUIET).predict(x)
    assert answer.novelty is None
    assert "unfamiliar" not in " ".join(answer.reason)


def test_images_in_another_unit_than_in_training_are_refused(tmp_path):
    _, y = two_classes(40)
    images = torch.randint(0, 128, (40, 1, 4, 4)) + 127 * y.view(-1, 1, 1, 1)
    pixels = images.to(torch.uint8)
    for trained, asked in (
        (pixels, {"refused": [pixels.float(), pixels / 255], "read": [pixels, (pixels / 255 - 0.5) / 0.3]}),
        (pixels.float(), {"refused": [pixels, pixels / 255], "read": [pixels.float(), pixels * 0.0]}),
        ((pixels / 255 - 0.5) / 0.3, {"refused": [pixels], "read": [(pixels / 255 - 0.5) / 0.3]}),
        (pixels / 255, {"refused": [pixels.float()], "read": [pixels, pixels / 255]}),  # bytes are divided
    ):
        made = sgpa.fit(trained, y, steps=2, method="mle", **QUIET)
        for given in asked["refused"]:
            with pytest.raises(InputError, match=r"give uint8 from 0 to 255|give floats of the same unit"):
                made.predict(given)
        for given in asked["read"]:
            made.predict(given)
    assert torch.equal(made.predict(pixels).probabilities, made.predict(pixels / 255).probabilities)
    made = sgpa.fit(pixels, y, steps=2, method="mle", **QUIET)
    with pytest.raises(InputError) as error:
        made.predict(torch.tensor([0.0, 1.0]).repeat(2, 1, 4, 2))
    assert str(error.value) == (
        "the images are floats from 0 to 1, and the model was trained on uint8 pixels; give uint8 from 0 to "
        "255"
    )


def test_limits_that_few_rows_decided_are_said_at_the_end_and_shown(capsys):
    x, y = two_classes(30)
    made = sgpa.fit(x, y, CONFIG, epochs=2)
    assert made.doubts == (made.rule.doubt, made.rule.unmeasured)
    assert "held-out rows" in made.rule.doubt
    printed = capsys.readouterr().err
    for sentence in made.doubts:
        assert sentence in printed
        assert sentence in repr(made)
        assert sentence in made._repr_html_()
    enough = replace(made, rule=TrustRule(0.3, rows=10))
    assert enough.doubts == ()
    assert repr(enough) == f"Fitted({made.chosen}, PatchConfig)"


def test_an_ensemble_has_several_models():
    x, y = two_classes(60)
    made = sgpa.fit(x, y, replace(CONFIG, width=4), method="de", epochs=1, **QUIET)
    assert len(made.models) == 5
    with pytest.raises(InputError, match=r"de has 5 models \(allowed: \.models\)"):
        _ = made.model


def test_features_are_read_as_they_were_fitted():
    torch.manual_seed(0)
    rows = Features.of(torch.randn(60, 3, 4), torch.full((60,), 3))
    made = sgpa.fit(rows, torch.arange(60) % 2, epochs=2, **QUIET)
    assert made.predict(rows).trust.shape == (60,)


@pytest.mark.parametrize("name", ["Own", "Mle"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_method_of_ones_own_is_trained_but_not_saved(name, nested, tmp_path):
    own = type(name, (Mle,), {})()  # no file can name it, even if it is called as one of the package
    method = KfacLaplace(base=own) if nested else own
    x, y = two_classes(60)
    made = sgpa.fit(x, y, method=method, epochs=1, directory=tmp_path, **QUIET)
    assert made.predict(x).trust.shape == (60,)
    words = f"{method.id} was not saved; call fit again with the same arguments"
    with pytest.raises(CheckpointError, match=words):
        sgpa.load(tmp_path)


def test_the_command_line_names_python_for_what_reads_arrays(model, tmp_path):
    model.save_pretrained(tmp_path)
    from sgpa.experiments.load import read_cell
    from sgpa.inference.saved import finished_cells

    with pytest.raises(
        CheckpointError, match=r"was trained on arrays and reads no files; in Python: sgpa\.load"
    ):
        read_cell(finished_cells(tmp_path)[0]).open()


def test_damaged_limits_are_refused(model, tmp_path):
    folder = model.save_pretrained(tmp_path)
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(text.replace('"max_uncertainty"', '"max_certainty"'))
    with pytest.raises(CheckpointError):
        Fitted.load(folder)
    (folder / FILE).unlink()
    with pytest.raises(CheckpointError):
        Fitted.load(folder)


@pytest.mark.parametrize("given", ["text", {"a": 1}, [[1], [2, 3]], None])
def test_what_is_no_array_is_refused(model, given):
    with pytest.raises(InputError, match=r"inputs of type|expected images|inputs have|inputs=|shape"):
        model.predict(given)


def test_missing_statistics_are_not_overlooked(model, tmp_path):
    folder = model.save_pretrained(tmp_path)
    (folder / "novelty.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"novelty\.safetensors is missing: the rule of trust needs it"):
        sgpa.load(folder)


def test_nothing_is_left_of_a_model_that_was_saved_in_the_folder_before(model, tmp_path):
    x, _ = two_classes()
    model.save_pretrained(tmp_path)
    plain = replace(model, novelty=None, rule=replace(model.rule, max_novelty=1.0))
    plain.save_pretrained(tmp_path)
    assert Fitted.load(tmp_path).novelty is None
    same(Fitted.load(tmp_path).predict(x), plain.predict(x))


def test_the_number_of_samples_is_saved(tmp_path):
    x, y = two_classes()
    three = sgpa.fit(x, y, CONFIG, method="sgpa", epochs=4, **QUIET).with_samples(3)
    loaded = sgpa.load(three.save_pretrained(tmp_path))
    assert loaded.samples == 3
    same(loaded.predict(x), three.predict(x))
