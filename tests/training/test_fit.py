"""`sgpa.fit`: tensors in, a trained predictor out."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from filelock import FileLock, Timeout

import sgpa
from sgpa.core.errors import CheckpointError, ConfigError, InputError
from sgpa.core.types import Regression
from sgpa.data import Dataset
from sgpa.data.images.folder import image_folder
from sgpa.methods import CATALOGUE, Calibration, Mle, Sgpa, TemperatureScaling
from sgpa.models import (
    DotProductConfig,
    GraphConfig,
    KernelAttentionConfig,
    KernelConfig,
    SgpaConfig,
    Transformer,
    saving,
)
from sgpa.training.compare import Comparison, fold_temperature
from sgpa.training.defaults import defaults_for, patch_size
from sgpa.training.fit_display import Display
from sgpa.training.fit_split import held_out_split
from sgpa.training.optim import OptimConfig
from support.paths import ROOT

CONFIG = sgpa.ModelConfig(
    embedding=sgpa.PatchConfig(image_size=4, channels=1, patch_size=2), depth=1, heads=2, width=8, outputs=2
)
FAST = {"epochs": 20, "batch_size": 8, "lr": 5e-3}


def two_classes(n=40):
    torch.manual_seed(0)
    y = torch.arange(n) % 2
    return torch.randn(n, 1, 4, 4) + 3.0 * (2 * y - 1).view(-1, 1, 1, 1), y


def test_sgpa_is_trained_and_read_again(tmp_path):
    x, y = two_classes()
    lines = []
    options = {**FAST, "method": "sgpa", "directory": tmp_path, "on_progress": lines.append}
    model = sgpa.fit(x, y, CONFIG, **options)
    assert model.model.stochastic
    assert model.chosen == "sgpa"
    assert (model.predict(x).label == y).float().mean() > 0.9
    epochs = [line for line in lines if "step" not in line]
    assert [line["run"] for line in epochs] == ["warm-start"] * 4 + ["sgpa"] * 16
    assert len(lines) > len(epochs)
    lines.clear()
    again = sgpa.fit(x, y, CONFIG, **options)
    assert torch.equal(again.predict(x).probabilities, model.predict(x).probabilities)
    assert not lines


def test_a_finished_run_of_version_0_1_is_read_not_trained(tmp_path):
    """A user's run on photos: 15 % of the rows were kept for the test. Its settings are given explicitly."""
    folder = shutil.copytree(ROOT / "tests" / "fixtures" / "v0.1" / "user-run", tmp_path / "run")
    photos = ROOT / "tests" / "fixtures" / "v0.1" / "photos"
    config, weights = saving.load(folder / "sgpa" / "model")
    pixels, labels, _ = image_folder(photos, 8)
    rows = torch.randperm(40, generator=torch.Generator().manual_seed(0))[6:]
    lines = []
    model = sgpa.fit(
        pixels[rows],
        labels[rows],
        config,
        method=Sgpa(attention=config.attention),
        optim=OptimConfig(epochs=5, batch_size=10, lr=0.003, final_lr=0.003 / 50, select_every=1),
        stage1_share=0.4,
        validation=0.1,
        directory=folder,
        on_progress=lines.append,
    )
    assert not lines
    assert all(torch.equal(weights[name], value) for name, value in model.model.state_dict().items())


def test_other_inputs_with_the_same_targets_are_refused(tmp_path):
    x, y = two_classes()
    sgpa.fit(x, y, CONFIG, epochs=2, directory=tmp_path)
    with pytest.raises(CheckpointError, match="finished model trained with other settings or data"):
        sgpa.fit(-x + 5, y, CONFIG, epochs=2, directory=tmp_path)


@pytest.mark.parametrize("method", CATALOGUE)
def test_every_method_predicts(method):
    x, y = two_classes()
    config = replace(CONFIG, width=4)
    predictor = sgpa.fit(x, y, config, method=method, epochs=2, batch_size=20, validation=0.3)
    prediction = predictor.predict(x)
    assert prediction.probabilities.shape == (40, 2)
    torch.testing.assert_close(prediction.probabilities.sum(-1), torch.ones(40))
    assert isinstance(predictor.predictor, Transformer) == (method in ("mle", "mfvi", "sgpa"))
    assert predictor.chosen == method


