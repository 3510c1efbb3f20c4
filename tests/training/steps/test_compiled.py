"""The compiled training step gives the numbers of the plain one.

On the CPU the step is traced and its trace is run as it is, neither compiled nor recorded. The tests at the
end need a GPU.
"""

import shutil
from dataclasses import replace

import pytest
import torch

from sgpa.core.errors import NumericalError
from sgpa.core.inputs import Batch
from sgpa.gp.fused import TRITON
from sgpa.gp.objective import Progress
from sgpa.methods import Mle, Sgpa, Sngp
from sgpa.models import RandomFeatureConfig, SgpaConfig
from sgpa.training.optim import OptimConfig
from sgpa.training.steps import compiled
from sgpa.training.steps.captured import TOLERATED
from sgpa.training.steps.compiled import Compiled, _adam, can_compile
from sgpa.training.steps.plain import Member, Stacked, StepInfo, random_state
from sgpa.training.trainer import train_together
from support.compiled_runs import Run
from support.small_models import ATTENTIONS, GRAPHS, graphs, small
from support.training_runs import CONFIG, OPTIM, SGPA, Stop, assert_close, blobs, stop_at, trainers
from support.training_runs import METHODS as TOGETHER

METHODS = {name: TOGETHER[name] for name in ("kernel-mle", "sdp-mle", "sgpa", "cheng-boots", "two samples")}
DROPPING = replace(CONFIG, dropout=0.3)
ONCE = OptimConfig(epochs=1)
DECAY = 20.0  # of weights: a step of these tests takes some six percent


@pytest.fixture
def uncompiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def members(method, count, config=CONFIG):
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        model = method.build(config).train()
        method.initialise(model, Batch(*batch(24, seed)))
        optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], fused=True)
        made.append(Member(f"seed {seed}", model, optimiser, random_state()))
    return made


def batch(rows, seed):
    data = blobs(rows, seed)
    return data.inputs, data.targets


def batches(count, at, rows=9):
    return [Batch(*batch(rows, 100 * at + e)) for e in range(count)]


def moment(at):
    return StepInfo(at, 3e-3 * (1 - 0.1 * at), Progress(0.1 + 0.1 * at, 45_000))


def train(kind, made, method, optim, steps):
    with kind(made, method, optim) as stepper:
        done = [stepper.step(batches(len(made), at), moment(at)) for at in steps]
    stepper.close()
    return stepper, done


def assert_same(made, other, atol=1e-6):
    for a, b in zip(made, other, strict=True):
        assert_close(a.model, b.model, atol)
        assert torch.equal(a.random["cpu"], b.random["cpu"])
        for p, q in zip(a.model.parameters(), b.model.parameters(), strict=True):
            x, y = a.optimiser.state.get(p, {}), b.optimiser.state.get(q, {})
            assert x.keys() == y.keys()
            for key in x:
                assert torch.allclose(x[key], y[key], rtol=1e-3, atol=1e-7), key


@pytest.mark.parametrize(
    ("name", "count", "changes"),
    [
        (name, count, changes)
        for name in ("kernel-mle", "sgpa", "dropout")
        for count in (1, 3)
        for changes in ({}, {"clip": 0.05}, {"weight_decay": DECAY})
    ]
    + [("sdp-mle", 1, {}), ("two samples", 3, {}), ("cheng-boots", 3, {})],
)
def test_a_compiled_step_is_the_plain_step(uncompiled, name, count, changes):
    method, config = (Mle(), DROPPING) if name == "dropout" else (METHODS[name], CONFIG)
    optim, steps = replace(ONCE, **changes), range(3)
    plain, ours = members(method, count, config), members(method, count, config)
    _, expected = train(Stacked, plain, method, optim, steps)
    stepper, found = train(Run, ours, method, optim, steps)
    assert stepper.compiled is not None
    for a, b in zip(expected, found, strict=True):
        assert torch.allclose(a.parts, b.parts, rtol=1e-5, atol=1e-6)
        assert (float(a.weight_g), float(a.weight_a)) == pytest.approx((b.weight_g, b.weight_a), rel=1e-6)
    assert_same(ours, plain)


@pytest.mark.parametrize("method", [Mle(), SGPA], ids=["mle", "sgpa"])
def test_a_compiled_step_of_graphs_with_numbers_is_the_plain_step(uncompiled, method):
    embedding = replace(GRAPHS, endpoint_types=True)
    config = small(embedding, ATTENTIONS["kernel"], outputs=1, likelihood="laplace")
    torch.manual_seed(0)
    given = [Batch(graphs(), torch.tensor([9.0, 11.0]))]  # both above: gradients do not cancel
    found = []
    for kind in (Stacked, Run):
        torch.manual_seed(0)
        model = method.build(config).train()
        model.likelihood.initialise(torch.tensor([3.0, 5.0, 10.0]))
        method.initialise(model, given[0])
        optimiser = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], fused=True)
        made = [Member("seed 0", model, optimiser, random_state())]
        with kind(made, method, ONCE) as stepper:
            parts = [stepper.step(given, moment(at)).parts for at in range(2)]
        stepper.close()
        found.append((made, parts))
    assert stepper.compiled is not None
    assert torch.allclose(torch.cat(found[0][1]), torch.cat(found[1][1]), rtol=1e-5, atol=1e-6)
    assert_close(found[1][0][0].model, found[0][0][0].model, atol=1e-5)  # steps are 3e-3
    likelihood = found[1][0][0].model.likelihood
    assert (float(likelihood.centre), float(likelihood.spread)) != (0.0, 1.0)


