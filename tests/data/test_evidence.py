"""The evidence that recognition rests on: bytes, pieces of long lines, far lines, headers, columns; and how often it is right."""

import builtins
import gzip
import importlib
import io
from pathlib import Path

import pytest

from regard.data import standard_input
from regard.data.columns import header_evidence, parse_columns
from regard.data.format import few
from regard.data.lines import Fault, count_lines, read_text
from regard.data.reading import read_examples, recognise, recognise_like
from regard.errors import UserError, shell

TEXT = "one\ttwo\nthree\tfour\u2028five\n\nsix\tseven"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("packed", [False, True])
def test_lines_are_the_same_in_every_encoding_and_with_every_line_end(
    tmp_path: Path, encoding: str, ends: str, packed: bool
) -> None:
    content = (TEXT * 2000).replace("\n", ends).encode(encoding)  # longer than a block
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(content) if packed else content)
    expected = (TEXT * 2000).split("\n")
    assert [line for _, line in read_text(path)] == expected
    assert count_lines(path) == len(expected)


def test_a_text_of_one_line_is_read_in_pieces_that_hold_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "text8"
    for size in (500, 5_000, 3_000_000):
        text = " ".join(f"word{number}" for number in range(size // 7))
        path.write_text(text)
        pieces = [example.source for example in read_examples([path])]
        assert " ".join(pieces) == text
        assert len(pieces) >= 2
        assert max(map(len, pieces)) <= max(401, 2 * 4096 + 8)
    path.write_text("x" * 300_000)  # no blank to cut at
    assert [len(example.source) for example in read_examples([path])] == [300_000]


def test_labels_are_at_least_two_that_occur_several_times() -> None:
    assert few(["a", "b"] * 10)
    assert not few(["a"] * 100)
    assert not few([*["a"] * 99, "b"])
    assert not few([str(number) for number in range(100)])
    assert few(["O"] * 30, least=1)


@pytest.mark.parametrize(
    ("first", "rows", "header"),
    [
        (["text", "label"], [["a b", "x"], ["c d", "y"]], True),
        (["was", "wie"], [["a b", "x"], ["c d", "y"]] * 15, True),
        (["a c", "x"], [["a b", "x"], ["c d", "y"]] * 15, False),
        (["nummer", "wort"], [[str(i), "ab"] for i in range(9)], True),
        (["7", "wort"], [[str(i), "ab"] for i in range(9)], False),
        (["cat", "chat"], [["dog", "chien"], ["hen", "poule"]] * 9, False),
        (["form", "laut"], [["ab", "A B"], ["cd", "C D"]] * 15, True),
        (["text", "text"], [["ab", "A B"], ["cd", "C D"]] * 15, False),
    ],
)
def test_the_first_line_is_a_header_only_by_evidence(first: list[str], rows: list[list[str]], header: bool) -> None:
    assert bool(header_evidence(first, rows)) is header


@pytest.mark.parametrize("header", ["", "text\tmark\n", "note\tscore\n"])
@pytest.mark.parametrize("turned", [False, True])
def test_of_two_columns_that_vary_the_numbers_answer_the_texts(tmp_path: Path, header: str, turned: bool) -> None:
    """Each number is another one, so neither column repeats as labels do; the numbers are the answers all the same."""
    rows = [header.strip().split("\t")] if header else []
    rows += [[f"a text of {i} words", f"{i / 7:.3f}"] for i in range(40)]
    path = tmp_path / "measured.tsv"
    path.write_text("".join("\t".join(row[::-1] if turned else row) + "\n" for row in rows))
    form = recognise([path], "classify")
    first = next(iter(read_examples([path], form=form)))
    assert (first.source, first.target) == ("a text of 0 words", "0.000")
    assert form.why in ("by their names", f"column {2 - turned} has numbers in 40 rows")


def test_columns_are_named_or_numbered() -> None:
    assert parse_columns("source=2,target=4") == (("2",), "4", None)
    assert parse_columns("text=a+b, label=c") == (("a", "b"), "c", "classify")
    assert parse_columns("text=a") == (("a",), None, None)
    for wrong in ("", "2,4", "source", "target=2", "source=,target=1", "from=1,to=2"):
        with shell(), pytest.raises(UserError, match="--columns"):
            parse_columns(wrong)


def test_joined_columns_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,context,answer\n" + 'who,"Ann, Bob",Ann\nwhen,now,never\n' * 4)
    form = recognise([path], columns="source=context+question,target=answer")
    assert next(read_examples([path], form=form)).source == "Ann, Bob ||| who"
    other = tmp_path / "b.csv"
    other.write_text("answer,question,context\nyes,what,this\n")  # columns in another order
    found = list(read_examples([other], form=recognise_like([other], form)))
    assert [(example.source, example.target) for example in found] == [("this ||| what", "yes")]


def test_parquet_without_pyarrow_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1" + b"\0" * 20)

    def missing(name: str, *rest: object) -> object:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return builtins.__import__(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UserError, match=r'expected the package pyarrow.*Try pip install "regard\[parquet\]"'):
        recognise([path])


def test_standard_input_is_written_to_a_file_that_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Pipe(io.TextIOWrapper):
        def isatty(self) -> bool:
            return False

    monkeypatch.setattr("sys.stdin", Pipe(io.BytesIO(b"a\tb\n")))
    with standard_input.spooled(["x", "-"], []) as (paths, others):
        assert (paths[0], others) == ("x", [])
        spool = Path(paths[1])
        assert spool.read_bytes() == b"a\tb\n"
        stays = standard_input.kept(paths[1], tmp_path)
    assert not spool.exists()
    assert stays.read_bytes() == b"a\tb\n"
    with pytest.raises(UserError, match="once"), standard_input.spooled(["-"], ["-"]):
        pass


def test_faults_of_records_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "a b", "label": 1}\n' * 20 + '{"text": "", "label": 1}\nnone\n{"label": 2}\n')
    faults: list[Fault] = []
    assert len(list(read_examples([path], faults.append))) == 20
    assert [(fault.line, fault.kind) for fault in faults] == [
        *((21, "empty texts"), (22, "not valid JSON"), (23, "missing fields"))
    ]