def test_members_of_an_ensemble_have_folders_of_their_own(tmp_path):
    x, y = two_classes()
    sgpa.fit(x, y, replace(CONFIG, width=4), method="de", epochs=1, directory=tmp_path)
    names = sorted(folder.name for folder in tmp_path.iterdir())
    assert names == [".lock", "chosen.json", *(f"mle-{i}" for i in range(5)), "model", "split.json"]


def test_regression_learns_the_scale_of_its_noise():
    torch.manual_seed(0)
    x = torch.randn(60, 1, 4, 4)
    config = replace(CONFIG, outputs=1, likelihood="laplace")
    scales = []
    for noise in (0.0, 2.0):
        y = x.mean((1, 2, 3)) + noise * torch.randn(60)
        model = sgpa.fit(x, y, config, method="mle", epochs=60, batch_size=10, lr=1e-2)
        prediction = model.predict(x)
        assert isinstance(prediction, Regression)
        scales.append(float(prediction.scale))
    assert 0 < 4 * scales[0] < scales[1]


def test_held_out_data_select_the_epoch(tmp_path):
    x, y = two_classes()
    options = {"method": "mle", "epochs": 2, "seed": 1}
    pair = sgpa.fit(x[:30], y[:30], CONFIG, validation=(x[30:], y[30:]), **options)
    data = sgpa.fit(x[:30], y[:30], CONFIG, validation=Dataset(x[30:], y[30:]), **options)
    assert torch.equal(pair.predict(x).probabilities, data.predict(x).probabilities)


def test_optim_has_all_settings_and_its_epochs_are_those_of_both_stages():
    x, y = two_classes()
    lines = []
    optim = OptimConfig(epochs=5, batch_size=8, lr=5e-3, warmup=1, select_every=1)
    sgpa.fit(x, y, CONFIG, optim=optim, stage1_share=0.4, on_progress=lines.append)
    rates = [(line["run"], line["lr"]) for line in lines if "step" not in line]
    assert [run for run, _ in rates] == ["warm-start"] * 2 + ["sgpa"] * 3
    assert rates[0][1] == pytest.approx(5e-3)  # the end of the warm-up


def test_the_kernel_of_the_config_is_used():
    x, y = two_classes()
    kernel = KernelConfig(name="exponential")
    config = replace(CONFIG, attention=KernelAttentionConfig(kernel=kernel, tied=False))
    model = sgpa.fit(x, y, config, method="sgpa", epochs=2)
    expected = SgpaConfig(form="cheng-boots", num_global=8, kernel=kernel, tied=False)
    assert model.model.config.attention == expected
    point = sgpa.fit(x, y, replace(CONFIG, attention=DotProductConfig()), method="mle", epochs=1)
    assert point.model.config.attention == DotProductConfig()
    own = sgpa.fit(x, y, CONFIG, method=Sgpa(attention=SgpaConfig(num_global=3)), epochs=2)
    assert own.model.config.attention.num_global == 3


def test_a_method_as_an_object_needs_no_config():
    x, y = two_classes()
    assert sgpa.fit(x, y, method=sgpa.Mle(), epochs=1).model.config.attention == sgpa.Mle().attention
    own = sgpa.Sgpa(attention=SgpaConfig(num_global=3))
    assert sgpa.fit(x, y, method=own, epochs=2).model.config.attention == own.attention


def test_many_molecules_train_the_point_model_longer():
    few, many = (
        defaults_for(GraphConfig(node_types=2, edge_types=2, identifier_width=4), rows, outputs=1)
        for rows in (255, 2550)
    )
    assert (few.stage1.epochs, few.stage2.epochs) == (42, 78)
    assert (many.stage1.epochs, many.stage2.epochs) == (50, 25)


def test_settings_that_would_be_ignored_are_refused():
    x, y = two_classes()
    dot, sparse = replace(CONFIG, attention=DotProductConfig()), replace(CONFIG, attention=SgpaConfig())
    with pytest.raises(ConfigError, match=r"attention=DotProductConfig\(\) \(allowed: SgpaConfig, Kernel"):
        sgpa.fit(x, y, dot)
    with pytest.raises(ConfigError, match=r"attention is a SgpaConfig \(allowed with mle: Kernel"):
        sgpa.fit(x, y, sparse, method="mle")
    with pytest.raises(ConfigError, match=r"mle would ignore config.attention=DotProductConfig\(\)"):
        sgpa.fit(x, y, dot, method=Mle())
    with pytest.raises(ConfigError, match=r"mfvi would ignore config.dropout=0.5; it has 0.0"):
        sgpa.fit(x, y, replace(CONFIG, dropout=0.5), method="mfvi")
    with pytest.raises(ConfigError, match="epochs, lr and optim are both given"):
        sgpa.fit(x, y, CONFIG, optim=OptimConfig(epochs=2), epochs=2, lr=1e-3)


