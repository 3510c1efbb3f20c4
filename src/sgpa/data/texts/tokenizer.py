"""Texts as token ids: a byte-level BPE tokenizer, one of words, and padded rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from sgpa.core.errors import InputError, check_fields
from sgpa.core.limits import size_check
from sgpa.core.network_config import MOST_TOKENS, check_tokenizer
from sgpa.core.user_code import errors_of

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # ids 0 to 3
PAD_NAMES = ("<pad>", "[PAD]", "<|pad|>", "<PAD>", "[pad]")
BYTES = 256  # every text can be written with these, so nothing is unknown
VOCABULARY = 30_000
MAX_TOKENS = 512
WORD_LENGTH = 15  # characters of a word on average, at most, where blanks separate words
PAIRS = 22_000  # of neighbouring words
AT_ONCE = 1000  # texts encoded together; bounds memory


def batched(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` texts; the last may be shorter.

    >>> list(batched("abc", 2))
    [['a', 'b'], ['c']]
    """
    rest = iter(texts)
    while part := list(islice(rest, size)):
        yield part


def collapse(text: str) -> str:
    """The text with every run of white space replaced by one blank."""
    return " ".join(text.split())


def train_tokenizer(
    texts: Iterable[str], vocabulary: int = VOCABULARY, *, lowercase: bool = False
) -> Tokenizer:
    """A byte-level BPE tokenizer whose rows are `<s> ... </s>`.

    Args:
        texts: The texts to learn from; pass training texts only.
        vocabulary: Largest number of tokens, 260 or more.
        lowercase: Whether upper and lower case are the same, which few texts need.

    Returns:
        A tokenizer with `<pad>`, `<unk>`, `<s>`, `</s>` as ids 0 to 3.

    Example:
        >>> train_tokenizer(["a cat and a cat"], vocabulary=270).encode("a cat").tokens[0]
        '<s>'
    """
    least = len(SPECIAL) + BYTES
    check_fields("tokenizer", [size_check("vocabulary", vocabulary, MOST_TOKENS, least)])
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[1]))
    if lowercase:  # and a word at the start of a text is the same as elsewhere
        tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=lowercase)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((collapse(text) for text in texts), trainer)
    return _with_ends(tokenizer)