@pytest.mark.parametrize("count", [1, 3])
def test_it_goes_on_where_another_way_of_stepping_stopped_and_back(uncompiled, count):
    plain, ours = members(SGPA, count), members(SGPA, count)
    train(Stacked, plain, SGPA, ONCE, range(6))
    train(Stacked, ours, SGPA, ONCE, range(2))
    stepper, _ = train(Run, ours, SGPA, ONCE, range(2, 4))
    assert (stepper.counts == 4).all()
    train(Stacked, ours, SGPA, ONCE, range(4, 6))
    assert_same(ours, plain)


def test_after_it_is_closed_every_model_has_tensors_of_its_own(uncompiled):
    made = members(SGPA, 2)
    stepper, _ = train(Run, made, SGPA, ONCE, range(1))
    kept = [p.detach().clone() for p in made[0].model.parameters()]
    stepper.flat.fill_(7.0)
    for p, value in zip(made[0].model.parameters(), kept, strict=True):
        assert torch.equal(p, value)
        assert p.is_contiguous()


@pytest.mark.parametrize("decay", [None, torch.tensor([[2.0, 2.0, 0.0, 0.0, 0.0]])])
def test_adam_is_torchs(decay):
    torch.manual_seed(0)
    start, lr = torch.randn(2, 5), torch.tensor(1e-2)
    p, m, v, counts = start.clone(), torch.zeros(2, 5), torch.zeros(2, 5), torch.zeros(3)
    theirs = [torch.nn.Parameter(part.clone()) for part in start.split([2, 3], 1)]
    groups = [{"params": theirs[:1], "weight_decay": 2.0}, {"params": theirs[1:], "weight_decay": 0.0}]
    optimiser = torch.optim.Adam(theirs, lr=1e-2) if decay is None else torch.optim.AdamW(groups, lr=1e-2)
    for i in range(20):
        g = torch.randn(2, 5) * 10.0 ** (i % 7 - 4)
        for part, gradient in zip(theirs, g.split([2, 3], 1), strict=True):
            part.grad = gradient.clone()
        optimiser.step()
        _adam(p, m, v, counts, g, lr, torch.tensor(False), decay)
        assert torch.allclose(p, torch.cat(theirs, 1), rtol=1e-5, atol=1e-6)
    for ours, key in ((m, "exp_avg"), (v, "exp_avg_sq")):
        assert torch.allclose(ours, torch.cat([optimiser.state[q][key] for q in theirs], 1), rtol=1e-5)
    assert (counts == 20).all()


@pytest.mark.parametrize("count", [1, 2])
def test_a_step_whose_loss_is_not_finite_changes_nothing_and_is_counted(uncompiled, caplog, count):
    made = members(SGPA, count)
    with Run(made, SGPA, ONCE) as stepper:
        stepper.step(batches(count, 0), moment(0))
        kept = [t.clone() for t in (stepper.flat, stepper.first, stepper.second, stepper.counts)]
        broken = batches(count, 1)
        broken[-1].inputs[0, 0, 0, 0] = float("nan")
        stepper.step(broken, moment(1))
        assert float(stepper.skipped) == 1
        for now, before in zip(
            (stepper.flat, stepper.first, stepper.second, stepper.counts), kept, strict=True
        ):
            assert torch.equal(now, before)
        stepper.step(batches(count, 2), moment(2))
        assert not torch.equal(stepper.flat, kept[0])
        assert (stepper.counts == 2).all()
    assert "1 steps were skipped" in caplog.text
    assert float(stepper.skipped) == 0


def test_too_many_such_steps_end_the_run(uncompiled):
    def train():
        with Run(members(Mle(), 1), Mle(), ONCE) as stepper:
            given = batches(1, 0)
            stepper.step(given, moment(0))
            given[0].inputs.fill_(float("nan"))
            for _ in range(TOLERATED + 1):
                stepper.step(given, moment(0))

    with pytest.raises(NumericalError, match=f"{TOLERATED + 1} steps of an epoch"):
        train()


def refuse(*_, **__):
    raise RuntimeError("no compiler here\nand a long story")


