"""Which rows `fit` and `calibrate` read, and what their numbers mean."""

import pytest
import torch

import sgpa
from sgpa.core.errors import InputError
from sgpa.posthoc import statistics
from sgpa.posthoc.calls import Call
from support.tiny_transformers import TorchEncoder, batch, bert, make


def test_every_value_is_a_target_of_a_regressor():
    model = make(lambda: bert(num_labels=1))

    def rows(seed, shift):
        inputs = batch(model, 24, seed, labels=False)
        with torch.no_grad():
            value = model(**inputs).logits.squeeze(-1)
        return inputs | {
            "labels": torch.where(torch.arange(24) < 12, value.new_tensor(-100.0), value + shift)
        }

    gp = sgpa.attach(model, num_inducing=8).fit([rows(0, 0.0), rows(1, 0.0)]).calibrate([rows(2, 0.5)])
    assert float(gp.predict(rows(3, 0.0)).data_variance) > 1000  # rows with -100 are wrong by about 100


def test_gains_are_measured_on_as_many_rows_as_they_need(monkeypatch):
    measured = []
    gains = statistics.measure_gains
    monkeypatch.setattr(
        statistics, "measure_gains", lambda *args: measured.extend(c.rows for c in args[3]) or gains(*args)
    )
    model = make(TorchEncoder)
    sgpa.attach(model, num_inducing=8).fit([batch(model, 40), batch(model, 200, 1), batch(model, 9, 2)])
    assert measured == [40, 24]


def test_the_first_rows_of_a_call_are_those_of_every_argument():
    x, mask = torch.arange(12).view(6, 2), torch.ones(6, 2)
    call = Call((x,), {"mask": mask}, torch.arange(6), mask == 0).first(4)
    assert (call.rows, call.args[0].tolist(), len(call.padding)) == (4, x[:4].tolist(), 4)
    whole = Call((x,), {"cache": object()})
    assert whole.first(4) is whole


class RefusesOnce(TorchEncoder):
    """Refuses the second batch after `passes` became a list."""

    passes = None

    def forward(self, ids):
        if self.passes is not None:
            self.passes.append(len(ids))
            if len(self.passes) == 2:
                raise ValueError("not these")
        return super().forward(ids)


def test_kinds_that_a_model_refuses_do_not_hide_those_after_them():
    model = make(RefusesOnce)
    gp = sgpa.attach(model, num_inducing=8).fit([batch(model, 60, s) for s in range(2)])
    rows = batch(model, 60, 5)
    model.passes = []
    gp.calibrate([rows])
    assert len(model.passes) == 6  # the rows and five kinds of changed ones


def test_the_arguments_of_export_onnx_are_checked():
    gp = sgpa.attach(make(TorchEncoder))
    with pytest.raises(InputError, match="path=3"):
        gp.export_onnx(3, None)