def test_bad_arguments_are_refused(tmp_path):
    x, y = two_classes()
    with pytest.raises(ConfigError, match=r"epochs=1 \(allowed: 2 or more\)"):
        sgpa.fit(x, y, CONFIG, epochs=1)
    with pytest.raises(ConfigError, match=r"validation=1.5 \(allowed: between 0 and 1"):
        sgpa.fit(x, y, CONFIG, validation=1.5)
    for wrong in ((), (x,), (x, y, y)):
        with pytest.raises(ConfigError, match=r"validation=.* \(allowed: a pair \(inputs, targets\)\)"):
            sgpa.fit(x, y, CONFIG, validation=wrong)
    with pytest.raises(ConfigError, match=r"steps=10 \(allowed: none, where epochs is given\)"):
        sgpa.fit(x, y, CONFIG, steps=10, epochs=2)
    with pytest.raises(ConfigError, match="unknown method 'spga'; did you mean sgpa"):
        sgpa.fit(x, y, CONFIG, method="spga", directory=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"batch_size=0 \(allowed: 1 or more\)"):
        sgpa.fit(x, y, CONFIG, batch_size=0)
    with pytest.raises(ConfigError, match=r"ts predicts classes; config\.likelihood='laplace'"):
        sgpa.fit(x, y, replace(CONFIG, outputs=1, likelihood="laplace"), method="ts")
    with pytest.raises(InputError, match="40 inputs but 39 targets"):
        sgpa.fit(x, y[:-1], CONFIG, epochs=2)
    with pytest.raises(InputError, match="label 7"):
        sgpa.fit(x, y + 6, CONFIG, epochs=2)
    with pytest.raises(InputError, match="9 rows are too few; at least 10 are needed"):
        sgpa.fit(x[:9], y[:9])
    with pytest.raises(InputError, match="training rows have label 1; at least two classes"):
        sgpa.fit(x, torch.ones(40, dtype=torch.long))
    with pytest.raises(InputError, match="training rows have label 'cat'; at least two classes"):
        sgpa.fit(x, ["cat"] * 40)
    with pytest.raises(InputError, match=r"targets has shape \[40, 2\] \(allowed: \[N\] or \[N, 1\]\)"):
        sgpa.fit(x, torch.zeros(40, 2))
    with pytest.raises(InputError, match=r"inputs have shape \[40, 4, 4\].*add the channel"):
        sgpa.fit(x[:, 0], y)
    with pytest.raises(ConfigError, match=r"square images \[N, C, H, H\]\)$"):
        sgpa.fit(x[..., :2], y)
    with pytest.raises(ConfigError) as error:
        sgpa.fit(torch.zeros(40, 8, 8, 3, dtype=torch.uint8), y)
    assert str(error.value) == (
        "fit: inputs=[40, 8, 8, 3] (allowed: square images [N, C, H, H]; these look like [N, H, W, C]: use "
        "inputs.transpose(0, 3, 1, 2), of tensors permute)"
    )
    with pytest.raises(InputError, match="inputs are complex numbers"):
        sgpa.fit(x + 1j, y)
    with pytest.raises(InputError, match="inputs of type list are no array"):
        sgpa.fit([[1, 2], [3]] * 20, y)


def test_arrays_and_words_need_no_config():
    x, y = two_classes()
    words = np.array(["no", "yes"])[y.numpy()]
    lines = []
    model = sgpa.fit(x.double().numpy() * 50 + 100, words[:, None], steps=20, on_progress=lines.append)
    assert model.classes == ("no", "yes")
    assert model.model.config.outputs == 2
    assert model.model.config.embedding.patch_size == 2
    assert model.model.embedding.normalised(x * 50 + 100).std() == pytest.approx(1, abs=0.1)
    assert {line["run"] for line in lines} == {"warm-start", "sgpa"}
    (value,) = {line["epochs"] for line in lines if line["run"] == "warm-start"}
    assert value == 1
    by_list = sgpa.fit(x.tolist(), y.tolist(), steps=4, method="mle")
    assert by_list.predict(x).probabilities.shape == (40, 2)