def train_word_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Tokenizer:
    """A tokenizer whose tokens are lower-case words and punctuation, for few texts.

    Words that occur once are unknown (`<unk>`): a byte-level tokenizer would write them with pieces that
    many words share, and few texts do not suffice to tell their meanings apart.

    Args:
        texts: The texts to learn from; pass training texts only.
        vocabulary: Largest number of tokens; the most frequent words are kept.

    Returns:
        A tokenizer with `<pad>`, `<unk>`, `<s>`, `</s>` as ids 0 to 3.

    Example:
        >>> train_word_tokenizer(["a cat and a cat"]).encode("A cat, and a dog").tokens
        ['<s>', 'a', 'cat', '<unk>', '<unk>', 'a', '<unk>', '</s>']
    """
    least = len(SPECIAL) + 1
    check_fields("tokenizer", [size_check("vocabulary", vocabulary, MOST_TOKENS, least)])
    tokenizer = Tokenizer(models.WordLevel(unk_token=SPECIAL[1]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocabulary, min_frequency=2, special_tokens=list(SPECIAL), show_progress=False
    )
    tokenizer.train_from_iterator((collapse(text) for text in texts), trainer)
    return _with_ends(tokenizer)


def add_pairs(tokenizer: Tokenizer, texts: Iterable[str], most: int = PAIRS) -> Tokenizer:
    """A tokenizer of words that also knows pairs of neighbouring words, which say what words alone do not.

    A pair is a token with a blank, such as `not good`. `encode` with `distinct` reads pairs, others do not.

    Args:
        tokenizer: One that `train_word_tokenizer` made; it is not changed.
        texts: The texts to learn from; pass training texts only.
        most: Pairs that occur in at least two texts are added, at most so many, the most frequent first.

    Returns:
        A tokenizer with the ids of the given one, and those of pairs after them.

    Example:
        >>> texts = ["not good", "not good at all"]
        >>> add_pairs(train_word_tokenizer(texts), texts).token_to_id("not good")
        6
    """
    reader = Tokenizer.from_str(tokenizer.to_str())
    reader.no_truncation()
    unknown = reader.token_to_id(SPECIAL[1])
    counts: Counter[tuple[int, int]] = Counter()
    for part in batched((collapse(text) for text in texts), AT_ONCE):
        for text in reader.encode_batch(part, add_special_tokens=False):
            counts.update({pair for pair in pairwise(text.ids) if unknown not in pair})
    frequent = sorted((pair for pair, count in counts.items() if count > 1), key=lambda p: (-counts[p], p))
    vocabulary = reader.get_vocab()
    words = {id: word for word, id in vocabulary.items()}
    names = [f"{words[first]} {words[second]}" for first, second in frequent[:most]]
    vocabulary |= {name: len(vocabulary) + i for i, name in enumerate(names)}
    reader.model = models.WordLevel(vocabulary, unk_token=SPECIAL[1])
    return reader


def has_words(texts: Sequence[str]) -> bool:
    """Whether blanks separate words, as they do not in Chinese or in protein sequences.

    >>> has_words(["a good film"]), has_words(["MKVLAAGIVGLCAKAYWQRST"])
    (True, False)
    """
    return sum(map(len, texts)) <= WORD_LENGTH * sum(len(text.split()) for text in texts)


def _with_ends(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, with rows `<s> ... </s>`."""
    bos, eos = (tokenizer.token_to_id(name) for name in SPECIAL[2:])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", bos), ("</s>", eos)]
    )
    return tokenizer


def load_tokenizer(path: str | Path) -> Tokenizer:
    """A tokenizer.json of any kind; a padding token with a new last id is added where there is none."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is not a file; name a tokenizer.json")
    check_tokenizer(path)
    with errors_of(f"{path} cannot be read as a tokenizer"):
        tokenizer = _from_file(path)
    if _known_pad(tokenizer) is None:
        tokenizer.add_special_tokens([SPECIAL[0]])
    return tokenizer


def _from_file(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the tokenizers package raises nothing more specific
        raise InputError(f"{path} is not a tokenizer.json ({error}); save one with Tokenizer.save") from None


def pad_id(tokenizer: Tokenizer) -> int:
    """The id of the padding token."""
    known = _known_pad(tokenizer)
    if known is None:
        raise InputError(
            f"the tokenizer has no padding token (looked for {', '.join(PAD_NAMES)}); "
            "read it with load_tokenizer, which adds one"
        )
    return known


def _known_pad(tokenizer: Tokenizer) -> int | None:
    stated = (tokenizer.padding or {}).get("pad_id")
    if stated is not None and tokenizer.id_to_token(stated) is not None:
        return int(stated)
    ids = (tokenizer.token_to_id(name) for name in PAD_NAMES)
    return next((id for id in ids if id is not None), None)


def encode(
    tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int = MAX_TOKENS, *, distinct: bool = False
) -> tuple[Tensor, Tensor]:
    """Texts as padded token ids.

    Args:
        tokenizer: Any tokenizer with a padding token; it is not changed.
        texts: One or more texts.
        max_tokens: Longer texts are cut. The marks `<s>` and `</s>` count and are kept.
        distinct: Whether a token that a text repeats is kept where it occurs first only. Few texts say more
            about which words occur than about how often.

    Returns:
        Ids [N, T] int64, padded with `pad_id`, and lengths [N].

    Example:
        >>> tokenizer = train_tokenizer(["a cat and a cat"], vocabulary=270)
        >>> ids, lengths = encode(tokenizer, ["a cat", "a"])
        >>> ids.shape[0], int(lengths.min())
        (2, 3)
    """
    check_fields("encode", [("max_tokens", max_tokens, max_tokens >= 3, "3 or more")])
    if not texts:
        raise InputError("no text to encode")
    fill = pad_id(tokenizer)
    with errors_of("the tokenizer cannot read the texts"):
        rows = _encoded(tokenizer, texts, max_tokens, distinct)
    lengths = torch.tensor([len(row) for row in rows])
    if not lengths.all():
        raise InputError(f"text {int(lengths.argmin()) + 1} has no token; drop it or fill it in")
    return padded(torch.cat(rows), lengths, fill), lengths


def _encoded(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int, distinct: bool) -> list[Tensor]:
    """The ids of every text, int32."""
    reader = Tokenizer.from_str(tokenizer.to_str())  # the caller's settings stay as they are
    reader.no_padding()
    if distinct:
        reader.no_truncation()
    else:
        reader.enable_truncation(max_tokens)
    pairs = known_pairs(reader) if distinct else {}
    rows: list[Tensor] = []
    for i in range(0, len(texts), AT_ONCE):
        encoded = reader.encode_batch([collapse(text) for text in texts[i : i + AT_ONCE]])
        if distinct:
            ids = [_first_occurrences(_with_pairs(text.ids, pairs), max_tokens) for text in encoded]
        else:
            ids = [text.ids for text in encoded]
        rows += [torch.tensor(row, dtype=torch.int32) for row in ids]
    return rows


def unknown_words(tokenizer: Tokenizer, texts: Sequence[str]) -> Tensor | None:
    """The share of each text's words that are not in the vocabulary, [N]; None where every word can be read.

    >>> words = train_word_tokenizer(["a cat and a dog"] * 2)
    >>> unknown_words(words, ["a cat", "ein Hund und a cat"])
    tensor([0.0000, 0.6000])
    """
    mark = getattr(tokenizer.model, "unk_token", None)
    if mark is None:
        return None
    shares = []
    for i in range(0, len(texts), AT_ONCE):
        clean = [collapse(text) for text in texts[i : i + AT_ONCE]]
        with errors_of("the tokenizer cannot read the texts"):
            encoded = tokenizer.encode_batch(clean, add_special_tokens=False)
        for text, read in zip(clean, encoded, strict=True):
            spans = zip(read.tokens, read.offsets, strict=True)
            words = [token for token, (a, b) in spans if any(c.isalnum() for c in text[a:b])]
            shares.append(words.count(mark) / max(1, len(words)))
    return torch.tensor(shares)


def known_pairs(tokenizer: Tokenizer) -> dict[tuple[int, int], int]:
    """The ids of two words -> that of the pair, for all pairs that `add_pairs` added."""
    if not isinstance(tokenizer.model, models.WordLevel):
        return {}
    vocabulary = tokenizer.get_vocab()
    words = ((name.split(" "), id) for name, id in vocabulary.items() if name.count(" ") == 1)
    return {
        (vocabulary[first], vocabulary[second]): id
        for (first, second), id in words
        if first in vocabulary and second in vocabulary
    }


def _with_pairs(ids: Sequence[int], pairs: Mapping[tuple[int, int], int]) -> list[int]:
    """Every id, followed by that of the pair it makes with the one before.

    >>> _with_pairs([2, 5, 6, 5], {(5, 6): 9})
    [2, 5, 6, 9, 5]
    """
    if not pairs:
        return list(ids)
    read = list(ids[:1])
    for pair in pairwise(ids):
        read.append(pair[1])
        if pair in pairs:
            read.append(pairs[pair])
    return read


def _first_occurrences(ids: Sequence[int], most: int) -> list[int]:
    """The different ids in the order in which they occur first; where there are too many, the last is kept.

    >>> _first_occurrences([2, 5, 5, 7, 3], 4), _first_occurrences([2, 5, 5, 7, 3], 3)
    ([2, 5, 7, 3], [2, 5, 3])
    """
    different = list(dict.fromkeys(ids))
    return different if len(different) <= most else [*different[: most - 1], different[-1]]


def padded(flat: Tensor, lengths: Tensor, fill: int) -> Tensor:
    """Concatenated rows [sum of lengths] as one padded table [N, T] int64."""
    table = torch.full((len(lengths), int(lengths.max())), fill)
    table[torch.arange(table.shape[1]) < lengths.unsqueeze(1)] = flat.long()
    return table
