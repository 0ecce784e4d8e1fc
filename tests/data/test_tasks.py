"""The task of files is recognised by content, and what was written in any form is read back the same."""

import gzip
import random
import tempfile
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.reading import (
    Fault,
    Format,
    TextExample,
    read_examples,
    recognise,
    recognise_like,
    split_words,
)
from regard.errors import UserError

Rows = list[tuple[str, str]]
TAGS = ("DET", "NOUN", "VERB", "ADJ", "ADP", "PRON", "O", "B-PER", "I-PER")


def save(folder: Path, *contents: str, encoding: str = "utf-8") -> list[Path]:
    """Files whose names say nothing."""
    paths = [folder / f"data{number}" for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content.encode(encoding))
    return paths


def sides(pairs: list[TextExample]) -> Rows:
    return [(pair.source, pair.target) for pair in pairs]


def some_words(seed: int, count: int) -> list[str]:
    chosen = random.Random(seed)
    return ["".join(chosen.choices("abcdefghijklmnopqrstuvwxyz", k=chosen.randint(1, 9))) for _ in range(count)]


def sentences(seed: int, count: int = 60) -> Rows:
    """Random words with random tags."""
    chosen = random.Random(seed)
    rows = []
    for number in range(count):
        words = some_words(1000 * seed + number, chosen.randint(1, 12))
        rows.append((" ".join(words), " ".join(chosen.choices(TAGS, k=len(words)))))
    return rows


def texts(seed: int, count: int = 60, labels: tuple[str, ...] = ("good", "bad", "neither")) -> Rows:
    chosen = random.Random(seed)
    return [
        (" ".join(some_words(1000 * seed + number, chosen.randint(2, 9))), chosen.choice(labels))
        for number in range(count)
    ]


# ---- every form as a writer: rows to the contents of one or two files -----------------------------------------------

Writer = Callable[[Rows], tuple[str, ...]]


def column_writer(line: str, head: str = "") -> Writer:
    def write(rows: Rows) -> tuple[str, ...]:
        blocks = []
        for words, tags in rows:
            pairs = zip(words.split(" "), tags.split(" "), strict=True)
            blocks.append("".join(line.format(word=word, tag=tag) + "\n" for word, tag in pairs))
        return (head + "\n".join(blocks),)

    return write


def write_conllu(rows: Rows) -> tuple[str, ...]:
    """Every sentence with a comment, a token written for two words, and a word that is not written."""
    blocks = []
    for words, tags in rows:
        pairs = list(zip(words.split(" "), tags.split(" "), strict=True))
        lines = ["# text = " + words, "1-2\tab" + "\t_" * 8]
        for number, (word, tag) in enumerate(pairs, start=1):
            spaced = word.replace("\u00a0", " ")
            lines.append(f"{number}\t{spaced}\tlemma\t{tag}\tXX\t_\t0\troot\t_\t_")
        lines.append(f"{len(pairs)}.1\tunwritten\tlemma\tVERB" + "\t_" * 6)
        blocks.append("\n".join(lines) + "\n\n")
    return ("".join(blocks),)


def write_csv(header: str, order: str) -> Writer:
    return lambda rows: (header + "\n" + "".join(order.format(text=f'"{t}"', label=label) + "\n" for t, label in rows),)


def write_lines(order: str, header: str = "") -> Writer:
    return lambda rows: (header + "".join(order.format(text=text, label=label) + "\n" for text, label in rows),)


def write_aligned(rows: Rows) -> tuple[str, ...]:
    return "".join(f"{row[0]}\n" for row in rows), "".join(f"{row[1]}\n" for row in rows)