def test_values_and_tokens_are_recognised():
    torch.manual_seed(0)
    tokens = torch.randint(1, 20, (30, 6), dtype=torch.int32)
    model = sgpa.fit(tokens, torch.randn(30, 1), steps=4)
    assert (model.model.config.embedding.vocabulary, model.model.config.likelihood) == (20, "laplace")
    assert isinstance(model.predict(tokens.long()), Regression)
    assert model.chosen in ("sgpa", "mle")


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bool])
def test_tables_of_numbers_are_refused(kind):
    _, y = two_classes()
    with pytest.raises(InputError) as error:
        sgpa.fit(torch.rand(40, 5).to(kind), y)
    read_as = torch.float32 if kind == torch.float64 else kind
    assert str(error.value) == (
        f"fit: inputs have shape [40, 5] and type {read_as}; a table of numbers [N, F] is not supported: "
        "gradient boosting or a Gaussian process suits it better"
    )


@pytest.mark.parametrize("row", [[3, 0, 2], [0, 1, 2], [1, 2, -1]])
def test_whole_numbers_that_are_no_token_ids_are_refused(row):
    _, y = two_classes()
    with pytest.raises(InputError) as error:
        sgpa.fit(torch.tensor([[1, 2, 3]] * 39 + [row]), y)
    assert str(error.value) == (
        "fit: inputs have shape [40, 3] and type torch.int64, with 0 or less before other numbers; token ids "
        "are 1 or more, and 0 fills up the end of short rows; a table of numbers [N, F] is not supported: "
        "gradient boosting or a Gaussian process suits it better"
    )


def test_whole_numbers_without_padding_are_said_to_be_read_as_token_ids(caplog):
    _, y = two_classes()
    sgpa.fit(torch.randint(1, 9, (40, 3)), y, steps=2, method="mle", on_progress=lambda _: None)
    (record,) = caplog.records
    assert record.getMessage() == (
        "fit: inputs [40, 3] of whole numbers are read as token ids, whose size means nothing; a table of "
        "numbers [N, F] is not supported: gradient boosting or a Gaussian process suits it better"
    )


def test_images_that_no_patch_divides_are_named(caplog):
    assert [patch_size(side) for side in (8, 13, 28, 32, 289)] == [2, 1, 4, 4, 17]
    assert caplog.messages == []
    assert patch_size(31) == 1
    assert caplog.messages == [
        "images of 31 x 31 pixels can only be cut into single pixels, which are 961 tokens and slow; a side "
        "that is a multiple of 8 is cut into 64"
    ]


def test_strings_as_inputs_are_told_where_texts_are_read():
    with pytest.raises(
        InputError, match="inputs are strings, not arrays; texts and SMILES are read from tab"
    ):
        sgpa.fit(["a good film", "a bad film"] * 20, [1, 0] * 20)
    with pytest.raises(InputError, match="inputs are strings, not arrays"):
        sgpa.fit(np.array(["a good film", "a bad film"] * 20), [1, 0] * 20)


def test_token_ids_of_one_byte_are_read():
    _, y = two_classes()
    tokens = torch.randint(1, 9, (40, 4))
    tokens[::3, 2:] = 0  # padding
    model = sgpa.fit(tokens.to(torch.uint8), y, steps=4, method="mle")
    expected = model.predict(tokens).probabilities
    assert torch.equal(model.predict(tokens.numpy().astype(np.uint8)).probabilities, expected)


def test_auto_returns_the_better_of_both_stages(tmp_path, monkeypatch):
    x, y = two_classes()
    options = {"epochs": 3, "batch_size": 8, "directory": tmp_path, "on_progress": lambda _: None}
    model = sgpa.fit(x, y, CONFIG, **options)
    assert set(model.comparison.models) == set(model.comparison.nll)
    assert model.comparison.models[model.chosen] is model.model
    opened = sgpa.load(tmp_path)
    assert torch.equal(opened.predict(x).probabilities, model.predict(x).probabilities)
    assert (opened.chosen, opened.classes) == (model.chosen, ())
    saved = json.loads((tmp_path / "chosen.json").read_text())
    assert saved["held_out_nll"] == model.comparison.nll
    for chosen in ("sgpa", "ts"):
        with monkeypatch.context() as patched:
            sparse = chosen == "sgpa"
            patched.setattr(
                "sgpa.training.compare.compare",
                lambda models, rows, sparse=sparse: Comparison(
                    {name: float((name == "sgpa") != sparse) for name in models}, len(rows), 0.0, models
                ),
            )
            kept = sgpa.fit(x, y, CONFIG, **options)
        assert kept.chosen == chosen
        assert kept.model.stochastic == (chosen == "sgpa")
        assert kept.with_samples(0).predict(x).probabilities.shape == (40, 2)
        shown = kept.comparison._repr_html_()
        assert shown.count("<tr>") == 3
        assert shown.index("chosen") > shown.index({"sgpa": "SGPA", "ts": "temperature"}[chosen])


