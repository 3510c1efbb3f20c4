"""Tiny Hugging Face classifiers in folders, with labelled rows that they get right in most cases."""

import csv

import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from .tiny_transformers import HIDDEN, IMAGE, make

WORDS = [f"{a}{b}" for a in ("ka", "lo", "mi", "nu", "pe") for b in ("ra", "so", "ti", "vu", "xe", "zo")]
NAMES = ("cat", "dog", "horse")
LABELS = {"id2label": dict(enumerate(NAMES)), "label2id": {name: i for i, name in enumerate(NAMES)}}


def text_classifier(folder, seed=0, kind="bert", **options):
    """A BERT of three layers, or another kind of model, with a tokenizer of thirty words."""
    words = ["[PAD]", "[UNK]", *WORDS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=20
    )
    sizes = HIDDEN | {"vocab_size": len(words), "max_position_embeddings": 20, "pad_token_id": 0}
    options = sizes | LABELS | {"num_labels": 3} | options
    model = make(lambda: _of(transformers.AutoModelForSequenceClassification, kind, options), seed)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return model, fast


def image_classifier(folder, seed=0, kind="vit", **options):
    """A ViT of three layers for images of 8 x 8 pixels, without dropout, or another kind of model."""
    if kind == "vit":
        options = HIDDEN | IMAGE | {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    options = LABELS | options
    model = make(lambda: _of(transformers.AutoModelForImageClassification, kind, options), seed)
    model.save_pretrained(folder)
    transformers.ViTImageProcessorPil(size={"height": 8, "width": 8}).save_pretrained(folder)
    return model


def write_texts(path, model, tokenizer, rows=160, seed=0, names=NAMES, noise=0.3):
    """A CSV of random sentences; labels are the model's answers, a share of them replaced at random."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 12, (rows,), generator=generator).tolist()
    texts = [
        " ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (n,), generator=generator)) for n in lengths
    ]
    with torch.no_grad():
        answers = model(**tokenizer(texts, padding=True, return_tensors="pt")).logits.argmax(-1)
    labels = _with_noise(answers, generator, noise)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *zip(texts, [names[i] for i in labels], strict=True)])
    return path


def write_images(folder, model, rows=160, seed=0, names=NAMES):
    """A folder of random images of 8 x 8 pixels, one sub-folder per class."""
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (rows, 3, 8, 8), generator=generator, dtype=torch.uint8)
    with torch.no_grad():
        answers = model(pixel_values=pixels.float() / 127.5 - 1).logits.argmax(-1)
    for i, label in enumerate(_with_noise(answers, generator, 0.3)):
        file = folder / names[label] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels[i].permute(1, 2, 0).numpy()).save(file)
    return folder


def _of(loader, kind, options):
    return loader.from_config(transformers.AutoConfig.for_model(kind, **options))


def _with_noise(answers, generator, share):
    other = torch.randint(0, len(NAMES), answers.shape, generator=generator)
    return torch.where(torch.rand(answers.shape, generator=generator) < share, other, answers).tolist()