TAGGED: dict[str, tuple[str, Writer]] = {
    "two columns, tabs": ("columns", column_writer("{word}\t{tag}")),
    "two columns, blanks": ("columns", column_writer("{word} {tag}")),
    "four columns, blanks": ("columns", column_writer("{word} NNP I-NP {tag}", "-DOCSTART- -X- -X- O\n\n")),
    "three columns, comments": ("columns", column_writer("{word}\tx\t{tag}", "# id = 1\n#begin document (a);\n")),
    "CoNLL-U": ("conllu", write_conllu),
    "aligned": ("aligned", write_aligned),
}
LABELLED: dict[str, tuple[str, Writer]] = {
    "text, label": ("tsv", write_lines("{text}\t{label}")),
    "label, text": ("tsv", write_lines("{label}\t{text}")),
    "header": ("tsv", write_lines("{label}\t7\t{text}", "Sentiment\tid\tSentence\n")),
    "csv": ("csv", write_csv("text,label", "{text},{label}")),
    "csv, other names": ("csv", write_csv("was,wie", "{text},{label}")),
    "csv, label first": ("csv", write_csv("category;number;review", "{label};3;{text}")),
    "label and blank": ("labelled", write_lines("{label} {text}")),
    "aligned": ("aligned", write_aligned),
    "aligned, labels first": ("aligned", lambda rows: write_aligned(rows)[::-1]),
}


@pytest.mark.parametrize("between", "-_")
def test_spans_of_many_types_are_recognised_with_either_separator(tmp_path: Path, between: str) -> None:
    """300 types are too many for labels: their prefixes alone say that these are tags."""
    rows = [(" ".join(some_words(i, 2)), f"B{between}type{i} I{between}type{i}") for i in range(300)]
    paths = save(tmp_path, *TAGGED["two columns, blanks"][1](rows))
    assert recognise(paths).task == "tag"
    assert sides(list(read_examples(paths))) == rows


@pytest.mark.parametrize("name", TAGGED)
@pytest.mark.parametrize("packed", [False, True])
def test_tagged_sentences_are_recognised(tmp_path: Path, name: str, packed: bool) -> None:
    kind, write = TAGGED[name]
    rows = sentences(1)
    paths = save(tmp_path, *write(rows))
    if packed:
        for path in paths:
            path.write_bytes(gzip.compress(path.read_bytes()))
    form = recognise(paths)
    assert (form.task, form.kind) == ("tag", kind)
    assert sides(list(read_examples(paths))) == rows


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("count", [40, 3_000])
def test_labelled_texts_are_recognised(tmp_path: Path, name: str, count: int) -> None:
    kind, write = LABELLED[name]
    rows = texts(2, count)
    paths = save(tmp_path, *write(rows))
    form = recognise(paths)
    assert (form.task, form.kind) == ("classify", kind)
    assert sides(list(read_examples(paths))) == rows


def test_a_file_sorted_by_its_labels_is_recognised(tmp_path: Path) -> None:
    rows = sorted(texts(3, 5_000), key=lambda row: row[1])
    for name in ("text, label", "label, text", "label and blank", "aligned"):
        paths = save(tmp_path, *LABELLED[name][1](rows))
        assert recognise(paths).task == "classify"
        assert sides(list(read_examples(paths))) == rows


def test_what_looks_alike_stays_a_pair(tmp_path: Path) -> None:
    chosen = random.Random(0)
    digits = [" ".join(chosen.choices("0123456789", k=chosen.randint(2, 6))) for _ in range(300)]
    reversed_digits = "".join(f"{row[::-1]}\n" for row in digits)
    pairs = {
        "turned round, aligned": ("".join(f"{row}\n" for row in digits), reversed_digits),
        "turned round": ("".join(f"{row}\t{row[::-1]}\n" for row in digits),),
        "one pair often": ("abc\ta b c\n" * 400,),
        "few of both": ("".join(f"{chosen.choice('abc')}\t{chosen.choice('xyz')}\n" for _ in range(300)),),
        "blocks of pairs": ("".join(f"{word}\t{word[::-1]}\n\n" for word in some_words(1, 300)),),
        "single words": ("".join(f"{word}\n" for word in some_words(2, 300)), reversed_digits),
        "header": ("source\ttarget\n" + "".join(f"{word}\t{chosen.choice('01')}\n" for word in some_words(3, 100)),),
    }
    for name, contents in pairs.items():
        assert recognise(save(tmp_path, *contents)).task == "convert", name
    apart = "".join(f"{word}\t{chosen.choice('xy')}\n\n" for word in some_words(4, 300))
    assert recognise(save(tmp_path, apart)).task == "classify", "a blank line after every line makes no sentences"


SENTENCES = (
    "A man in a hat walks by the water.",
    "The dog runs after a man in the park.",
    "Two men talk about the weather by a car.",
    "In the street a dog barks at two men.",
    "A woman reads the news in a cafe.",
)


