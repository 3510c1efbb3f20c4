import pytest
import torch

from sgpa import memory


def test_a_large_tensor_is_seen_and_forgotten():
    memory.forget_peak("cpu")
    before = memory.peak("cpu")
    if before is None or not memory.RESET.exists():
        pytest.skip("this system does not tell the memory of a process")
    x = torch.ones(60_000_000)  # 240 MB
    assert memory.peak("cpu") - before > 200_000_000
    del x
    memory.forget_peak("cpu")
    assert memory.peak("cpu") - before < 100_000_000