def test_what_cannot_be_compiled_takes_another_way_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(torch, "compile", refuse)
    plain, ours = members(SGPA, 1), members(SGPA, 1)
    train(Stacked, plain, SGPA, ONCE, range(3))
    stepper, _ = train(Run, ours, SGPA, ONCE, range(3))
    assert stepper.compiled is None
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].endswith("cannot be compiled and takes a slower way: no compiler here")
    assert_same(ours, plain)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("decay", [0.0, DECAY])
def test_batches_of_another_shape_take_the_plain_way(count, decay):
    plain, ours = members(SGPA, count), members(SGPA, count)
    optim = replace(ONCE, weight_decay=decay)
    train(Stacked, plain, SGPA, optim, range(3))
    with Compiled(ours, SGPA, optim) as stepper:
        stepper.most = 0
        for at in range(3):
            stepper.step(batches(count, at), moment(at))
    stepper.close()
    assert_same(ours, plain)


def test_what_is_compiled(monkeypatch):
    made = {name: members(method, 1) for name, method in METHODS.items()}
    assert not any(can_compile(each, compiled.LONG) for each in made.values())  # on the CPU
    monkeypatch.setattr(compiled, "can_capture", lambda _: True)
    for name, each in made.items():
        careful = name == "sdp-mle" or TRITON
        assert can_compile(each, compiled.LONG) == careful, name
        assert not can_compile(each, compiled.LONG - 1), name
    others = {
        "power iteration": Sngp(head=RandomFeatureConfig(features=16)),
        "standard": Sgpa(attention=SgpaConfig(form="standard")),
        "joint": Sgpa(attention=SgpaConfig(num_global=3, joint=True)),
    }
    for name, method in others.items():
        assert not can_compile(members(method, 1), compiled.LONG), name


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on the CPU")
def test_the_compiler_of_torch_takes_the_step():
    config, optim = replace(CONFIG, depth=1, width=4), replace(ONCE, weight_decay=DECAY)
    plain, ours = members(Mle(), 1, config), members(Mle(), 1, config)
    train(Stacked, plain, Mle(), optim, range(2))
    stepper, _ = train(Run, ours, Mle(), optim, range(2))
    assert stepper.compiled is not None
    assert_same(ours, plain, atol=1e-5)


# -- on a GPU, where products with weights are in TF32

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
WHOLE = {"train": blobs(32, 0), "device": "cuda"}  # four whole batches an epoch
PARTS = {"train": blobs(30, 0), "device": "cuda"}  # the last batch is shorter
FEW = replace(OPTIM, epochs=2, select="last")
TRAININGS = [*((name, FEW) for name in METHODS), ("sgpa", replace(FEW, weight_decay=DECAY))]


def assert_near(model, other, start):
    """The way from the start is the same to a tenth: Adam's first steps turn with tiny gradients."""
    flat = [torch.cat([p.detach().flatten() for p in each.parameters()]) for each in (model, other, start)]
    assert (flat[0] - flat[1]).norm() < 0.1 * (flat[1] - flat[2]).norm()


def started(method, seed, options):
    first = trainers(method, (seed,), **options, optim=replace(FEW, lr=1e-12, final_lr=0.0))
    return train_together(first)[0]


@needs_gpu
@pytest.mark.parametrize("options", [WHOLE, PARTS], ids=["whole", "parts"])
@pytest.mark.parametrize("seeds", [(3,), (0, 1, 5)])
@pytest.mark.parametrize(("name", "optim"), TRAININGS)
def test_compiled_training_is_near_plain_training(monkeypatch, caplog, name, optim, seeds, options):
    start = [started(METHODS[name], seed, options) for seed in seeds]
    monkeypatch.setattr(compiled, "LONG", 0)
    found = train_together(trainers(METHODS[name], seeds, optim=optim, **options))
    assert "slower way" not in caplog.text
    monkeypatch.setattr("sgpa.training.trainer.can_capture", lambda _: False)
    plain = train_together(trainers(METHODS[name], seeds, optim=optim, **options))
    for each in zip(found, plain, start, strict=True):
        assert_near(*each)


@needs_gpu
@pytest.mark.parametrize("method", [SGPA, Mle()], ids=["sgpa", "mle"])
def test_a_compiled_run_that_was_stopped_goes_on(tmp_path, monkeypatch, method):
    """To rounding: compiled anew, a step may take other kernels."""
    start = [started(method, seed, WHOLE) for seed in (0, 1, 5)]
    monkeypatch.setattr(compiled, "LONG", 0)
    monkeypatch.setattr("sgpa.training.trainer.CHECKPOINT_SECONDS", 0.0)
    whole = train_together(trainers(method, **WHOLE))
    cut = trainers(method, directory=tmp_path, **WHOLE)
    cut[1].report = stop_at(2)
    with pytest.raises(Stop):
        train_together(cut)
    found = train_together(trainers(method, directory=tmp_path, **WHOLE))
    for each in zip(found, whole, start, strict=True):
        assert_near(*each)