def test_running_text_is_recognised_and_read_exactly(tmp_path: Path) -> None:
    prose = "".join(f"{random.Random(number).choice(SENTENCES)}\n" for number in range(400))
    verse = "  Speaker:\nNow is the winter \n\n\nof our discontent,\tmade\n" * 50 + "the end"
    for text in (prose, verse, "x" * 200_000 + "\ny, z\nw, v\n"):
        paths = save(tmp_path, text)
        assert recognise(paths) == recognise(paths, "continue") == recognise(paths * 3)
        assert recognise(paths).task == "continue"
        assert [(pair.source, pair.line) for pair in read_examples(paths)] == [
            (line, number) for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1)
        ]
    # Two files are taken for line-aligned ones unless the task says otherwise.
    assert recognise(paths * 2).task == "convert"
    pairs = list(read_examples(paths * 2, form=recognise(paths * 2, "continue")))
    assert len(pairs) == 6
    assert {pair.target for pair in pairs} == {""}


def test_a_given_task_decides(tmp_path: Path) -> None:
    few_rows = save(tmp_path, "not bad\tyes\nso so\tno\nvery good\tyes\n")
    assert recognise(few_rows).task == "convert"
    assert recognise(few_rows, "classify").target == 1
    few_labels = save(tmp_path, "1 a b\n0 a c\n1 d e\n0 f g\n")
    assert recognise(few_labels).task == "continue"
    assert sides(list(read_examples(few_labels, form=recognise(few_labels, "classify"))))[0] == ("a b", "1")
    one_sentence = save(tmp_path, "Rain\tNOUN\nfell\tVERB\n")
    assert recognise(one_sentence).task == "convert"
    assert sides(list(read_examples(one_sentence, form=recognise(one_sentence, "tag")))) == [("Rain fell", "NOUN VERB")]
    two_lines = save(tmp_path, "Rain fell\nIt stopped\n", "NOUN VERB\nPRON VERB\n")
    assert [recognise(two_lines, task).task for task in (None, "tag", "classify", "convert")] == [
        *("convert", "tag", "classify", "convert")
    ]
    labelled = save(tmp_path, *LABELLED["text, label"][1](texts(4)))
    assert recognise(labelled, "convert").task == "convert"
    assert recognise(labelled, "continue").kind == "text"