def test_a_folded_temperature_predicts_as_temperature_scaling_nearer_to_one():
    x, y = two_classes()
    y = (y + (torch.arange(40) % 3 == 0)) % 2  # a third of the labels are wrong
    model = sgpa.fit(x, y, CONFIG, method="mle", epochs=2)
    held_out = Dataset(x, y)
    method = TemperatureScaling()
    T = method.calibrate(model.model, Calibration(held_out, held_out))["temperature"]
    tempered = method.predictor(model.model, {"temperature": T ** (40 / 140)})
    expected = tempered.predict(x).probabilities
    assert fold_temperature(model.model, held_out)
    torch.testing.assert_close(model.predict(x).probabilities, expected)
    assert not fold_temperature(model.model, Dataset(x[:1], y[:1]))


def test_sgpa_warns_where_its_point_model_is_better(monkeypatch, caplog):
    x, y = two_classes()
    scores = iter([1.0, 2.0])
    monkeypatch.setattr("sgpa.training.compare.validate", lambda *_: {"nll": next(scores)})
    sgpa.fit(x, y, CONFIG, method="sgpa", epochs=2)
    assert "SGPA is worse than its point model on 6 held-out rows (NLL 2.000 against 1.000)" in caplog.text


def test_training_stops_when_held_out_rows_stop_improving(tmp_path):
    x, _ = two_classes()
    lines = []
    optim = OptimConfig(epochs=50, batch_size=8, lr=0.3, select_every=2, patience=2)
    options = {"method": "mle", "optim": optim, "directory": tmp_path, "on_progress": lines.append}
    noise = torch.randint(2, (40,))
    sgpa.fit(x, noise, CONFIG, **options)
    epochs = [line for line in lines if "step" not in line]
    assert epochs[-1]["stopped_early"]
    scores = [line["validation"]["nll"] for line in epochs if "validation" in line]
    best = scores.index(min(scores))
    assert len(scores) - 1 - best == 2
    assert len(epochs) == 2 * len(scores) < 50


def test_the_scale_of_a_regression_is_refitted_on_held_out_rows():
    torch.manual_seed(0)
    x = torch.randn(400, 1, 4, 4)
    config = replace(CONFIG, outputs=1, likelihood="laplace")
    y = torch.distributions.Laplace(5.0, 3.0).sample((400,))
    model = sgpa.fit(x, y, config, method="mle", epochs=1, lr=1e-6, validation=0.5)
    residuals = (y - model.predict(x).samples.mean(0)).abs()
    assert float(model.predict(x).scale) == pytest.approx(float(residuals.mean()), rel=0.1)


@pytest.mark.parametrize("kind", ["loader", "torch", "ours"])
def test_loaders_and_data_sets_have_targets_of_their_own(kind):
    x, y = two_classes()
    pairs = torch.utils.data.TensorDataset(x, y.unsqueeze(1))
    data = {
        "loader": torch.utils.data.DataLoader(pairs, batch_size=16),
        "torch": pairs,
        "ours": Dataset(x, y),
    }[kind]
    options = {"method": "mle", "epochs": 2, "seed": 1, "on_progress": lambda _: None}
    expected = sgpa.fit(x, y, CONFIG, **options)
    model = sgpa.fit(data, config=CONFIG, **options)
    assert torch.equal(model.predict(x).probabilities, expected.predict(x).probabilities)
    held_out = sgpa.fit(x, y, CONFIG, validation=data, **options)
    assert held_out.predict(x).probabilities.shape == (40, 2)
    with pytest.raises(InputError, match="which has targets; leave targets out"):
        sgpa.fit(data, y, CONFIG)


