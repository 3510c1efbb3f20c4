"""The compiled training step gives the numbers of the plain one.

On the CPU the step is traced and its trace is run as it is, neither compiled nor recorded. The tests at the
end need a GPU.
"""

import shutil
from dataclasses import replace

import pytest
import torch
import torch._inductor.config

from sgpa.core.inputs import Batch
from sgpa.gp.fused import TRITON
from sgpa.methods import Mle, Sgpa, Sngp
from sgpa.models import RandomFeatureConfig, SgpaConfig
from sgpa.training.optim import decayed
from sgpa.training.steps import compiled
from sgpa.training.steps.compiled import _adam, can_compile
from support.compiled_runs import compiled as compiled_step
from support.small_models import ATTENTIONS, GRAPHS, graphs, small
from support.training_runs import (
    CONFIG,
    METHODS,
    OPTIM,
    SGPA,
    Stop,
    assert_same_predictions,
    assert_same_step,
    blob_batch,
    blobs,
    make_steps,
    plain_step,
    run_state,
    step_info,
    stop_at,
    trainer,
)

COMPILED = ("kernel-mle", "sdp-mle", "sgpa", "cheng-boots", "two samples")
DROPPING = replace(CONFIG, dropout=0.3)
# C++ without vectors or optimisation: built in seconds, and the same for every processor. (Torch caches
# graphs without their instruction set, and fails where one that was cached with vectors is read without.)
SCALAR = {"cpp.simdlen": 1, "aot_inductor.debug_compile": True}
DECAY = 20.0  # of weights: a step of these tests takes some six percent


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((n, c) for n in ("kernel-mle", "sgpa", "dropout") for c in ({}, {"clip": 0.05})),
        *((n, {}) for n in ("sdp-mle", "two samples", "cheng-boots")),
    ],
)
def test_a_step_has_the_loss_and_the_gradient_of_the_plain_step(uncompiled, name, changes):
    method, config = (Mle(), DROPPING) if name == "dropout" else (METHODS[name], CONFIG)
    optim = replace(OPTIM, **changes)
    expected, state = (run_state(method, config, optim) for _ in range(2))
    others = make_steps(plain_step(expected, method, optim), [blob_batch(8, 1)])
    step = compiled_step(state, method, optim)
    results = make_steps(step, [blob_batch(8, 1)])
    assert step.body.compiled is not None
    assert_same_step(state, expected, results, others)
    assert torch.equal(state.random["cpu"], expected.random["cpu"])


@pytest.mark.parametrize("method", [Mle(), SGPA], ids=["mle", "sgpa"])
def test_a_step_of_graphs_with_numbers_is_the_plain_step(uncompiled, method):
    config = small(
        replace(GRAPHS, endpoint_types=True), ATTENTIONS["kernel"], outputs=1, likelihood="laplace"
    )
    torch.manual_seed(0)
    batch, optim = Batch(graphs(), torch.tensor([9.0, 11.0])), replace(OPTIM, batch_size=2)

    def state():
        made = run_state(method, config, optim, batch)
        made.model.likelihood.initialise(torch.tensor([3.0, 5.0, 10.0]))
        return made

    expected, ours = state(), state()
    others = make_steps(plain_step(expected, method, optim), [batch])
    step = compiled_step(ours, method, optim)
    results = make_steps(step, [batch])
    assert step.body.compiled is not None
    assert_same_step(ours, expected, results, others)
    assert (float(ours.model.likelihood.centre), float(ours.model.likelihood.spread)) != (0.0, 1.0)


def test_a_run_can_change_between_plain_and_compiled_steps(uncompiled):
    batches = [blob_batch(8, i) for i in range(6)]
    expected, state = run_state(SGPA), run_state(SGPA)
    make_steps(plain_step(expected, SGPA), batches)
    make_steps(plain_step(state, SGPA), batches[:2])
    step = compiled_step(state, SGPA, OPTIM)
    make_steps(step, batches[2:4], first=2)
    assert (step.body.counts == 4).all()
    make_steps(plain_step(state, SGPA), batches[4:], first=4)
    assert torch.equal(state.random["cpu"], expected.random["cpu"])
    assert_same_predictions(state.model, expected.model, blobs(9, 5).inputs)


