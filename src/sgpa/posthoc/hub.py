"""Adapters on the Hugging Face hub."""

import re
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sgpa.core.errors import InputError, first_line
from sgpa.posthoc.adapter import CONFIG, Adapter
from sgpa.posthoc.card import FILE as CARD
from sgpa.posthoc.card import is_free

NAME = re.compile(r"[\w.-]+/[\w.-]+")
SECONDS = 10.0  # to wait for the hub's first answer


def push(adapter: Adapter, name: str, *, private: bool) -> str:
    """Upload an adapter; returns the address of the commit. See `AttachedGp.push_to_hub`."""
    check_name(name)
    api = _hub("push_to_hub").HfApi()
    with tempfile.TemporaryDirectory() as place:
        adapter.save(Path(place), name)
        try:
            api.create_repo(name, private=private, exist_ok=True)
            if _has_another_card(api, name):
                (Path(place) / CARD).unlink()
            return str(api.upload_folder(repo_id=name, folder_path=place, commit_message="SGPA adapter"))
        except Exception as error:  # the errors of several network libraries
            raise InputError(
                f"push_to_hub: {name} was not uploaded ({first_line(error)}); log in with `hf auth login`, "
                "or use save_pretrained"
            ) from None


def _has_another_card(api: Any, name: str) -> bool:
    """Whether the repository has the card of a model, which stays."""
    return api.file_exists(name, CARD) and not is_free(Path(_hub("push_to_hub").hf_hub_download(name, CARD)))


def is_name(adapter: str | Path) -> bool:
    """Whether it is a name on the hub instead of a folder."""
    return isinstance(adapter, str) and not Path(adapter).exists() and bool(NAME.fullmatch(adapter))


def download(name: str) -> Path:
    """The folder of an adapter in the hub's cache."""
    hub = _hub("attach")
    try:
        hub.HfApi().model_info(name, timeout=SECONDS)  # one request: a download would retry for minutes
        folder = Path(hub.snapshot_download(name))
    except Exception as error:
        raise InputError(
            f"attach: {name!r} is neither a folder nor an adapter that the hub gives ({first_line(error)})"
        ) from None
    if not (folder / CONFIG).is_file():
        raise InputError(f"attach: {name!r} on the hub has no {CONFIG}; push_to_hub writes it")
    return folder


def check_name(name: str) -> None:
    """Raise unless it is `owner/name`."""
    if not NAME.fullmatch(name):
        raise InputError(f"push_to_hub: name={name!r} (allowed: owner/name)")


def _hub(action: str) -> Any:
    if find_spec("huggingface_hub") is None:
        raise InputError(f"{action} needs the package huggingface_hub: pip install huggingface_hub")
    return import_module("huggingface_hub")
