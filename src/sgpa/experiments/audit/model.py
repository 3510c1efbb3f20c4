"""A classifier that `save_pretrained` wrote, with the tokenizer or image processor that lies beside it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sgpa.core.errors import InputError, check_fields, first_line
from sgpa.core.user_code import errors_of
from sgpa.data.backbones.locate import need_transformers
from sgpa.experiments.audit.checks import IMAGE, TEXT, read_kind

MAX_TOKENS = 512  # longer texts are cut
LARGEST = 4096  # pixels of a side
PIXELS = 224  # side of an image, where the processor does not say

Encode = Callable[[Any], dict[str, Tensor]]  # texts, or uint8 images [B, 3, s, s] -> arguments of the model


@dataclass(frozen=True)
class Classifier:
    """A trained model and how its inputs are made."""

    model: nn.Module
    kind: str  # TEXT or IMAGE
    classes: tuple[str, ...]  # names in the order of the outputs
    encode: Encode
    pixels: int  # side of the squares that images are cut to; 0 for texts

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(p.numel() for p in self.model.parameters())


def open_classifier(folder: Path, device: str) -> Classifier:
    """Read a model folder; nothing is downloaded and no code of the folder runs."""
    kind = read_kind(folder)
    if find_spec("transformers") is None:
        raise InputError("audit needs the package transformers; pip install transformers")
    with errors_of(f"{folder} cannot be opened"):
        return _classifier(folder, kind, device)


def _classifier(folder: Path, kind: str, device: str) -> Classifier:
    transformers = need_transformers()
    loader = transformers.AutoModelForSequenceClassification
    if kind == IMAGE:
        loader = transformers.AutoModelForImageClassification
    model = _open(loader, folder, use_safetensors=True, dtype=torch.float32).to(device).eval()
    classes = tuple(str(model.config.id2label[i]) for i in range(model.config.num_labels))
    if len(classes) < 2 or model.config.problem_type in ("regression", "multi_label_classification"):
        what = model.config.problem_type or f"num_labels={len(classes)}"
        raise InputError(f"{folder}: {what}; audit needs a classifier with two classes or more")
    if kind == TEXT:
        return Classifier(model, kind, classes, _text_encoder(folder, model), 0)
    processor = _open(transformers.AutoImageProcessor, folder)
    with errors_of(f"{folder}: its image processor has no size"):
        side = _side(processor)
    check_fields(str(folder), [("size", side, 1 <= side <= LARGEST, f"1 to {LARGEST} pixels")])
    return Classifier(model, kind, classes, _image_encoder(folder, processor), side)


def _open(loader: Any, folder: Path, **options: Any) -> Any:
    try:
        return loader.from_pretrained(folder, local_files_only=True, **options)
    except Exception as error:  # the package raises many kinds
        raise InputError(f"{folder} cannot be opened ({first_line(error)})") from None


def _text_encoder(folder: Path, model: Any) -> Encode:
    tokenizer = _open(import_module("transformers").AutoTokenizer, folder)
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise InputError(f"{folder}: its tokenizer has no token to pad with; set pad_token and save it")
        tokenizer.pad_token = tokenizer.eos_token
        model.config.pad_token_id = tokenizer.pad_token_id
    positions = getattr(model.config, "max_position_embeddings", None) or MAX_TOKENS
    offset = 2 if "roberta" in model.config.model_type else 0  # its positions start behind the padding id
    with errors_of(f"{folder}: model_max_length of its tokenizer is not a number"):
        longest = int(min(positions - offset, tokenizer.model_max_length, MAX_TOKENS))

    def encode(texts: Sequence[str]) -> dict[str, Tensor]:
        limits = {"padding": True, "truncation": True, "max_length": longest}
        with errors_of(f"{folder}: its tokenizer cannot read the texts"):
            return dict(tokenizer(list(texts), **limits, return_tensors="pt"))

    return encode


def _image_encoder(folder: Path, processor: Any) -> Encode:
    def encode(images: Tensor) -> dict[str, Tensor]:
        with errors_of(f"{folder}: its image processor cannot read the images"):
            rows = processor(list(images.numpy()), return_tensors="pt", input_data_format="channels_first")
            return {"pixel_values": rows["pixel_values"]}

    return encode


def _side(processor: Any) -> int:
    """The side of the square that the processor resizes to."""
    size = getattr(processor, "size", None) or {}
    return int(size.get("shortest_edge") or size.get("height") or PIXELS)