def test_a_closed_step_leaves_the_model_with_tensors_of_its_own(uncompiled):
    state = run_state(SGPA)
    step = compiled_step(state, SGPA, OPTIM)
    make_steps(step, [blob_batch(8, 0)])
    kept = [p.detach().clone() for p in state.model.parameters()]
    moments = [s["exp_avg"].clone() for s in state.optimiser.state.values()]
    step.body.flat.fill_(7.0)
    step.body.first.fill_(7.0)
    for p, value in zip(state.model.parameters(), kept, strict=True):
        assert torch.equal(p, value)
        assert p.is_contiguous()
    for s, value in zip(state.optimiser.state.values(), moments, strict=True):
        assert torch.equal(s["exp_avg"], value)


@pytest.mark.parametrize("decay", [None, torch.tensor([2.0, 2.0, 0.0, 0.0, 0.0])])
def test_adam_is_torchs(decay):
    torch.manual_seed(0)
    start, lr = torch.randn(5), torch.tensor(1e-2)
    p, m, v, counts = start.clone(), torch.zeros(5), torch.zeros(5), torch.zeros(3)
    theirs = [torch.nn.Parameter(part.clone()) for part in start.split([2, 3])]
    groups = [{"params": theirs[:1], "weight_decay": 2.0}, {"params": theirs[1:], "weight_decay": 0.0}]
    optimiser = torch.optim.Adam(theirs, lr=1e-2) if decay is None else torch.optim.AdamW(groups, lr=1e-2)
    for i in range(20):
        g = torch.randn(5) * 10.0 ** (i % 7 - 4)
        for part, gradient in zip(theirs, g.split([2, 3]), strict=True):
            part.grad = gradient.clone()
        optimiser.step()
        _adam(p, m, v, counts, g, lr, torch.tensor(False), decay)
        assert torch.allclose(p, torch.cat(theirs), rtol=1e-5, atol=1e-6)
    for ours, key in ((m, "exp_avg"), (v, "exp_avg_sq")):
        assert torch.allclose(ours, torch.cat([optimiser.state[q][key] for q in theirs]), rtol=1e-5)
    assert (counts == 20).all()


def test_weight_decay_reaches_the_linear_maps_and_nothing_else():
    optim = replace(OPTIM, weight_decay=DECAY)
    state = run_state(SGPA, optim=optim)
    body = compiled_step(state, SGPA, optim).body
    body.attach()
    shrunk = decayed(state.model)
    for (name, _), decay in zip(state.model.named_parameters(), body._slots(body.decay), strict=True):
        assert (decay == (DECAY if name in shrunk else 0.0)).all(), name


@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_other_steps_update_with_the_same_adam(decay):
    """An unrecorded step of a compiled run moves the weights as torch's optimiser would."""
    optim = replace(OPTIM, weight_decay=decay)
    state = run_state(SGPA, optim=optim)
    twin = run_state(SGPA, optim=optim)
    with compiled_step(state, SGPA, optim, most=0) as step:
        step.step(blob_batch(8, 0), step_info(0))
        for p, q in zip(state.model.parameters(), twin.model.parameters(), strict=True):
            q.grad = p.grad  # the same gradient
        for group in twin.optimiser.param_groups:
            group["lr"] = step_info(0).lr
        twin.optimiser.step()
        for (name, p), q in zip(state.model.named_parameters(), twin.model.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6, msg=lambda t, n=name: f"{n}: {t}")


def test_a_step_whose_loss_is_not_finite_changes_nothing_and_is_counted(uncompiled, caplog):
    state, broken = run_state(SGPA), blob_batch(8, 1)
    broken.inputs[0, 0, 0, 0] = float("nan")
    with compiled_step(state, SGPA, OPTIM) as step:
        body = step.body
        step.step(blob_batch(8, 0), step_info(0))
        kept = [t.clone() for t in (body.flat, body.first, body.second, body.counts)]
        step.step(broken, step_info(1))
        assert float(step.registers.skipped) == 1
        for now, before in zip((body.flat, body.first, body.second, body.counts), kept, strict=True):
            assert torch.equal(now, before)
        step.step(blob_batch(8, 2), step_info(2))
        assert not torch.equal(body.flat, kept[0])
        assert (body.counts == 2).all()
    assert "1 steps were skipped" in caplog.text
    assert float(step.registers.skipped) == 0


def refuse(*_, **__):
    raise RuntimeError("no compiler here\nand a long story")


