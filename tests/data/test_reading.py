"""Pairs are read from every form, gzipped or not, and each fault is named where it stands."""

import csv
import gzip
import io
import tempfile
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import lines
from regard.data.reading import Example, Fault, TextExample, read_examples, read_lines, recognise
from regard.errors import UserError, shell


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sides(pairs: list[TextExample]) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in pairs]


FORMS = [
    ("tsv", "a b\tc\nd\te f\n", [("a b", "c"), ("d", "e f")], "tsv"),
    ("tsv with a header", "id\ttgt\tsrc\n1\tc\ta\n2\te\td\n", [("a", "c"), ("d", "e")], "tsv"),
    ("inflection", "walk\tV;PST\twalked\ngo\tV;PRS\tgo\n", [("walk\tV;PST", "walked"), ("go\tV;PRS", "go")], "tsv"),
    (
        "inflection, features last",
        "walk\twalked\tV;PST\nGO\tGO\tV;PRS\n",
        [("walk\tV;PST", "walked"), ("GO\tV;PRS", "GO")],
        "tsv",
    ),
    (
        "inflection, features last, all in capitals",
        "Haus\tHäuser\tN;NOM(PL)\nBaum\tBäume\tN;NOM(PL)\n",
        [("Haus\tN;NOM(PL)", "Häuser"), ("Baum\tN;NOM(PL)", "Bäume")],
        "tsv",
    ),
    (
        "inflection, single features last",
        "Haus\tHäuser\tPl\nBaum\tBäume\tPl\nTag\tTage\tPl\nTor\tTore\tPl\n",
        [("Haus\tPl", "Häuser"), ("Baum\tPl", "Bäume"), ("Tag\tPl", "Tage"), ("Tor\tPl", "Tore")],
        "tsv",
    ),
    (
        "inflection, small features",
        "go\twent\tv;pst\nbe\twas\tv;pst\n",
        [("go\tv;pst", "went"), ("be\tv;pst", "was")],
        "tsv",
    ),
    ("inflection of 2016", "go\tpos=V,tense=PST\twent\n", [("go\tpos=V,tense=PST", "went")], "tsv"),
    ("attribution", "Go.\tVa !\tCC-BY 2.0 x\nHi.\tSalut.\tCC-BY 2.0 y\n", [("Go.", "Va !"), ("Hi.", "Salut.")], "tsv"),
    ("csv", 'source,target\n"a, b",c\nd,"e ""f"""\n', [("a, b", "c"), ("d", 'e "f"')], "csv"),
    ("csv by name", "n,output,input\n1,c,a\n2,e,d\n", [("a", "c"), ("d", "e")], "csv"),
    ("csv other names", "word,sound\na,c\nd,e\n", [("a", "c"), ("d", "e")], "csv"),
    ("csv semicolons", "src;tgt\na,1;c\nd;e\n", [("a,1", "c"), ("d", "e")], "csv"),
    ("csv over lines", 'src,tgt\n"a\nb",c\nd,e\n', [("a b", "c"), ("d", "e")], "csv"),
    ("dictionary", ";;; note\nREAD  R IY D\nREAD(1)  R EH D\n", [("READ", "R IY D"), ("READ", "R EH D")], "dictionary"),
]


@pytest.mark.parametrize(("name", "content", "expected", "kind"), FORMS, ids=[form[0] for form in FORMS])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("packed", [False, True])
def test_every_form(
    tmp_path: Path,
    name: str,
    content: str,
    expected: list[tuple[str, str]],
    kind: str,
    ends: str,
    mark: str,
    packed: bool,
) -> None:
    data = (mark + content.replace("\n", ends)).encode()
    # The name says nothing: the form and the packing are recognised by content.
    path = write(tmp_path, "data", gzip.compress(data) if packed else data)
    assert recognise([path]).kind == kind
    assert sides(list(read_examples([path]))) == expected


def test_quoted_line_breaks_of_a_csv_file_with_other_names(tmp_path: Path) -> None:
    content = 'word,sound\n"a\n\nb",c\n"d\nf","e, ""g"""\n'
    assert sides(list(read_examples([write(tmp_path, "data.csv", content)]))) == [("a  b", "c"), ("d f", 'e, "g"')]
    text = 'Well, he said.\n"Come in.\nSit down.\nNo, stay.\n'
    assert recognise([write(tmp_path, "text", text)]).kind == "text"


