"""Bad models, batches, labels, adapters and settings: each is one line that names what is allowed."""

import copy

import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import sgpa
from sgpa.core.errors import CheckpointError, ConfigError, InputError, SgpaError
from support.tiny_transformers import TimmVit, TorchEncoder, attached, batch, bert, make, own, own_softmax


@pytest.fixture(scope="module")
def model():
    return make(bert)


@pytest.fixture(scope="module")
def gp(model):
    return attached(model)


@pytest.fixture(scope="module")
def folder(gp, tmp_path_factory):
    return gp.save_pretrained(tmp_path_factory.mktemp("adapter"))


class Wrapped(nn.Module):
    """A model whose result can be changed."""

    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, **inputs):
        return self.change(self.model(**inputs))


def loader(model, count=3, **options):
    return [batch(model, 24, seed, **options) for seed in range(count)]


def changed(model, **columns):
    return [rows | {key: change(rows[key]) for key, change in columns.items()} for rows in loader(model)]


def refused(kind, pattern, work):
    with pytest.raises(kind, match=pattern) as caught:
        work()
    assert isinstance(caught.value, SgpaError)
    assert "\n" not in str(caught.value)


def test_models_that_cannot_have_a_gp(model):
    refused(
        InputError,
        "no attention found in Sequential; supported are",
        lambda: sgpa.attach(nn.Sequential(nn.Linear(2, 2))),
    )
    refused(
        InputError, r"model='bert-base-uncased' \(allowed: Module\)", lambda: sgpa.attach("bert-base-uncased")
    )
    refused(
        InputError, "OptimizedModule runs copies without hooks", lambda: sgpa.attach(torch.compile(model))
    )
    refused(InputError, "attach to model.module", lambda: sgpa.attach(nn.DataParallel(model)))
    with torch.device("meta"):
        empty = bert()
    refused(
        InputError,
        "weights of BertForSequenceClassification are on the meta device",
        lambda: sgpa.attach(empty),
    )
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 20}
    both = transformers.BartForSequenceClassification(transformers.BartConfig(**sizes))
    refused(InputError, "BartForSequenceClassification is an encoder-decoder", lambda: sgpa.attach(both))
    refused(
        InputError,
        "which has a posterior of its own",
        lambda: sgpa.attach(own(sgpa.SgpaConfig(num_global=4))),
    )


def test_modules_named_by_hand(model):
    name = "bert.encoder.layer.1.attention.self"
    assert sgpa.attach(model, modules=[name]).modules == (name,)
    refused(
        InputError, "modules='encoder' is not in the model", lambda: sgpa.attach(model, modules=["encoder"])
    )
    refused(
        InputError,
        "modules='classifier': BertForSequenceClassification around it needs an integer num_heads",
        lambda: sgpa.attach(model, modules=["classifier"]),
    )
    refused(
        InputError,
        "head='clasifier' is not in the model; did you mean",
        lambda: sgpa.attach(model, head="clasifier"),
    )


def test_settings_out_of_range(model, gp):
    refused(ConfigError, r"num_inducing=0 \(allowed: 1 to 1024\)", lambda: sgpa.attach(model, num_inducing=0))
    refused(ConfigError, r"lengthscale=-1 \(allowed", lambda: sgpa.attach(model, lengthscale=-1))
    refused(ConfigError, r"layers=\[3\] \(allowed: -3 to 2", lambda: sgpa.attach(model, layers=[3]))
    refused(
        ConfigError, r"samples=-1 \(allowed: 0 to 1000000\)", lambda: gp.predict(batch(model, 2), samples=-1)
    )
    refused(
        ConfigError, r"max_batches=0 \(allowed", lambda: sgpa.attach(model).fit(loader(model), max_batches=0)
    )


