import os
import random
from functools import partial

import pytest

# Tests run in parallel processes, where threads of small products would only wait. NumPy reads this when it
# is first imported, and so do the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

SEED = int(os.environ.get("SGPA_TEST_SEED", "0"))
torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # its kernels then run on the CPU


def pytest_collection_modifyitems(items):
    """Skip tests with the marker `gpu` where there is no GPU."""
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """Every test and its fixtures begin with the same random state, whichever tests ran before."""
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.fixture
def no_pdf(monkeypatch):
    """Write pages without PDF figures, which take half of their time; the tests of the report write them."""
    from sgpa.report import write_report

    monkeypatch.setattr("sgpa.report.write_report", partial(write_report, pdf=False))