def test_missing_targets_and_strange_data_are_refused():
    x, y = two_classes()
    with pytest.raises(
        InputError, match=r"targets are missing; give fit\(inputs, targets\), or a DataLoader"
    ):
        sgpa.fit(x)
    with pytest.raises(InputError, match="TensorDataset does not give pairs"):
        sgpa.fit(torch.utils.data.TensorDataset(x))
    for bad, named in (((x + torch.inf, y), "inputs"), ((x, y * torch.nan), "targets")):
        with pytest.raises(InputError, match=f"fit: {named} have entries that are NaN or infinite"):
            sgpa.fit(*bad)
        with pytest.raises(InputError, match=f"fit: validation {named} have entries that are NaN"):
            sgpa.fit(x, y, validation=bad)
    with pytest.raises(ConfigError, match=r"validation=1 \(allowed: between 0 and 1, or held-out data\)"):
        sgpa.fit(x, y, CONFIG, validation=1)
    with pytest.raises(ConfigError, match=r"augment='mixup' \(allowed: auto, a function, or None\)"):
        sgpa.fit(x, y, CONFIG, augment="mixup")


def test_a_missing_gpu_is_named_before_training(monkeypatch):
    x, y = two_classes()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ConfigError, match="device 'cuda': no GPU found; use --device cpu"):
        sgpa.fit(x, y, CONFIG, device="cuda")


def test_the_given_augmentation_is_applied_to_training_rows_only():
    x, y = two_classes()
    changed = []

    def augment(images, generator):
        changed.append(len(images))
        return images + 0.01 * torch.randn(images.shape, generator=generator)

    sgpa.fit(x, y, CONFIG, method="mle", epochs=2, augment=augment, on_progress=lambda _: None)
    assert sum(changed) >= 2 * 34
    assert set(changed) == {7, 9, 34}  # batches, and all training rows for initial values


def test_the_folder_is_locked_while_training(tmp_path, monkeypatch):
    x, y = two_classes()
    held = []

    def on_progress(_):
        lock = FileLock(tmp_path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            held.append(True)
        else:
            lock.release()

    sgpa.fit(x, y, CONFIG, method="mle", epochs=2, directory=tmp_path, on_progress=on_progress)
    assert held
    FileLock(tmp_path / ".lock").acquire(timeout=0).lock.release()


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(capsys):
    now = iter(range(0, 400, 20))
    display = Display(20, clock=lambda: float(next(now)))
    line = {"run": "sgpa", "epochs": 20, "validation": {"nll": 0.5}}
    with display:
        for epoch in range(1, 5):
            display.on_progress(line | {"epoch": epoch})
    shown = capsys.readouterr().err.splitlines()
    assert shown == [
        "sgpa, 10 %, held-out NLL 0.500, 6 min left",
        "sgpa, 20 %, held-out NLL 0.500, 5 min left",
    ]


def test_progress_is_not_shown_twice(capsys):
    x, y = two_classes()
    sgpa.fit(x, y, CONFIG, method="mle", epochs=2, on_progress=lambda _: None)
    assert not capsys.readouterr().err
    sgpa.fit(x, y, CONFIG, method="mle", epochs=2)
    assert "training on 34 rows, 6 held out: at most" in capsys.readouterr().err


def test_a_training_that_ended_too_soon_says_so(capsys):
    x, y = two_classes()
    for lr, falls in ((1e-3, True), (1e-6, False)):
        optim = sgpa.OptimConfig(epochs=5, lr=lr, final_lr=lr, batch_size=8, select_every=1)
        sgpa.fit(x, y, CONFIG, method="mle", optim=optim)
        assert ("more than these 25 steps may help" in capsys.readouterr().err) == falls


def test_every_class_has_its_share_of_the_held_out_rows(tmp_path):
    data = Dataset(torch.arange(100), torch.tensor([0] * 80 + [1] * 20))
    _, held_out = held_out_split(data, 0.15, 0, tmp_path)
    assert int(held_out.targets.sum()) == 3
    (tmp_path / "sgpa").mkdir()
    (tmp_path / "sgpa" / "log.jsonl").touch()
    assert torch.equal(held_out_split(data, 0.15, 0, tmp_path)[1].inputs, held_out.inputs)  # resumed
    (tmp_path / "split.json").unlink()  # a run from before
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert torch.equal(held_out_split(data, 0.15, 0, tmp_path)[1].inputs, order[:15])