def test_aligned(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a", "one, two\nthree, four\n"), write(tmp_path, "b", "eins\nzwei")]
    assert recognise(paths).kind == "aligned"
    assert list(read_examples(paths)) == [
        Example("one, two", "eins", str(paths[0]), 1),
        Example("three, four", "zwei", str(paths[0]), 2),
    ]
    # A side of lemmas and features looks like pairs by itself; its partner shows that it is one side.
    paths = [write(tmp_path, "c", "walk\tV;PST\n"), write(tmp_path, "d", "walked\n")]
    assert sides(list(read_examples(paths))) == [("walk\tV;PST", "walked")]


def test_several_files_of_one_form(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a", "a\tb\n"), write(tmp_path, "b", "c\td\n"), write(tmp_path, "c", "e\tf\n")]
    assert [(pair.source, Path(pair.file).name, pair.line) for pair in read_examples(paths)] == [
        ("a", "a", 1),
        ("c", "b", 1),
        ("e", "c", 1),
    ]


def test_text_is_normalised_and_other_line_separators_are_text(tmp_path: Path) -> None:
    path = write(tmp_path, "a", "cafe\u0301\tx\u2028y\x0bz\n")
    assert sides(list(read_examples([path]))) == [("café", "x\u2028y\x0bz")]


def test_half_a_surrogate_pair_in_json_is_a_damaged_character(tmp_path: Path) -> None:
    path = write(tmp_path, "a.jsonl", '{"source": "a \\ud83d b", "target": "c \\udc00"}\n')
    assert sides(list(read_examples([path]))) == [("a \ufffd b", "c \ufffd")]


REFUSED = [
    ([], "No data file"),
    (["missing"], "no such file"),
    (["folder"], "folder"),
    (["empty"], "empty"),
    (["blank"], "empty"),
    (["binary"], "binary"),
    (["latin"], "not UTF-8"),
    (["cut.gz"], "damaged gzip"),
    (["flipped.gz"], "damaged gzip"),
    (["lines.tsv"], "does not hold pairs"),
    (["bad.csv"], "does not hold pairs"),
    (["wide"], 'expected source and target, found 5 columns ."a", "b", "c", "d", "e".*Try --columns source=1,target=2'),
    (["three"], "found 3 columns.* or name two of them source and target in the first line\\.$"),
    (["three.csv"], "found 3 columns .word:.* Try --columns source=word,target=ipa\\.$"),
    (["tsv", "dictionary"], "different formats"),
    (["tsv", "tsv", "lines"], "lines does not hold pairs"),
]


@pytest.mark.parametrize(
    ("names", "message"), REFUSED, ids=lambda value: "-".join(value) if isinstance(value, list) else ""
)
def test_what_is_not_pairs_is_refused_in_one_sentence(tmp_path: Path, names: list[str], message: str) -> None:
    (tmp_path / "folder").mkdir()
    packed = bytearray(gzip.compress(b"a\tb\n" * 10_000 + bytes(range(32, 127)) * 40))
    for name, content in {
        "empty": b"",
        "blank": b"\n \n\n",
        "binary": bytes(range(256)) * 20,
        "latin": "café\té\nété\tà\n".encode("latin-1"),
        "cut.gz": bytes(packed[:-20]),
        "flipped.gz": bytes(packed[:-8]) + b"\0\0\0\0" + bytes(packed[-4:]),
        "lines": b"one\ntwo\n",
        "lines.tsv": b"one\ntwo\n",
        "bad.csv": b"one\ntwo\n",
        "wide": b"a\tb\tc\td\te\n",
        "three": b"aa\taa\ta a\nba\tab\ta b\n",
        "three.csv": b"word,ipa,sound\naa,a a,A A\nab,a b,A B\n",
        "tsv": b"a\tb\n",
        "dictionary": b"A  B C\n",
    }.items():
        write(tmp_path, name, content)
    with shell(), pytest.raises(UserError, match=message) as caught:
        list(read_examples([tmp_path / name for name in names]))
    assert "\n" not in str(caught.value)
    assert not names or any(name in str(caught.value) for name in names)


FAULTS = [
    ("a\tb\n\xffc\td\n", 2, "not valid UTF-8"),
    ("a\tb\nc\td\ne\0\tf\n", 3, "NUL characters"),
    ("a\tb\n\nc\td\te\n", 3, "wrong number of columns"),
    ("a\tb\nc\n", 2, "wrong number of columns"),
    ("a\tb\nc\t \n", 2, "empty sides"),
    ("a\tb\n\tc\n", 2, "empty sides"),
    ("a\tb\n\n \t \nc\td\n", 3, "empty sides"),
    ('word,sound\na,b\n"c,d\n' + "e,f\n" * 20, 3, "not valid CSV"),
    ('source,target\n"a\nb",c\nd\n', 4, "wrong number of columns"),
    ('source,target\na,b\n"c,d\n', 3, "not valid CSV"),
    ("source,target\n\n,b\n", 3, "empty sides"),
    ('source,target\n"a\n\xff\nb",c\n,d\n', 3, "not valid UTF-8"),
    ("A  B C\n" * 20 + "D E\n", 21, "wrong number of columns"),
]


@pytest.mark.parametrize(("content", "line", "kind"), FAULTS)
def test_a_fault_is_named_by_file_and_line(tmp_path: Path, content: str, line: int, kind: str) -> None:
    path = write(tmp_path, "data", content.encode("latin-1"))
    faults: list[Fault] = []
    list(read_examples([path], faults.append))
    assert (faults[0].file, faults[0].line, faults[0].kind) == (str(path), line, kind)
    with pytest.raises(UserError, match=f"data:{line}: "):
        list(read_examples([path]))


ALIGNED_FAULTS = [
    ("a\nb\n", "c\n\n", "target", 2, "empty sides"),
    ("a\n\n", "c\nd\n", "source", 2, "empty sides"),
    ("a\nb\n", "c\n\xff\n", "target", 2, "not valid UTF-8"),
    ("a\nb\nc\nd\n", "e\nf\n", "source", 3, "unequal line counts"),
    ("a\nb\n", "c\nd\ne\n", "target", 3, "unequal line counts"),
]


@pytest.mark.parametrize(("source", "target", "file", "line", "kind"), ALIGNED_FAULTS)
def test_a_fault_in_aligned_files_is_named_in_its_own(
    tmp_path: Path, source: str, target: str, file: str, line: int, kind: str
) -> None:
    paths = [write(tmp_path, "source", source.encode("latin-1")), write(tmp_path, "target", target.encode("latin-1"))]
    faults: list[Fault] = []
    list(read_examples(paths, faults.append))
    assert [(Path(fault.file).name, fault.line, fault.kind) for fault in faults] == [(file, line, kind)]


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
    path = write(tmp_path, "a", b"a\tb\n" + b"x" * 2000)
    with pytest.raises(UserError, match=r"a:2: .* longer"):
        list(read_lines(path))


def test_reading_streams(tmp_path: Path) -> None:
    """The first pair comes before the rest is read: a fault at the end is not yet known."""
    path = write(tmp_path, "a", "a\tb\n" * 5_000 + "broken\n")
    pairs = read_examples([path])
    assert next(pairs).line == 1
    with pytest.raises(UserError, match=":5001: "):
        list(pairs)


text = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=20).filter(str.strip)


@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(text, text), min_size=1, max_size=10))
def test_tsv_and_csv_round_trip_and_gzip_changes_nothing(rows: list[tuple[str, str]]) -> None:
    expected = [tuple(unicodedata.normalize("NFC", side).strip() for side in row) for row in rows]
    table = io.StringIO()
    csv.writer(table).writerows([("source", "target"), *rows])
    contents = ["source\ttarget\n" + "".join(f"{source}\t{target}\n" for source, target in rows), table.getvalue()]
    with tempfile.TemporaryDirectory() as folder:
        for content in contents:
            plain = write(Path(folder), "plain", content)
            packed = write(Path(folder), "packed", gzip.compress(content.encode()))
            assert sides(list(read_examples([plain]))) == sides(list(read_examples([packed]))) == expected
