import pytest
import torch

from sgpa.core import devices


def test_a_large_tensor_is_seen_and_forgotten():
    devices.forget_peak("cpu")
    before = devices.peak("cpu")
    if before is None or not devices.RESET.exists():
        pytest.skip("this system does not tell the memory of a process")
    x = torch.ones(60_000_000)  # 240 MB
    assert devices.peak("cpu") - before > 200_000_000
    del x
    devices.forget_peak("cpu")
    assert devices.peak("cpu") - before < 100_000_000
