import pytest


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """An empty cache, and no data sets but those that a test writes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("SGPA_DATA", raising=False)
