"""What `import sgpa` offers: every public name exists, is documented and has a type."""

import doctest
import inspect
import subprocess
import sys

import pytest
import torch

import sgpa

OUTSIDE = """
import torch
import sgpa
from sgpa import ModelConfig, OptimConfig, PatchConfig, Sgpa, SgpaConfig

layer = sgpa.OrthogonalSgpa(8, 2, sgpa.ArdRbfKernel(2, 4), num_global=3)
value: torch.Tensor = layer(torch.randn(1, 2, 8)).value
method = Sgpa(attention=SgpaConfig(num_global=4), initial_variance_scale=0.1)
config = ModelConfig(embedding=PatchConfig(image_size=8, channels=1), depth=1, width=8, outputs=2)
reveal_type(sgpa.fit)
wrong: int = SgpaConfig()
sgpa.OrthogonalSgpa("8", 2, sgpa.ArdRbfKernel(2, 4))
"""
SETTINGS = """
[mypy]
strict = True
[mypy-torch.*,numpy.*,scipy.*,transformers.*]
follow_imports = skip
follow_imports_for_stubs = True
"""  # reading the types of torch takes ten seconds; `make lint` does it


INHERITED = {"ChengBootsSgpa": "OrthogonalSgpa"}  # arguments and result are those of another name


@pytest.mark.parametrize("name", sgpa.__all__)
def test_every_public_name_has_arguments_result_and_example(name):
    assert name in dir(sgpa)
    thing = getattr(sgpa, name)
    text = inspect.getdoc(thing)
    assert ">>> " in text, "no example"
    if name in INHERITED:
        assert f"`{INHERITED[name]}`" in text
    elif not takes_nothing(thing):
        assert "Args:\n" in text
    if inspect.isfunction(thing) and inspect.signature(thing).return_annotation is not None:
        assert inspect.isgeneratorfunction(inspect.unwrap(thing)) or "Returns:\n" in text


def takes_nothing(thing):
    """Whether users give no arguments: errors are raised for them, `attach` and `fit` make the others."""
    made = (sgpa.AttachedGp, sgpa.Fitted)
    if inspect.isclass(thing) and (issubclass(thing, Exception) or thing in made):
        return True
    return not inspect.signature(thing).parameters


@pytest.mark.parametrize("name", sgpa.__all__)
def test_examples_run(name):
    """Those that need data or a trained model are compiled only."""
    thing = getattr(sgpa, name)
    module = vars(sys.modules[thing.__module__])
    known = {"sgpa": sgpa, "torch": torch, **{public: getattr(sgpa, public) for public in sgpa.__all__}}
    finder = doctest.DocTestFinder(exclude_empty=True)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    torch.manual_seed(0)
    for each in finder.find(thing, name, module=False, globs=module | known):
        for example in each.examples:
            compile(example.source, f"{each.name}, line {example.lineno}", "single")
        report = []
        assert runner.run(each, out=report.append).failed == 0, "".join(report)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Fit'"):
        _ = sgpa.Fit


@pytest.mark.slow
def test_types_are_visible_from_outside(tmp_path):
    (tmp_path / "use.py").write_text(OUTSIDE)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "use.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in checked.stdout.splitlines() if "error:" in line]
    assert len(errors) == 2, checked.stdout + checked.stderr
    assert "use.py:11" in errors[0]
    assert "SgpaConfig" in errors[0]
    assert 'use.py:12: error: Argument 1 to "OrthogonalSgpa" has incompatible type "str"' in errors[1]
    assert 'Revealed type is "def (' in checked.stdout