@pytest.mark.parametrize(
    ("contents", "task", "message"),
    [
        (("one\ntwo\n",), "convert", "does not hold pairs: expected source<TAB>target"),
        (("one\ntwo\n",), "tag", "does not hold tagged sentences: expected a word and its tag"),
        (("one\ntwo\n",), "classify", "does not hold labelled texts: expected text<TAB>label"),
        (("a b\nc d\n", "x\ny\n"), "tag", "does not hold tagged sentences"),
        (("a\tb\tc\nd\te\tf\n",), "classify", "expected text and label, found 3 columns"),
        (("a\tb\n",), "translate", r"Unknown task 'translate'; choose one of convert, tag, classify, continue"),
        (("a\tb\nc\td\n", "a b\nc d\n", "a\tb\n"), None, "data1 does not hold pairs"),
    ],
)
def test_what_does_not_suit_the_task_is_refused(
    tmp_path: Path, contents: tuple[str, ...], task: str | None, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        recognise(save(tmp_path, *contents), task)
    assert "\n" not in str(caught.value)


def test_more_files_are_read_as_the_first(tmp_path: Path) -> None:
    """A few lines say nothing about which column is the label; a larger file does."""
    (first,) = save(tmp_path, *LABELLED["label, text"][1](texts(5)))
    form = recognise([first])
    first.write_text("a\tb\n")
    assert sides(list(read_examples([first], form=recognise_like([first], form)))) == [("b", "a")]
    form = Format("labelled", 2, "", (1,), 0, task="classify")
    first.write_text("a b c\nd e f\ng h i\n")
    assert recognise_like([first], form).kind == "labelled"
    first.write_text("a b c\nd e\nf\n")
    form = Format("aligned", 1, "", task="tag")
    with pytest.raises(UserError, match="tagged"):
        recognise_like([first], form)
    first.write_text("A\tB-x\nb\tI-x\n\nc\tO\nd\tO\n")
    assert recognise_like([first], form).kind == "columns"  # another form of the same task
    first.write_text("")
    with pytest.raises(UserError, match="empty"):
        recognise_like([first], form)


# ---- faults ---------------------------------------------------------------------------------------------------------

COLUMNS = "A\tB-x\nb\tI-x\n\nc\tO\nd\tO\n\n" * 5
TEN = "1\tA\ta\tDET\t_\t_\t_\t_\t_\t_\n2\tb\tb\tNOUN\t_\t_\t_\t_\t_\t_\n\n" * 10
BLANKS = "A x O\nb y O\n\n" * 20
TWO = "".join(f"{label} {text}\n" for text, label in texts(6))
TABS = "".join(f"{label}\t{text}\n" for text, label in texts(6))
FAULTS = [
    (COLUMNS + "e\tO\nf\ng\tO\n\nh\tO\n", 32, "wrong number of columns", 11),
    (COLUMNS + "e\tO\nf\t\n\nh\tO\n", 32, "empty tags", 11),
    (COLUMNS + "e\tO\n\tO\n\nh\tO\n", 32, "empty words", 11),
    (COLUMNS + "#tag\n\nh\tO\n", 31, "wrong number of columns", 11),
    (COLUMNS + "e\tO\n\xff\tO\n\nh\tO\n", 32, "not valid UTF-8", 11),
    (BLANKS + "c z\n\nd w O\n", 61, "wrong number of columns", 21),
    (TEN + "1\tc\tc\tNOUN\n\n", 31, "wrong number of columns", 10),
    (TEN + "1\tc\tc\t_\t_\t_\t_\t_\t_\t_\n\n", 31, "empty tags", 10),
    (TEN + "x\tc\tc\tNOUN\t_\t_\t_\t_\t_\t_\n\n", 31, "words without a number", 10),
    (TWO + "good\n", 61, "empty texts", 60),
    (TWO + " fine\n", 61, "empty labels", 60),
    (TABS + "good\t \n", 61, "empty texts", 60),
]


@pytest.mark.parametrize(("content", "line", "kind", "left"), FAULTS, ids=[f"{f[2]}-{i}" for i, f in enumerate(FAULTS)])
def test_a_fault_is_named_and_its_sentence_left_out(
    tmp_path: Path, content: str, line: int, kind: str, left: int
) -> None:
    (path,) = save(tmp_path, content, encoding="latin-1")
    faults: list[Fault] = []
    pairs = list(read_examples([path], faults.append))
    assert [(fault.file, fault.line, fault.kind) for fault in faults] == [(str(path), line, kind)]
    assert len(pairs) == left
    with pytest.raises(UserError, match=f"data0:{line}: "):
        list(read_examples([path]))


def test_unequal_numbers_of_words_and_tags(tmp_path: Path) -> None:
    words, tags = write_aligned(sentences(7))
    paths = save(tmp_path, words + "a b c\nd\n", tags + "O O\nO\n")
    faults: list[Fault] = []
    assert len(list(read_examples(paths, faults.append))) == 61
    assert [(fault.file, fault.line, fault.kind) for fault in faults] == [
        (str(paths[1]), 61, "unequal numbers of words and tags")
    ]
    assert "2 tags for 3 words" in faults[0].what
    labels = write_aligned(texts(8))
    paths = save(tmp_path, labels[0] + "a b\nc d\n", labels[1] + "\ngood\n")
    faults.clear()
    list(read_examples(paths, faults.append))
    assert [(fault.file, fault.line, fault.kind) for fault in faults] == [(str(paths[1]), 61, "empty labels")]


# ---- particulars ----------------------------------------------------------------------------------------------------


def test_words_that_look_like_comments_are_words(tmp_path: Path) -> None:
    (path,) = save(tmp_path, "# sentence 1\n#tag\tO\n#\tO\n-\tO\n\n-DOCSTART-\tO\n\nEU\tB-ORG\nsays\tO\n")
    assert sides(list(read_examples([path]))) == [("#tag # -", "O O O"), ("EU says", "B-ORG O")]
    assert [pair.line for pair in read_examples([path])] == [2, 8]


def test_blanks_in_a_word_and_other_columns(tmp_path: Path) -> None:
    rows = [("10\u00a0000 men", "NUM NOUN"), ("it\u3000rains\u00a0", "PRON")]
    paths = save(tmp_path, *write_conllu(rows))
    form = recognise(paths)
    assert sides(list(read_examples(paths))) == [rows[0], ("it\u3000rains\u00a0".rstrip("\u00a0"), "PRON")]
    assert [len(split_words(pair.source)) for pair in read_examples(paths)] == [2, 1]
    assert [pair.target for pair in read_examples(paths, form=replace(form, target=4))] == ["XX XX", "XX"]


def test_other_encodings(tmp_path: Path) -> None:
    rows = [(f"{text} café", label) for text, label in texts(9)]
    paths = save(tmp_path, *LABELLED["label and blank"][1](rows), encoding="latin-1")
    assert recognise(paths, encoding="latin-1").task == "classify"
    assert sides(list(read_examples(paths, encoding="latin-1"))) == rows
    with pytest.raises(UserError, match=r"not UTF-8 text.*data\.encoding"):
        recognise(paths)
    paths = save(tmp_path, "\x81 x\n", encoding="latin-1")
    with pytest.raises(UserError, match="not cp1252 text"):
        recognise(paths, encoding="cp1252")
    paths[0].write_bytes(b"a\tb\nc\t\x81\n")
    with pytest.raises(UserError, match=r"data0:2: byte 3 \(0x81\) is not valid cp1252"):
        list(read_examples(paths, encoding="cp1252"))
    for wrong in ("utf-16", "rot13", "klingon", "zlib", "utf-7", ""):
        with pytest.raises(UserError, match="encoding"):
            list(read_examples(paths, encoding=wrong))


# ---- whatever is written is read back -------------------------------------------------------------------------------

letters = st.characters(codec="utf-8", exclude_categories=("Cc", "Zs", "Zl", "Zp"))
word = st.text(letters, min_size=1, max_size=8).filter(
    lambda word: word[0] not in "\ufeff-#<"
)  # a mark, -DOCSTART-, a comment
tag = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=6).filter("_".__ne__)
sentence = st.lists(st.tuples(word, tag), min_size=1, max_size=6)