def test_steps_in_the_wrong_order(model):
    refused(
        InputError, r"call fit\(train_loader\) first", lambda: sgpa.attach(model).calibrate(loader(model))
    )
    refused(
        InputError,
        r"predict: call fit\(train_loader\) and calibrate",
        lambda: sgpa.attach(model).predict(batch(model, 2)),
    )
    only_fitted = sgpa.attach(model, num_inducing=8).fit(loader(model))
    refused(InputError, r"save_pretrained: call calibrate", lambda: only_fitted.save_pretrained("nowhere"))


def test_loaders_without_rows_or_labels(model, gp):
    refused(InputError, "fit: the loader yields no batch", lambda: sgpa.attach(model).fit([]))
    refused(InputError, "calibrate: the loader yields no labelled row", lambda: attached(model).calibrate([]))
    unlabelled = loader(model, labels=False)
    refused(InputError, "calibrate: the batch has no labels", lambda: attached(model).calibrate(unlabelled))
    refused(
        InputError,
        "tokens for 1000 inducing points",
        lambda: sgpa.attach(model, num_inducing=1000).fit(loader(model)),
    )


def test_labels_that_do_not_fit(model):
    fitted = sgpa.attach(model, num_inducing=8).fit(loader(model))
    refused(
        InputError,
        r"label 9 \(allowed: 0 to 2",
        lambda: fitted.calibrate(changed(model, labels=lambda y: y + 7)),
    )
    refused(
        InputError,
        "all 72 rows have label 0",
        lambda: fitted.calibrate(changed(model, labels=lambda y: 0 * y)),
    )
    refused(
        InputError,
        "targets are torch.float32 for 3 outputs",
        lambda: fitted.calibrate(changed(model, labels=torch.Tensor.float)),
    )
    twice = changed(model, labels=lambda y: torch.stack([y, y], 1))
    refused(InputError, r"labels of shape \[24, 2\] for outputs \[24, 3\]", lambda: fitted.calibrate(twice))


def test_batches_of_other_kinds(gp):
    refused(InputError, "a batch must be a tensor.*got a str", lambda: gp.predict("a text"))
    refused(InputError, "got a list of 3", lambda: gp.predict(["one", "two", "three"]))
    refused(InputError, "got a str; tokenise texts first", lambda: gp.predict(["one", "two"]))
    refused(InputError, "cannot be moved to cpu", lambda: gp.predict(torch.zeros(2, 3, device="meta")))


def test_outputs_that_are_no_finite_logits(model):
    plain = transformers.BertModel(model.config)
    refused(
        InputError,
        "BertModel returns no logits; attach to a classifier",
        lambda: sgpa.attach(plain).fit(loader(model)),
    )
    broken = Wrapped(model, lambda out: out.logits * float("nan"))
    refused(InputError, "Wrapped: its outputs are not finite", lambda: sgpa.attach(broken).fit(loader(model)))
    scaled = Wrapped(model, lambda out: out.logits.repeat(1, 2))
    refused(
        InputError,
        r"no linear layer makes its 6 outputs; name the module",
        lambda: sgpa.attach(scaled).fit(loader(model)),
    )


def test_weights_that_changed_after_fit():
    model = make(bert)
    gp = attached(model)
    with torch.no_grad():
        model.classifier.weight.add_(0.1)
    refused(
        InputError,
        "its weights changed after fit; fit and calibrate again",
        lambda: gp.predict(batch(model, 2)),
    )


def test_adapter_of_another_model(model, folder, tmp_path):
    other = make(bert, seed=1)
    refused(
        CheckpointError,
        r"the adapter is of another model \(BertForSequenceClassification",
        lambda: sgpa.attach(other, folder),
    )
    refused(
        CheckpointError,
        "the adapter is of another model",
        lambda: sgpa.attach(copy.deepcopy(model).bfloat16(), folder),
    )
    refused(CheckpointError, "the adapter is of another model", lambda: sgpa.attach(make(TimmVit), folder))
    refused(CheckpointError, "adapter.json does not exist", lambda: sgpa.attach(model, tmp_path))
    (tmp_path / "adapter.json").write_text("{}")
    refused(CheckpointError, "adapter.json: classes is missing", lambda: sgpa.attach(model, tmp_path))


