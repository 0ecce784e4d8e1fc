"""The report names every planted fault of every task, and its figures agree with a plain count."""

import gzip
import random
from pathlib import Path

import numpy as np

from regard.data.check import DataReport, Part, check_parts
from regard.data.reading import read_examples
from regard.data.recognition import recognise, recognise_like


def check_pairs(
    paths: list[Path], test_paths: list[Path] | None = None, task: str | None = None, encoding: str = "utf-8"
) -> DataReport:
    form = recognise(paths, task, encoding)
    test = [Part("test", test_paths, recognise_like(test_paths, form, encoding))] if test_paths else []
    return check_parts(
        Part("training", paths, form), test, encoding,
        lambda paths, form, report, encoding: read_examples(paths, report, form, encoding),
    )  # fmt: skip


def words(generator: random.Random, number: int) -> str:
    return " ".join("".join(generator.choices("abcdefghij", k=generator.randint(2, 8))) for _ in range(number))


def corpus(seed: int, size: int) -> list[tuple[str, str]]:
    generator = random.Random(seed)
    return [(words(generator, number), words(generator, number)) for number in generator.choices(range(3, 9), k=size)]


def save(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return path


def test_planted_faults(tmp_path: Path) -> None:
    rows = corpus(0, 100)
    rows[10] = (rows[10][0], "x" * 3_000)  # also out of proportion
    rows[20] = (words(random.Random(1), 12), "x")
    rows[30] = (rows[30][0], "a\x07b c d e")
    rows[40] = ("a b \ufffd c d", rows[40][1])
    rows[50] = (rows[50][0], "")
    rows[61] = rows[60]
    rows[62] = (rows[60][0], rows[62][1])  # the same source with another target is no duplicate
    train = save(tmp_path / "train.tsv", rows)
    test = save(tmp_path / "test.tsv", [*corpus(5, 20), rows[70], (rows[71][0], "another target")])
    report = check_pairs([train], [test])
    found = {(Path(fault.file).name, fault.line, fault.kind) for fault in report.faults}
    assert found == {
        ("train.tsv", 11, "unusual lengths"),
        ("train.tsv", 11, "unusual length ratios"),
        ("train.tsv", 21, "unusual length ratios"),
        ("train.tsv", 31, "control characters"),
        ("train.tsv", 41, "replacement characters"),
        ("train.tsv", 51, "empty sides"),
        ("test.tsv", 21, "test pairs in the training data"),
    }
    assert f"{train}:71" in next(fault.what for fault in report.faults if fault.file == str(test))
    assert report.statistics.duplicates == 1
    assert (report.statistics.pairs, report.statistics.test_pairs, report.statistics.test_sources_seen) == (99, 22, 2)
    assert f"{train}:51: " in report.render()


def test_faults_of_aligned_targets_are_named_in_the_target_file(tmp_path: Path) -> None:
    rows = corpus(2, 50)
    rows[4] = (rows[4][0], "a\x01b c d")
    rows[5] = (rows[5][0], "y" * 2_000)
    paths = [tmp_path / "source", tmp_path / "target"]
    for side, path in enumerate(paths):
        path.write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
    report = check_pairs(paths)
    found = {(Path(fault.file).name, fault.line, fault.kind) for fault in report.faults}
    assert found >= {("target", 5, "control characters"), ("target", 6, "unusual lengths")}


def test_figures_agree_with_a_plain_count(tmp_path: Path) -> None:
    rows = corpus(3, 301)
    statistics = check_pairs([save(tmp_path / "a", rows)]).statistics
    for side, texts in ((statistics.source, [row[0] for row in rows]), (statistics.target, [row[1] for row in rows])):
        assert side.characters.median == np.median([len(text) for text in texts])
        assert side.words.median == np.median([len(text.split()) for text in texts])
        assert side.words.longest == max(len(text.split()) for text in texts)
        assert sum(len(text) <= side.characters.most for text in texts) >= 0.95 * len(texts)
        assert sum(len(text) < side.characters.most for text in texts) <= 0.95 * len(texts)
        assert side.distinct_characters == len(set("".join(texts)))
        assert side.distinct_words == len({word for text in texts for word in text.split()})
    assert statistics.symbol_share < 0.02  # three short words may pass for symbols


def test_repeated_faults_are_grouped_and_symbols_recognised(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(("abc\ta b c\n" * 400 + "abc\t\n" * 222).encode()))
    report = check_pairs([path])
    text = report.render()
    assert report.counts == {"empty sides": 222}
    assert text.count(f"{path}:") == 10
    assert f"{path}:401: " in text
    assert "... and 212 more" in text
    assert report.statistics.symbol_share == 1
    assert report.statistics.duplicates == 399


def test_clean_data_has_no_faults(tmp_path: Path) -> None:
    report = check_pairs([save(tmp_path / "a", corpus(4, 200))], [save(tmp_path / "b", corpus(9, 50))])
    assert report.faults == []
    assert "No faults" in report.render()


def test_nothing_but_faults(tmp_path: Path) -> None:
    report = check_pairs([save(tmp_path / "a", [("a", ""), ("", "b")])])
    assert report.counts == {"empty sides": 2}
    assert report.statistics.pairs == 0
    assert report.render()


def tagged(seed: int, size: int) -> list[tuple[str, str]]:
    chosen = random.Random(seed)
    return [
        (source, " ".join(chosen.choices(("DET", "NOUN", "VERB"), k=len(source.split()))))
        for source, _ in corpus(seed, size)
    ]


def test_tagged_sentences(tmp_path: Path) -> None:
    def save_sentences(name: str, rows: list[tuple[str, str]]) -> Path:
        blocks = (
            "".join(f"{w}\t{t}\n" for w, t in zip(words.split(), tags.split(), strict=True)) for words, tags in rows
        )
        path = tmp_path / name
        path.write_text("\n".join(blocks))
        return path

    rows = tagged(6, 80)
    rows[3] = (words(random.Random(2), 300), " ".join(["NOUN"] * 300))
    train = save_sentences("train", rows)
    test = save_sentences("test", [*tagged(7, 9), rows[0], ("so long", "ADV ADV")])
    report = check_pairs([train], [test])
    place = 1 + sum(1 + len(source.split()) for source, _ in tagged(7, 9))
    long = 1 + sum(1 + len(source.split()) for source, _ in rows[:3])
    found = {(Path(fault.file).name, fault.line, fault.kind) for fault in report.faults}
    assert found == {("train", long, "unusual lengths"), ("test", place, "test sentences in the training data")}
    assert report.statistics.labels.keys() == {"DET", "NOUN", "VERB"}
    assert sum(report.statistics.labels.values()) == sum(len(source.split()) for source, _ in rows)
    text = report.render()
    assert "80 sentences" in text
    assert "3 tags: NOUN" in text
    assert "Only the test has 1 of its tags: ADV." in text
    paths = [tmp_path / "words", tmp_path / "tags"]
    for side, path in enumerate(paths):
        path.write_text("".join(row[side] + "\n" for row in [*rows, ("a b c", "DET NOUN")]))
    assert check_pairs(paths).counts["unequal numbers of words and tags"] == 1


def test_labelled_texts(tmp_path: Path) -> None:
    chosen = random.Random(8)
    rows = [(chosen.choice(("yes", "no")), source) for source, _ in corpus(8, 90)]
    rows[5] = ("", rows[5][1])
    train, test = save(tmp_path / "train", rows), save(tmp_path / "test", [rows[1], ("perhaps", "a b")])
    report = check_pairs([train], [test])
    found = {(Path(fault.file).name, fault.line, fault.kind) for fault in report.faults}
    assert found == {("train", 6, "empty labels"), ("test", 1, "test texts in the training data")}
    assert report.statistics.unknown_labels == ["perhaps"]
    assert "2 labels: " in report.render()
    assert "89 texts" in report.render()


def test_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("ROMEO:\nO speak again, bright angel!\n\n" * 40 + "\nthe end\n" + "very " * 900 + "\x07\n")
    report = check_pairs([path], [path])
    assert report.counts == {"control characters": 2}  # as training and as test
    assert (report.statistics.pairs, report.statistics.duplicates) == (123, 78)
    assert "123 lines" in report.render()
    assert check_pairs([path], task="continue").format.kind == "text"
    path.write_bytes("é\tè\nà\tù\n".encode("latin-1"))
    assert check_pairs([path], encoding="latin-1").statistics.pairs == 2
