"""Devices: which are there, and what the system says about memory."""

import pytest
import torch

from sgpa.core import devices
from sgpa.core.errors import ConfigError


def test_the_peak_is_read_from_the_status_of_the_process(tmp_path, monkeypatch):
    status, reset = tmp_path / "status", tmp_path / "clear_refs"
    monkeypatch.setattr(devices, "STATUS", status)
    monkeypatch.setattr(devices, "RESET", reset)
    status.write_text("Name:\tpython\nVmPeak:\t  999 kB\nVmHWM:\t  240 kB\nVmRSS:\t  100 kB\n")
    assert devices.peak("cpu") == 240 * 1024
    devices.forget_peak("cpu")
    assert reset.read_text() == "5"  # resets VmHWM


def test_a_system_without_a_status_file_reports_no_peak(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "STATUS", tmp_path / "none" / "status")
    monkeypatch.setattr(devices, "RESET", tmp_path / "none" / "clear_refs")
    devices.forget_peak("cpu")
    assert devices.peak("cpu") is None


def test_devices_that_are_missing_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    devices.check_device("cpu")
    with pytest.raises(ConfigError, match=r"device='gpu' \(allowed: cpu\)"):
        devices.check_device("gpu")
    for name in ("cuda", "cuda:0"):
        with pytest.raises(ConfigError, match=f"device '{name}': no GPU found; use --device cpu"):
            devices.check_device(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("cpu", "cuda", "cuda:1"):
        devices.check_device(name)
    with pytest.raises(ConfigError, match=r"allowed: cpu, cuda:0, cuda:1"):
        devices.check_device("cuda:2")
