import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from sgpa.core.errors import ConfigError, InputError
from sgpa.core.files import read_tensors, write_tensors
from sgpa.core.inputs import Words
from sgpa.data.texts.cola import COLA_TEST, WordVocabulary, characters, cola, sentences, tokenized
from sgpa.data.texts.imdb import imdb, text_task
from sgpa.data.texts.tables import read_texts, read_unlabelled
from sgpa.data.texts.tokenizer import (
    add_pairs,
    encode,
    known_pairs,
    load_tokenizer,
    pad_id,
    train_tokenizer,
    train_word_tokenizer,
)
from sgpa.models import ModelConfig, TokenConfig, Transformer
from support.paths import DATA, needs
from support.tables import parquet, write

needs_imdb = needs("imdb/*.parquet")
needs_cola = needs("cola/*.parquet")

GOOD = ["a fine film", "what a fine, fine film", "I liked this film", "fine acting"]
BAD = ["a dull film", "dull, dull and long", "I left this dull film", "a long, long evening"]


# reading files


def test_csv_and_parquet_files_give_the_same_texts(tmp_path):
    rows = [("one, two", "pos"), ('say "no"', "neg"), ("two\nlines", "pos")]
    csv = 'review,sentiment\n"one, two",pos\n"say ""no""",neg\n"two\nlines",pos\n'
    files = [
        write(tmp_path / "a.csv", csv),
        write(tmp_path / "excel.csv", "\ufeff" + csv.replace("review,", "review;").replace('",', '";')),
        parquet(tmp_path / "a.parquet", Text=[r[0] for r in rows], Label=[r[1] for r in rows]),
    ]
    for path in files:
        texts, labels, classes = read_texts(path)
        assert texts == [r[0] for r in rows]
        assert classes == ["neg", "pos"]
        assert labels.tolist() == [1, 0, 1]
        assert read_unlabelled(path) == texts


