"""Tiny random classifiers of the libraries that `sgpa.attach` supports, and batches for them.

Weights are larger than the libraries initialise them, so that outputs differ from input to input.
"""

import torch
import transformers
from torch import nn

import sgpa

WORDS, CLASSES, TOKENS = 40, 3, 7
HIDDEN = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, "num_hidden_layers": 3}
TEXT = {"vocab_size": WORDS, "num_labels": CLASSES, "max_position_embeddings": 32, "pad_token_id": 0}
IMAGE = {"image_size": 8, "patch_size": 4, "num_channels": 3, "num_labels": CLASSES}
DECODER = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
GROUPED = {"num_key_value_heads": 2, "vocab_size": WORDS, "pad_token_id": 0, "num_labels": CLASSES}


def bert(**options):
    return transformers.BertForSequenceClassification(transformers.BertConfig(**(HIDDEN | TEXT | options)))


def roberta():
    return transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**HIDDEN, **TEXT))


def distilbert():
    sizes = {"dim": 16, "n_heads": 2, "hidden_dim": 24, "n_layers": 3}
    return transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig(**sizes, **TEXT))


def vit(**options):
    return transformers.ViTForImageClassification(transformers.ViTConfig(**(HIDDEN | IMAGE | options)))


def deit():
    return transformers.DeiTForImageClassification(transformers.DeiTConfig(**HIDDEN, **IMAGE))


def llama_classifier():
    return transformers.LlamaForSequenceClassification(transformers.LlamaConfig(**DECODER, **GROUPED))


def qwen2():
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**DECODER, **GROUPED))


def gpt2(n_layer=3):
    sizes = {"n_embd": 16, "n_layer": n_layer, "n_head": 2, "n_positions": 32}
    config = transformers.GPT2Config(**sizes, vocab_size=WORDS, num_labels=CLASSES, pad_token_id=0)
    return transformers.GPT2ForSequenceClassification(config)


class TimmAttention(nn.Module):
    """The signature and attributes of timm's `Attention`; timm itself needs torchvision."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, dim // num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()

    def forward(self, x, attn_mask=None):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = nn.functional.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v, attn_mask=attn_mask)
        return self.proj(y.transpose(1, 2).reshape(B, N, C))


class TimmVit(nn.Module):
    """Blocks of timm's attention over patches, their mean through a head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.ModuleList(TimmAttention(16, 2) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(3))
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x):
        x = self.embed(x).flatten(2).mT
        for norm, block in zip(self.norms, self.blocks, strict=True):
            x = x + block(norm(x))
        return self.head(x.mean(1))


class TorchEncoder(nn.Module):
    """`nn.TransformerEncoder` over token ids, the mean of real tokens through a head."""

    def __init__(self, batch_first=True, layers=3):
        super().__init__()
        self.batch_first = batch_first
        self.embed = nn.Embedding(WORDS, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=batch_first)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids):
        padding = ids == 0
        x = self.embed(ids)
        x = self.encoder(x if self.batch_first else x.transpose(0, 1), src_key_padding_mask=padding)
        x = x if self.batch_first else x.transpose(0, 1)
        x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        return self.head(x.sum(1) / (~padding).sum(1, keepdim=True))


def time_major_encoder():
    return TorchEncoder(batch_first=False)


def own(attention):
    embedding = sgpa.TokenConfig(vocabulary=WORDS, max_tokens=TOKENS)
    return sgpa.Transformer(
        sgpa.ModelConfig(
            embedding=embedding, attention=attention, depth=3, width=16, heads=2, outputs=CLASSES
        )
    )


def own_softmax():
    return own(sgpa.DotProductConfig())


def own_kernel():
    return own(sgpa.KernelAttentionConfig())


ARCHITECTURES = (
    bert,
    roberta,
    distilbert,
    vit,
    deit,
    llama_classifier,
    qwen2,
    gpt2,
    TimmVit,
    TorchEncoder,
    time_major_encoder,
    own_softmax,
    own_kernel,
)


def make(build, seed=0):
    """A model in evaluation mode whose outputs differ from input to input."""
    torch.manual_seed(seed)
    model = build()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 1.5 / parameter.shape[-1] ** 0.5)
    return model.eval()


def batch(model, rows, seed=0, labels=True):
    """Inputs with padding where there are texts, and labels that the model predicts in most cases."""
    generator = torch.Generator().manual_seed(seed)
    if not isinstance(model, transformers.PreTrainedModel):
        images = isinstance(model, TimmVit)
        x = torch.randn(rows, 3, 8, 8, generator=generator) if images else _ids(rows, generator)[0]
        return (x, _labels(model, x, (), generator)) if labels else x
    if isinstance(model, transformers.ViTForImageClassification | transformers.DeiTForImageClassification):
        inputs = {"pixel_values": torch.randn(rows, 3, 8, 8, generator=generator)}
    else:
        ids, mask = _ids(rows, generator)
        inputs = {"input_ids": ids, "attention_mask": mask}
    return inputs | ({"labels": _labels(model, None, inputs, generator)} if labels else {})


def _ids(rows, generator):
    ids = torch.randint(1, WORDS, (rows, TOKENS), generator=generator)
    lengths = torch.randint(3, TOKENS + 1, (rows, 1), generator=generator)
    mask = (torch.arange(TOKENS) < lengths).long()
    return ids * mask, mask


@torch.no_grad()
def _labels(model, x, inputs, generator):
    if x is None and isinstance(model, transformers.Qwen2ForCausalLM):
        return inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    output = model(x) if x is not None else model(**inputs)
    logits = getattr(output, "logits", getattr(output, "f", output))
    wrong = torch.rand(len(logits), generator=generator) < 0.3
    other = torch.randint(0, CLASSES, (len(logits),), generator=generator)
    return torch.where(wrong, other, logits.argmax(-1))


def attached(model, **options):
    """The model with a fitted and calibrated GP."""
    gp = sgpa.attach(model, **({"num_inducing": 8} | options))
    gp.fit([batch(model, 24, seed) for seed in range(3)])
    return gp.calibrate([batch(model, 24, seed) for seed in (10, 11)])


def logits(model, inputs):
    """What the model alone returns."""
    with torch.no_grad():
        output = model(**inputs) if isinstance(inputs, dict) else model(inputs)
    return getattr(output, "logits", getattr(output, "f", output))