def normal(text: str) -> str:
    return unicodedata.normalize("NFC", text)


@settings(max_examples=40, deadline=None)
@given(found=st.lists(sentence, min_size=1, max_size=6))
def test_tagged_sentences_round_trip(found: list[list[tuple[str, str]]]) -> None:
    rows = [(" ".join(w for w, _ in row), " ".join(t for _, t in row)) for row in found]
    expected = [(normal(words), tags) for words, tags in rows]
    with tempfile.TemporaryDirectory() as folder:
        for kind, write in TAGGED.values():
            known = recognise(save(Path(folder), *write(sentences(11))))  # the form comes from a file that tells it
            assert known.kind == kind
            paths = save(Path(folder), *write(rows))
            assert sides(list(read_examples(paths, form=known))) == expected


line = st.text(st.characters(codec="utf-8", exclude_characters="\0\n\r"), max_size=20)


@settings(max_examples=50, deadline=None)
@given(lines=st.lists(line, min_size=1, max_size=10))
def test_text_round_trips(lines: list[str]) -> None:
    if not any(normal(line).strip() for line in lines) or lines[0].startswith("\ufeff"):
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = save(Path(folder), "".join(f"{line}\n" for line in lines))
        form = Format("text", 1, "plain text", task="continue")
        assert [pair.source for pair in read_examples(paths, form=form)] == list(map(normal, lines))


text = st.lists(word, min_size=1, max_size=6).map(" ".join)
label = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='",;'), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(text, label), min_size=1, max_size=8), name=st.sampled_from(sorted(LABELLED)))
def test_labelled_texts_round_trip(rows: Rows, name: str) -> None:
    rows = [(normal(text).replace('"', "'").strip(), label) for text, label in rows]
    if any(not text or "\ufeff" in text for text, _ in rows):
        return
    kind, write = LABELLED[name]
    with tempfile.TemporaryDirectory() as folder:
        known = recognise(save(Path(folder), *write(texts(10))))  # the form comes from a file that tells it
        paths = save(Path(folder), *write(rows))
        assert known.kind == kind
        assert sides(list(read_examples(paths, form=known))) == rows