@pytest.mark.parametrize(
    "content",
    [
        "text\tlabel\none, two\tpos\nthree; four\tneg\n",
        "text;label, of people\none, two;pos\nthree;neg\n",
        'text,label\n"one, two; three",pos\n"three; four",neg\n',
        "text;label\none, two;pos\nthree, four;neg\n",
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_csv_is_split_by_what_gives_every_row_as_many_columns(tmp_path, content, encoding):
    (tmp_path / "a.csv").write_text(content, encoding=encoding)
    column = content.partition("\n")[0].replace("\t", ";").replace("text,", ";").rpartition(";")[2]
    texts, labels, classes = read_texts(tmp_path / "a.csv", label_column=column)
    assert texts[0].startswith("one, two")
    assert texts[1].startswith("three")
    assert (labels.tolist(), classes) == ([1, 0], ["neg", "pos"])


def test_a_table_without_a_header_is_named_in_few_words(tmp_path):
    path = write(tmp_path / "a.csv", f"{'a very long film ' * 50},pos\nshort,neg\n")
    with pytest.raises(InputError) as error:
        read_texts(path)
    assert str(error.value) == (
        f"{path}: which column holds the text? Its columns are a very long film a very long film a very long "
        "film a very..., pos (the first row must hold the names); name one with text_column, or call it "
        "'text'"
    )


def test_all_empty_rows_are_counted(tmp_path):
    path = write(tmp_path / "a.csv", "text,label\nx,1\n" + ",0\n" * 5)
    with pytest.raises(InputError) as error:
        read_texts(path)
    assert str(error.value) == (
        f"{path}, rows 2, 3, 4 and 2 more: the text is empty (row 1 is the first below the header); fill it "
        "in or delete the rows"
    )
    path = write(tmp_path / "a.csv", "text,label\nx,1\ny,\nz,\n")
    with pytest.raises(
        InputError, match=r"rows 2, 3: no label in column 'label' \(.*\); fill it in or delete the"
    ):
        read_texts(path)


def test_stray_quote_in_a_tsv_keeps_all_rows(tmp_path):
    path = write(tmp_path / "a.tsv", 'label\tsentence\n1\t"Quote, he said\n0\tplain\n1\tdone"\n')
    texts, labels, _ = read_texts(path)
    assert texts == ['"Quote, he said', "plain", 'done"']
    assert labels.tolist() == [1, 0, 1]


def test_numeric_labels_are_ordered_by_number(tmp_path):
    path = parquet(tmp_path / "a.parquet", text=["x"] * 4, stars=[10.0, 2.0, 1.0, 10.0])
    _, labels, classes = read_texts(path, label_column="stars")
    assert classes == ["1", "2", "10"]
    assert labels.tolist() == [2, 1, 0, 2]


def test_a_column_cannot_be_text_and_label(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "good,pos\nbad,neg\n" * 5, encoding="utf-8")
    with pytest.raises(InputError, match=r"a\.csv: column 'label' cannot be both the text and the label"):
        read_texts(file, text_column="label")


def test_classes_that_differ_in_case_only_are_named(tmp_path, caplog):
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "good,Pos\nfine,pos\nbad,neg\n" * 5, encoding="utf-8")
    assert read_texts(file)[2] == ["Pos", "neg", "pos"]
    assert caplog.messages == [f"{file}: 'Pos' and 'pos' are read as two classes; they differ in case only"]


def test_a_column_that_was_chosen_among_several_is_named(tmp_path, caplog):
    file = tmp_path / "a.csv"
    file.write_text("text,Category,label\n" + "good,a,pos\nbad,b,neg\n" * 5, encoding="utf-8")
    assert read_texts(file)[2] == ["neg", "pos"]
    assert caplog.messages == [f"{file}: the label is read from column 'label', not from Category"]
    caplog.clear()
    assert read_texts(file, label_column="Category")[2] == ["a", "b"]
    assert caplog.messages == []


def test_a_label_that_is_nan_is_missing(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label\n" + "good,pos\nbad,neg\nfine,NaN\n", encoding="utf-8")
    with pytest.raises(InputError, match="row 3: no label in column 'label'"):
        read_texts(file)


def test_columns_without_a_name_are_shown_as_such(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("text,label,,\ngood,pos,,\n", encoding="utf-8")
    with pytest.raises(
        InputError, match=r"the same name in text, label, \(no name\), \(no name\); rename one"
    ):
        read_texts(file)
    columns = [pa.array(["good", "bad"])] * 3
    pq.write_table(pa.Table.from_arrays(columns, names=["text", "text", "label"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="two columns have the same name in text, text, label; rename one"):
        read_texts(tmp_path / "a.parquet")


def test_file_without_labels_is_read(tmp_path):
    assert read_unlabelled(write(tmp_path / "a.csv", "comment\nhello\n")) == ["hello"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text,label\nx,1\n ,0\n", r"a\.csv, row 2: the text is empty \(row 1 is the first below"),
        ("a.csv", "text,label\nx,1\ny,\n", r"row 2: no label in column 'label'"),
        ("a.csv", "text,label\nx,1\ny,1\n", "every row has the label '1'"),
        ("a.csv", "words,label\nx,1\n", r"which column holds the text\? Its columns are words, label"),
        ("a.csv", "text,kind\nx,1\n", "name one with label_column"),
        ("a.csv", "text,label\nx,1\na,b,0\n", "row 2: 3 values for 2 columns .* put quotes"),
        ("a.csv", "text,text\nx,1\n", "two columns have the same name"),
        ("a.csv", "text,label\n", "no rows below its header"),
        ("a.csv", "", "no rows below its header"),
        ("a.csv", 'text,label\n"x,1\n', "cannot be read"),
        ("a.csv", "text,label\n" + "".join(f"x,{i}\n" for i in range(20)), "20 different values in 20 rows"),
        ("a.xlsx", "", "convert it"),
        ("a.parquet", "no parquet", "damaged or has the wrong ending"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as caught:
        read_texts(write(tmp_path / name, content))
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_missing_columns_encodings_and_types_are_named(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_texts(tmp_path / "none.csv")
    path = write(tmp_path / "a.csv", "text,label\nx,1\ny,0\n")
    with pytest.raises(InputError, match=r"no column 'body'; its columns are text, label"):
        read_texts(path, text_column="body")
    (tmp_path / "latin.csv").write_bytes("text,label\nété,1\n".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_texts(tmp_path / "latin.csv")
    with pytest.raises(InputError, match=r"row 2: no label"):
        read_texts(parquet(tmp_path / "a.parquet", text=["x", "y"], label=[1.0, float("nan")]))
    with pytest.raises(InputError, match="holds int values, not text"):
        read_texts(parquet(tmp_path / "b.parquet", text=[1, 2], label=[1, 0]))


# tokenizers


def test_tokenizer_is_lossless():
    tokenizer = train_tokenizer(GOOD + BAD, vocabulary=300)
    odd = "  naïve\t\ncafé — 東京 \U0001f600 <br />  fine "
    ids, lengths = encode(tokenizer, [odd, "fine"])
    assert tokenizer.decode(ids[0].tolist()) == "naïve café — 東京 \U0001f600 <br /> fine"
    assert [tokenizer.token_to_id(t) for t in ("<pad>", "<unk>", "<s>", "</s>")] == [0, 1, 2, 3]
    assert ids.dtype == torch.int64
    assert (ids[:, 0] == 2).all()
    assert ids[torch.arange(2), lengths - 1].tolist() == [3, 3]
    assert ids[1, lengths[1] :].eq(0).all()
    assert ids[1, : lengths[1]].ne(0).all()


def test_long_texts_are_cut_before_the_end_mark():
    tokenizer = train_tokenizer(GOOD, vocabulary=270)
    ids, lengths = encode(tokenizer, ["a fine film " * 50, "a"], max_tokens=16)
    assert ids.shape == (2, 16)
    assert lengths.tolist() == [16, 3]
    assert ids[0, -1] == 3
    assert tokenizer.truncation is None  # the caller's tokenizer is not changed


def test_tokenizer_of_a_user_gets_a_padding_token(tmp_path):
    words = Tokenizer(models.WordLevel({"fine": 0, "film": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(InputError, match="no padding token"):
        pad_id(words)
    words.save(str(tmp_path / "words.json"))
    brought = load_tokenizer(tmp_path / "words.json")
    assert pad_id(brought) == 3
    assert encode(brought, ["film", "fine film fine"])[0].tolist() == [[1, 3, 3], [0, 1, 0]]
    words.add_special_tokens(["[PAD]"])
    words.save(str(tmp_path / "padded.json"))
    assert pad_id(load_tokenizer(tmp_path / "padded.json")) == 3
    for name, content in (("a.json", "{}"), ("b.json", "not JSON")):
        with pytest.raises(InputError, match=r"is not a tokenizer\.json"):
            load_tokenizer(write(tmp_path / name, content))
    with pytest.raises(InputError, match="does not exist"):
        load_tokenizer(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="260 to 10000000"):
        train_tokenizer(GOOD, vocabulary=100)
    for train in (train_tokenizer, train_word_tokenizer):
        with pytest.raises(ConfigError, match="vocabulary=1180591620717411303424"):
            train(GOOD, vocabulary=2**70)


# tasks


def test_text_task_is_split_by_seed():
    texts, labels = (GOOD + BAD) * 5, torch.tensor(([1] * 4 + [0] * 4) * 5)
    first, again, other = (
        text_task(texts, labels, ("bad", "good"), seed=s, vocabulary=280) for s in (1, 1, 2)
    )
    sizes = [len(part) for part in (first.splits.train, first.splits.validation, first.splits.test)]
    assert sizes == [28, 4, 8]
    assert torch.equal(first.splits.test.inputs, again.splits.test.inputs)
    assert not torch.equal(first.splits.train.targets, other.splits.train.targets)
    for row, target in zip(first.splits.test.inputs, first.splits.test.targets, strict=True):
        assert (first.tokenizer.decode(row.tolist()) in GOOD) == bool(target)
    model = Transformer(
        ModelConfig(embedding=TokenConfig(**first.embedding), depth=1, heads=2, width=8, outputs=2)
    )
    assert model.predict(first.splits.test.inputs[:2]).probabilities.shape == (2, 2)
    with pytest.raises(InputError, match="cannot be split"):
        text_task(texts, labels, ("bad", "good"), sizes=(30, 0, 10))
    with pytest.raises(InputError, match="8 texts but 3 labels"):
        text_task(GOOD + BAD, labels[:3], ("bad", "good"))


def test_batches_of_a_text_task_hold_rows_of_similar_length():
    texts = ["word " * (1 + i % 40) for i in range(400)]
    task = text_task(texts, torch.arange(400) % 2, ("a", "b"), vocabulary=270, sizes=(380, 10, 10))
    spread = []
    for batch in task.splits.train.batches(8, seed=0):
        lengths = (batch.inputs != 0).sum(1)
        spread.append(int(lengths.max() - lengths.min()))
    assert sum(spread) / len(spread) < 8


@pytest.fixture
def small_imdb(tmp_path, monkeypatch):
    """Sixty reviews in the layout of the real ones; each has a unique word."""
    monkeypatch.setattr("sgpa.data.texts.imdb.IMDB_SIZES", (40, 8, 12))
    for part in ("train", "test"):
        reviews = [f"the film number{part}{i}number is {'fine' if i % 2 else 'dull'}" for i in range(30)]
        labels = [i % 2 for i in range(30)]
        parquet(tmp_path / "imdb" / f"{part}-00000-of-00001.parquet", text=reviews, label=labels)
    return tmp_path


def test_tokenizer_is_trained_on_training_rows_only(small_imdb, monkeypatch):
    seen = []
    original = train_tokenizer
    monkeypatch.setattr(
        "sgpa.data.texts.imdb.train_tokenizer", lambda t, v: seen.extend(t) or original(seen, v)
    )
    task = imdb(3, data_dir=small_imdb, vocabulary=300, cache=False)
    parts = (task.splits.train, task.splits.validation, task.splits.test)
    written = [[task.tokenizer.decode(row.tolist()) for row in part.inputs] for part in parts]
    assert [len(rows) for rows in written] == [40, 8, 12]
    assert sorted(seen) == sorted(written[0])
    assert not set(seen) & set(written[1] + written[2])


def test_imdb_is_cached(small_imdb, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    made = imdb(1, data_dir=small_imdb, vocabulary=300, cache=cache)
    (folder,) = cache.iterdir()
    assert sorted(file.name for file in folder.iterdir()) == ["encoded.safetensors", "tokenizer.json"]
    with monkeypatch.context() as m:
        m.setattr("sgpa.data.texts.imdb.text_task", lambda *_, **__: pytest.fail("made again"))
        cached = imdb(1, data_dir=small_imdb, vocabulary=300, cache=cache)
    for part in ("train", "validation", "test"):
        a, b = getattr(made.splits, part), getattr(cached.splits, part)
        assert all(torch.equal(getattr(a, n), getattr(b, n)) for n in ("inputs", "targets", "lengths"))
    assert cached.embedding == made.embedding
    assert cached.class_names == made.class_names
    # another seed, vocabulary or file has its own entry; damaged entries are replaced
    imdb(2, data_dir=small_imdb, vocabulary=300, cache=cache)
    imdb(1, data_dir=small_imdb, vocabulary=290, cache=cache)
    assert len(list(cache.iterdir())) == 3
    file = folder / "encoded.safetensors"
    tensors, note = read_tensors(file)
    damage = (
        lambda: file.write_bytes(file.read_bytes()[:100]),
        lambda: write_tensors(file, tensors),
        lambda: write_tensors(file, tensors | {"ids": tensors["ids"][:-1]}, note),
        lambda: write_tensors(file, {name: x for name, x in tensors.items() if name != "sizes"}, note),
    )
    for change in damage:
        change()
        again = imdb(1, data_dir=small_imdb, vocabulary=300, cache=cache)
        assert torch.equal(again.splits.train.inputs, made.splits.train.inputs)
    os.utime(small_imdb / "imdb" / "test-00000-of-00001.parquet", (1, 1))
    imdb(1, data_dir=small_imdb, vocabulary=300, cache=cache)
    assert len(list(cache.iterdir())) == 4
    monkeypatch.setattr("sgpa.data.texts.imdb.IMDB_SIZES", (40, 8, 13))
    with pytest.raises(InputError, match="60 reviews instead of 61"):
        imdb(1, data_dir=small_imdb, cache=False)
    with pytest.raises(InputError, match="choose another `cache`"):
        imdb(1, data_dir=small_imdb, cache=write(tmp_path / "file", ""))


@needs_imdb
def test_imdb_counts_and_balance():
    tables = [pq.read_table(path) for path in sorted(DATA.glob("imdb/*.parquet"))]
    assert [table.num_rows for table in tables] == [25_000, 25_000]
    labels = [sum(table.column("label").to_pylist()) for table in tables]
    assert labels == [12_500, 12_500]
    texts, targets, classes = read_texts(DATA / "imdb" / "test-00000-of-00001.parquet")
    assert len(texts) == len(targets) == 25_000
    assert classes == ["0", "1"]


# words


def test_words_become_ids_and_characters():
    vocabulary = WordVocabulary.of([["the", "cat"], ["the", "dog"]])
    ids, lengths = vocabulary.encode([["the", "dog", "barks"], ["The", "cat"]])
    assert ids.tolist() == [[2, 4, 1], [1, 3, 0]]  # cased; unknown words are 1
    assert lengths.tolist() == [3, 2]
    assert len(vocabulary) == 5
    with pytest.raises(InputError, match="without words"):
        vocabulary.encode([["a"], []])
    spelled = characters(["é", "<S>", "long" * 9], max_characters=8)
    assert spelled[0].tolist() == [259, 0xC3 + 1, 0xA9 + 1, 260, 261, 261, 261, 261]
    assert spelled[1].tolist() == [259, 257, 260, 261, 261, 261, 261, 261]
    assert spelled[2].tolist() == [259, *(ord(c) + 1 for c in "longlo"), 260]


def test_texts_become_sentences():
    assert sentences('He said "go!" I went.<br /><br />Mr X?') == [
        ["he", "said", '"', "go", "!", '"'],
        ["i", "went", "."],
        ["mr", "x", "?"],
    ]
    assert sentences("a b c d e", max_words=2) == [["a", "b"], ["c", "d"], ["e"]]
    assert sentences("  ") == []


def test_words_and_punctuation_are_separated():
    assert tokenized("It's 1,000 well-known o'clocks... can't, cannot -- D’Arcy's?") == [
        *["it", "'s", "1,000", "well-known", "o'clocks", "...", "ca", "n't", ",", "can", "not", "--"],
        *["d'arcy", "'s", "?"],
    ]
    assert tokenized(" \n ") == []


@needs_cola
def test_tokens_equal_those_of_cola():
    raw, own = (cola(0, tokens=tokens, data_dir=DATA) for tokens in ("raw", "tokenized"))
    pairs = [(" ".join(a), list(b)) for a, b in zip(raw.train.rows, own.train.rows, strict=True)]
    differ = [text for text, tokens in pairs if tokenized(text) != tokens]
    assert len(differ) < len(pairs) / 300  # abbreviations and quotation marks


@needs_cola
@pytest.mark.parametrize(("tokens", "vocabulary", "longest"), [("raw", 7651, 42), ("tokenized", 5096, 44)])
def test_cola_counts_and_balance(tokens, vocabulary, longest):
    task = cola(0, tokens=tokens, data_dir=DATA)
    sizes = [len(part) for part in (task.train, task.validation, task.test, task.ood)]
    assert sizes == [7262, 500, COLA_TEST, 516]
    acceptable = torch.cat([task.train.labels, task.test.labels]).float().mean()
    assert abs(float(acceptable) - 0.704) < 5e-4
    assert task.embedding == {"vocabulary": vocabulary, "max_tokens": longest}
    assert set(task.validation.rows) <= set(task.train.rows)
    assert set(task.vocabulary.words) == {word for row in task.train.rows for word in row}


@needs_cola
def test_cola_splits_by_seed_and_holdout():
    first, again, other = (cola(seed, data_dir=DATA) for seed in (0, 0, 1))
    assert first.test.rows == again.test.rows != other.test.rows
    held = cola(0, holdout=1000, data_dir=DATA)
    assert [len(part) for part in (held.train, held.validation, held.test)] == [6262, 1000, COLA_TEST]
    assert held.test.rows == first.test.rows
    assert sorted(held.train.rows + held.validation.rows) == sorted(first.train.rows)
    with pytest.raises(ConfigError, match=r"holdout=-1.*tokens='bpe'"):
        cola(0, holdout=-1, tokens="bpe", data_dir=DATA)
    ids = first.splits().train
    assert ids.inputs.shape == (7262, 42)
    part = first.validation[torch.arange(20)]
    rows = first.dataset(part, lambda rows: torch.ones(len(rows), max(map(len, rows)), 3, 4))
    assert isinstance(rows.inputs, Words)
    assert rows.inputs.layers.dtype == torch.float16
    assert rows.inputs.ids.shape == rows.inputs.layers.shape[:2]


def test_missing_or_incomplete_cola_is_refused(tmp_path):
    with pytest.raises(InputError, match="cola"):
        cola(0, data_dir=tmp_path)
    for part in ("train", "validation_in_domain", "validation_out_of_domain"):
        parquet(tmp_path / "cola" / f"{part}-00000-of-00001.parquet", sentence=["a b"], label=[1])
    with pytest.raises(InputError, match="2 in-domain sentences instead of 9,078"):
        cola(0, data_dir=tmp_path)
    with pytest.raises(InputError, match="no column 'tokenized'"):
        cola(0, tokens="tokenized", data_dir=tmp_path)


def test_word_tokenizer_knows_words_that_occur_twice():
    tokenizer = train_word_tokenizer(["A good film, a good cast", "good. bad"])
    ids, lengths = encode(tokenizer, ["Good film", "a cast"])
    assert tokenizer.decode(ids[0].tolist()) == "good"
    unknown = tokenizer.token_to_id("<unk>")
    assert ids.tolist()[1][2] == unknown
    assert lengths.tolist() == [4, 4]
    with pytest.raises(ConfigError, match=r"vocabulary=4 \(allowed: 5 to 10000000\)"):
        train_word_tokenizer(["a a"], vocabulary=4)


def test_vocabulary_of_words_keeps_the_most_frequent():
    tokenizer = train_word_tokenizer(["a a a b b c c c"], vocabulary=6)
    assert tokenizer.get_vocab_size() == 6
    assert tokenizer.token_to_id("b") is None


def test_distinct_tokens_are_read_where_they_occur_first():
    tokenizer = train_word_tokenizer(["a b c a b c"])
    ids, lengths = encode(tokenizer, ["b a b a c b", "a a"], distinct=True)
    assert [tokenizer.id_to_token(i) for i in ids[0].tolist()] == ["<s>", "b", "a", "c", "</s>"]
    assert lengths.tolist() == [5, 3]
    cut, _ = encode(tokenizer, ["b a b a c b"], max_tokens=4, distinct=True)
    assert [tokenizer.id_to_token(i) for i in cut[0].tolist()] == ["<s>", "b", "a", "</s>"]


def test_pairs_of_words_are_tokens_where_they_are_asked_for():
    texts = ["not good at all", "Not good.", "good, not bad", "bad at all", "strange"]
    words = train_word_tokenizer(texts)
    tokenizer = add_pairs(words, texts)
    ids = known_pairs(tokenizer)
    assert {tokenizer.id_to_token(pair) for pair in ids.values()} == {"not good", "at all"}
    assert words.get_vocab().items() <= tokenizer.get_vocab().items()
    assert known_pairs(words) == {}

    def read(text, **options):
        return [tokenizer.id_to_token(i) for i in encode(tokenizer, [text], **options)[0][0].tolist()]

    assert read("NOT GOOD at all", distinct=True) == [
        "<s>",
        "not",
        "good",
        "not good",
        "at",
        "all",
        "at all",
        "</s>",
    ]
    assert read("not good not good", distinct=True) == ["<s>", "not", "good", "not good", "</s>"]
    assert read("good not strange good", distinct=True) == ["<s>", "good", "not", "<unk>", "</s>"]
    assert read("not good") == ["<s>", "not", "good", "</s>"]


def test_the_most_frequent_pairs_are_kept():
    texts = ["a b", "a b", "b c", "b c", "b c", "c d"]
    tokenizer = add_pairs(train_word_tokenizer([*texts, "d"]), texts, most=1)
    assert [tokenizer.id_to_token(i) for i in known_pairs(tokenizer).values()] == ["b c"]


def test_a_tokenizer_of_pieces_has_no_pairs():
    assert known_pairs(train_tokenizer(["a good film"] * 2, vocabulary=300)) == {}


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["1", "1.0", "10", "2.0"], ["1", "2", "10"]),  # as tables with gaps are written
        (["1.5", "10", "2.0", "2.0"], ["1.5", "2.0", "10"]),
        (["1.0", "good", "good", "1"], ["1", "1.0", "good"]),
    ],
)
def test_whole_numbers_are_one_class_however_they_are_written(tmp_path, labels, classes):
    path = write(
        tmp_path / "a.csv", "text,label\n" + "".join(f"words {i},{y}\n" for i, y in enumerate(labels))
    )
    _, targets, found = read_texts(path)
    assert found == classes
    assert len(targets) == len(labels)