@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_step_that_cannot_be_compiled_is_recorded_as_it_is_with_one_warning(monkeypatch, caplog, clip):
    monkeypatch.setattr(torch, "compile", refuse)
    optim = replace(OPTIM, clip=clip)
    expected, state = run_state(SGPA, optim=optim), run_state(SGPA, optim=optim)
    others = make_steps(plain_step(expected, SGPA, optim), [blob_batch(8, 0)])
    step = compiled_step(state, SGPA, optim)
    results = make_steps(step, [blob_batch(8, 0)])
    assert step.body.compiled is None
    assert len(step.recordings) == 1
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.endswith("cannot be compiled and takes a slower way: no compiler here")
    assert_same_step(state, expected, results, others)


def test_which_models_are_compiled(monkeypatch):
    states = {name: run_state(METHODS[name]) for name in COMPILED}
    assert not any(can_compile(state, compiled.LONG) for state in states.values())  # on the CPU
    monkeypatch.setattr(compiled, "can_capture", lambda _: True)
    for name, state in states.items():
        controls_own_precision = name == "sdp-mle" or TRITON
        assert can_compile(state, compiled.LONG) == controls_own_precision, name
        assert not can_compile(state, compiled.LONG - 1), name
    others = {
        "power iteration": Sngp(head=RandomFeatureConfig(features=16)),
        "standard": Sgpa(attention=SgpaConfig(form="standard")),
        "joint": Sgpa(attention=SgpaConfig(num_global=3, joint=True)),
    }
    for name, method in others.items():
        assert not can_compile(run_state(method), compiled.LONG), name


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
@torch._inductor.config.patch(SCALAR)
def test_torch_compile_takes_the_step():
    config, optim = (
        replace(CONFIG, depth=1, dropout=0.0),
        replace(OPTIM, weight_decay=DECAY),
    )
    expected, state = (run_state(Mle(), config, optim) for _ in range(2))
    others = make_steps(plain_step(expected, Mle(), optim), [blob_batch(8, 1)])
    step = compiled_step(state, Mle(), optim)
    results = make_steps(step, [blob_batch(8, 1)])
    assert step.body.compiled is not None
    assert_same_step(state, expected, results, others)


# -- on a GPU, where products with weights are in TF32

WHOLE = {"train": blobs(32, 0), "device": "cuda"}  # four whole batches an epoch
PARTS = {"train": blobs(30, 0), "device": "cuda"}  # the last batch is shorter
FEW = replace(OPTIM, epochs=2, select="last")
TF32 = 2e-2  # of the largest gradient


@pytest.mark.gpu
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_cuda_graph_has_the_gradient_of_the_plain_step(caplog, name):
    method, batch = METHODS[name], blob_batch(8, 1).to("cuda")
    expected, state = (run_state(method, device="cuda") for _ in range(2))
    (other,) = make_steps(plain_step(expected, method), [batch])
    step = compiled_step(state, method, OPTIM)
    (result,) = make_steps(step, [batch])
    assert step.body.compiled is not None
    assert len(step.recordings) == 1
    assert "slower" not in caplog.text
    torch.testing.assert_close(result.parts, other.parts, rtol=TF32, atol=TF32)
    assert_same_step(state, expected, [], [], rtol=TF32)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [WHOLE, PARTS], ids=["whole", "parts"])
@pytest.mark.parametrize(("name", "decay"), [*((name, 0.0) for name in COMPILED), ("sgpa", DECAY)])
def test_compiled_training_predicts_what_plain_training_predicts(monkeypatch, caplog, name, decay, options):
    optim = replace(FEW, weight_decay=decay)
    monkeypatch.setattr(compiled, "LONG", 0)
    model = trainer(method=METHODS[name], optim=optim, **options).fit()
    assert "slower way" not in caplog.text
    monkeypatch.setattr("sgpa.training.steps.choose.can_capture", lambda _: False)
    other = trainer(method=METHODS[name], optim=optim, **options).fit()
    assert_same_predictions(model, other, blobs(30, 5).inputs.cuda(), atol=5e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("method", [SGPA, Mle()], ids=["sgpa", "mle"])
def test_a_stopped_compiled_run_resumes(tmp_path, monkeypatch, method):
    """To rounding: compiled anew, a step may take other kernels."""
    monkeypatch.setattr(compiled, "LONG", 0)
    monkeypatch.setattr("sgpa.training.trainer.CHECKPOINT_SECONDS", 0.0)
    whole = trainer(method=method, **WHOLE).fit()
    with pytest.raises(Stop):
        trainer(tmp_path, method=method, on_progress=stop_at(2), **WHOLE).fit()
    resumed = trainer(tmp_path, method=method, **WHOLE).fit()
    assert_same_predictions(resumed, whole, blobs(30, 5).inputs.cuda(), atol=5e-2)