def test_after_detach_the_model_is_returned_as_it_was(model):
    gp = attached(model)
    assert gp.detach() is model
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    refused(InputError, "predict: the model was detached", lambda: gp.predict(batch(model, 2)))


def test_two_gps_on_one_model_do_not_disturb_each_other(model, gp):
    inputs = batch(model, 5, labels=False)
    before = gp.predict(inputs).probabilities
    attached(model, lengthscale=1.0, layers=[-1]).predict(inputs, samples=2)
    assert torch.equal(gp.predict(inputs).probabilities, before)


def test_every_attention_implementation_gives_the_same_answer(model, folder):
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    inputs = batch(model, 5, labels=False)
    first, second = (sgpa.attach(m, folder).predict(inputs) for m in (model, eager))
    torch.testing.assert_close(first.probabilities, second.probabilities, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(first.variance, second.variance, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("build", [bert, TorchEncoder, own_softmax])
def test_half_precision_models_work(build):
    model = make(build).bfloat16()
    gp = attached(model)
    inputs = batch(model, 8, labels=False)
    for answer in (gp.predict(inputs), gp.predict(inputs, samples=2)):
        assert answer.probabilities.dtype == torch.float32
        assert answer.variance.isfinite().all()


def test_a_copy_of_the_weights_is_the_same_model(model, folder):
    inputs = batch(model, 5, labels=False)
    twin = copy.deepcopy(model)
    torch.testing.assert_close(
        sgpa.attach(twin, folder).predict(inputs).logits, sgpa.attach(model, folder).predict(inputs).logits
    )


def test_training_mode_is_restored_and_dropout_is_off(model, gp):
    model.train()
    try:
        inputs = batch(model, 5, labels=False)
        first, second = gp.predict(inputs), gp.predict(inputs)
        assert model.training
        assert torch.equal(first.probabilities, second.probabilities)
    finally:
        model.eval()


def test_regressors_answer_with_mean_and_variance():
    torch.manual_seed(0)
    model = make(lambda: bert(num_labels=1))
    generator = torch.Generator().manual_seed(5)

    def rows(seed):
        inputs = batch(model, 24, seed, labels=False)
        with torch.no_grad():
            value = model(**inputs).logits.squeeze(-1)
        return inputs | {"labels": value + 0.5 * torch.randn(24, generator=generator)}

    gp = (
        sgpa.attach(model, num_inducing=8)
        .fit([rows(0), rows(1), rows(2)])
        .calibrate([rows(s) for s in range(10, 18)])
    )
    inputs = batch(model, 6, 30, labels=False)
    answer, drawn = gp.predict(inputs), gp.predict(inputs, samples=4)
    with torch.no_grad():
        torch.testing.assert_close(answer.mean, model(**inputs).logits.squeeze(-1))
    assert 0.1 < float(answer.variance.mean()) < 0.5  # 0.25 is true
    assert answer.novelty.shape == drawn.model_variance.shape == (6,)


def test_loaders_of_torch_are_read():
    model = make(TorchEncoder)
    x, y = batch(model, 90)
    pairs = DataLoader(TensorDataset(x, y), batch_size=30)
    alone = DataLoader(TensorDataset(x), batch_size=30)
    gp = sgpa.attach(model, num_inducing=8).fit(alone).calibrate(pairs)
    assert torch.equal(gp.predict(x).label, torch.cat([gp.predict(rows).label for rows in alone]))


def test_weights_that_moved_but_did_not_change_are_accepted():
    model = make(bert)
    gp = sgpa.attach(model, num_inducing=8).fit(loader(model))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.data = parameter.data.clone()  # as a move to another device does
    gp.calibrate(loader(model)).predict(batch(model, 2))
