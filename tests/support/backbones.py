"""Tiny networks in the format of `save_pretrained`, with random weights."""

import json

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "good", "bad", "film", ",", "number"]


def tiny_bert(folder, layers=3, width=16):
    """A BERT of words; returns its folder."""
    transformers = __import__("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS), hidden_size=width, num_hidden_layers=layers, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    saved = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(saved))
    return folder


def tiny_vit(folder, size=16, patch=4, width=16):
    """A vision Transformer; returns its folder."""
    transformers = __import__("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=size, patch_size=patch, hidden_size=width, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    transformers.ViTModel(config).save_pretrained(folder)
    return folder
