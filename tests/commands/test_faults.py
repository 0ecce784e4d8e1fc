"""Every fault a user can cause is one sentence and a non-zero exit, never a traceback: a table, run through `main`."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from regard.commands.app import main
from regard.inputs.input import readable
from tests.conftest import write_letters

PAIRS = "".join(
    f"{word}\t{word.upper()}\n" for word in ("ab", "cab", "bad", "dab", "abba", "face", "cafe", "bead")
).encode()

TRANSFORMER = ["--set", "model.kind=transformer"]
LATIN = os.fsdecode(b"fran\xe7ais")  # a name that is not UTF-8
UNWRITABLE = ("fran\\udce7ais", "not UTF-8", "rename")


@dataclass(frozen=True)
class Place:
    """The place where a fault is caused: an empty folder, and trained runs that are only read."""

    folder: Path
    letters: Path
    numbers: Path
    blind: Path

    def file(self, name: str, content: bytes = PAIRS) -> str:
        (self.folder / name).write_bytes(content)
        return str(self.folder / name)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def run(self) -> str:
        return str(self.letters / "run")

    def copy(self, *leave_out: str, of: Path | None = None, **changed: str | bytes) -> str:
        """A run's files without some, or with others in their place (config_yaml=… is config.yaml)."""
        new = self.folder / "copy"
        new.mkdir()
        for file in ((of or self.letters) / "run").iterdir():
            if file.is_file() and file.name not in leave_out:
                shutil.copy(file, new)
        for name, content in changed.items():
            (new / name.replace("_", ".")).write_bytes(content.encode() if isinstance(content, str) else content)
        return str(new)

    def settings(self, old: str, new: str) -> str:
        """A run whose config.yaml has been edited."""
        text = (self.letters / "run" / "config.yaml").read_text(encoding="utf-8")
        assert old in text
        return self.copy(config_yaml=text.replace(old, new))

    def trained(self) -> tuple[str, str]:
        """A run that can be gone on with, and its data."""
        data = shutil.copy(self.blind / "data.tsv", self.folder)
        return str(shutil.copytree(self.blind / "run", self.folder / "run")), str(data)


Arguments = Callable[[Place], list[str]]


def training(*more: str) -> Arguments:
    """Training with good data and something wrong in the options."""
    return lambda at: ["train", at.file("pairs.tsv"), "-o", at.path("run"), *more]


def reading(content: bytes) -> Arguments:
    """Training from a file with something wrong in it."""
    return lambda at: ["train", at.file("bad.tsv", content), "-o", at.path("run"), "--steps", "1"]


def settings(content: str) -> Arguments:
    return lambda at: ["train", at.file("my.yaml", content.encode()), "-o", at.path("run")]


def predicting(*more: str) -> Arguments:
    return lambda at: ["predict", at.run, "abc", *more]


def changed_data(at: Place) -> list[str]:
    run, data = at.trained()
    write_letters(Path(data), 100, seed=5)
    (Path(run) / "config.yaml").write_text(
        (Path(run) / "config.yaml").read_text().replace(str(at.blind / "data.tsv"), data)
    )
    return ["train", str(Path(run) / "config.yaml"), "-o", run]


def full(at: Place) -> str:
    (at.folder / "full").mkdir()
    at.file("full/letter.txt")
    return at.path("full")


def truncated(at: Place) -> str:
    whole = (at.letters / "run" / "model.safetensors").read_bytes()
    return at.copy(model_safetensors=whole[: len(whole) // 2])


# name: (the arguments, what the sentence must say)
FAULTS: dict[str, tuple[Arguments, tuple[str, ...]]] = {
    # ---- data
    "missing file": (lambda at: ["train", at.path("none.tsv")], ("none.tsv", "no such file")),
    "empty file": (reading(b""), ("bad.tsv", "is empty")),
    "only blank lines": (reading(b"\n \n\n"), ("bad.tsv", "is empty")),
    "folder as data": (lambda at: ["train", str(at.folder)], ("expected data", "a folder without files")),
    "binary file": (reading(bytes(range(256)) * 40), ("bad.tsv", "binary")),
    "UTF-16 file": (reading(PAIRS.decode().encode("utf-16") + b"\n\0b\0a\0d\0"), ("bad.tsv:", "has 1 columns, expected 2")),
    "bad UTF-8": (reading(PAIRS + b"caf\xe9\tCAFE\n"), ("bad.tsv:9", "not valid UTF-8", "0xe9", "`regard train FILE --set data.encoding=latin-1`")),
    "nothing but bad UTF-8": (reading(b"\xe9\t\xe8\n" * 8), ("bad.tsv", "not UTF-8", "`regard train FILE --set data.encoding=latin-1`")),
    "NUL": (reading(PAIRS + b"ca\0f\tCAFE\n"), ("bad.tsv:9", "NUL")),
    "one column": (reading(b"ab\ncab\nbad\n"), ("bad.tsv", "does not hold pairs", "<TAB>")),
    "three columns in one line": (reading(PAIRS + b"a\tb\tc\n"), ("bad.tsv:9", "3 columns", "expected 2")),
    "four columns": (reading(b"a\tb\tc\td\n" * 9), ("bad.tsv", "found 4 columns", "--columns source=1,target=2")),
    "empty side": (reading(PAIRS + b"ab\t \n"), ("bad.tsv:9", "target is empty")),
    "damaged gzip": (reading(b"\x1f\x8b\x08\0\0\0\0\0\0\3garbage"), ("bad.tsv", "gzip")),
    "unequal line counts": (lambda at: ["train", at.file("a", b"ab\nba\nab\n"), at.file("b", b"AB\nBA\n")], ("/a:3", "/b 2", "align")),
    "one pair": (reading(b"ab\tAB\n"), ("bad.tsv", "expected at least 2 pairs", "found 1", "--valid")),
    "one pair in 8 copies": (reading(b"ab\tAB\n" * 8), ("bad.tsv", "all 8 pairs have the same source", "--valid")),
    "all pairs too long": (training("--set", "data.longest=1"), ("pairs.tsv", "pairs of at most 1 tokens", "--set data.longest=")),
    "missing validation file": (training("--valid", "none.tsv"), ("none.tsv", "no such file")),
    "missing test file": (training("--test", "none.tsv"), ("none.tsv", "no such file")),
    "check a missing file": (lambda at: ["check", at.path("none.tsv")], ("none.tsv", "no such file")),
    "check against a missing test": (lambda at: ["check", at.file("p.tsv"), "--test", "none.tsv"], ("none.tsv", "no such file")),
    "evaluate an empty file": (lambda at: ["evaluate", at.run, at.file("e.tsv", b"")], ("e.tsv", "is empty")),
    "evaluate a header alone": (lambda at: ["evaluate", at.run, at.file("e.csv", b"source,target\n")], ("e.csv", "no pair")),
    "evaluate a missing file": (lambda at: ["evaluate", at.run, "none.tsv"], ("none.tsv", "no such file")),
    "evaluate into nowhere": (lambda at: ["evaluate", at.run, at.file("p.tsv"), "-o", at.path("no/where.txt")], ("where.txt", "cannot be written")),
    # ---- run folders
    "missing run": (lambda at: ["predict", at.path("none"), "a"], ("none", "not a run folder", "does not exist")),
    "file as run": (lambda at: ["predict", at.file("run"), "a"], ("not a run folder", "it is a file")),
    "folder that is no run": (lambda at: ["predict", str(at.folder), "a"], ("not a run folder", "no config.yaml")),
    "run without a vocabulary": (lambda at: ["predict", at.copy("tokenizer.json"), "a"], ("not a run folder", "no tokenizer.json")),
    "run without weights": (lambda at: ["predict", at.copy("model.safetensors"), "a"], ("model.safetensors", "no saved model yet")),
    "damaged config": (lambda at: ["predict", at.copy(config_yaml="data: ["), "a"], ("config.yaml:1", "not valid YAML")),
    "binary config": (lambda at: ["predict", at.copy(config_yaml=b"\xff\xfe\0\1"), "a"], ("config.yaml", "not valid YAML")),
    "truncated weights": (lambda at: ["predict", truncated(at), "a"], ("model.safetensors", "is damaged")),
    "empty weights": (lambda at: ["predict", at.copy(model_safetensors=b""), "a"], ("model.safetensors", "is damaged")),
    "damaged vocabulary": (lambda at: ["predict", at.copy(tokenizer_json="{"), "a"], ("tokenizer.json",)),
    "another run's vocabulary": (
        lambda at: ["predict", at.copy(tokenizer_json=(at.numbers / "run" / "tokenizer.json").read_bytes()), "a"],
        ("model.safetensors", "does not fit", "stem.embedding.table.weight"),
    ),
    "config of another width": (lambda at: ["predict", at.settings("width: 48", "width: 64"), "a"], ("does not fit", "config.yaml")),
    "config of a giant": (lambda at: ["predict", at.settings("width: 48", "width: 65536"), "a"], ("model.width", "memory")),
    "config of other heads": (lambda at: ["predict", at.settings("heads: 0", "heads: 5"), "a"], ("48", "5")),
    "check a folder that is no run": (lambda at: ["check", str(at.folder)], ("expected data", "a folder without files")),
    "show a missing run": (lambda at: ["show", at.path("none"), "a"], ("none", "does not exist")),
    "average without checkpoints": (lambda at: ["average", at.copy(), "-o", at.path("mean")], ("no checkpoints",)),
    "average more than there are": (lambda at: ["average", at.run, "--last", "99", "-o", at.path("mean")], ("--last is 99", "expected 1 to")),
    "average none": (lambda at: ["average", at.run, "--last", "0", "-o", at.path("mean")], ("--last is 0", "expected 1 to")),
    "average into a folder that exists": (lambda at: ["average", at.run, "-o", str(at.folder)], ("exists already",)),
    "output is a file": (lambda at: ["train", at.file("p.tsv"), "-o", at.file("out")], ("is a file", "-o")),
    "output is no run": (lambda at: ["train", at.file("p.tsv"), "-o", full(at)], ("not empty and not a run folder",)),
    "output below a file": (lambda at: ["train", at.file("p.tsv"), "-o", at.file("out") + "/run"], ("cannot be made", "Not a directory")),
    "other settings on a run": (
        lambda at: ["train", str(at.blind / "run" / "config.yaml"), "-o", at.trained()[0], "--set", "training.rate=0.5"],
        ("training.rate=0.01", "now it is 0.5", "-o"),
    ),
    "other model on a run": (lambda at: ["train", str(at.blind / "data.tsv"), "-o", at.trained()[0]], ("was begun with model.",)),
    "changed data on a run": (changed_data, ("the data has changed",)),
    # ---- settings
    "unknown setting": (training("--set", "training.rat=1"), ("no setting 'training.rat'", "did you mean 'training.rate'?")),
    "unknown setting of the other kind": (training(*TRANSFORMER, "--set", "model.feeding=false"), ("no setting 'model.feeding'",)),
    "unknown section": (training("--set", "trainign.rate=1"), ("no setting 'trainign.rate'", "did you mean 'training.rate'?")),
    "a section as a setting": (training("--set", "training=1"), ("training", "--set")),
    "a setting below a setting": (training("--set", "training.rate.x=1"), ("no setting 'training.rate.x'",)),
    "set without a value": (training("--set", "training.rate"), ("training.rate", "expected key=value")),
    "set without a key": (training("--set", "=3"), ("=3", "expected key=value")),
    "set to unreadable YAML": (training("--set", "model.width=["), ("model.width=[", "cannot be read")),
    "set to a word": (training("--set", "model.width=wide"), ("model.width", "expected a whole number", "'wide'")),
    "set to a fraction": (training("--set", "model.layers=1.5"), ("model.layers", "whole number", "1.5")),
    "set to a list": (training("--set", "training.rate=[1]"), ("training.rate", "number", "[1]")),
    "set to a date that is none": (training("--set", "training.rate=2024-13-45"), ("2024-13-45", "cannot be read")),
    "set far too deep": (training("--set", "training.rate=" + "[" * 5000), ("training.rate", "cannot be read")),
    "kind that is a list": (training("--set", "model.kind=[1]"), ("model", "[1]")),
    "set to infinity": (training("--set", "training.rate=.inf"), ("training.rate", "finite", "inf")),
    "negative size": (training("--set", "model.width=-4"), ("model.width", "expected 2 or more", "-4")),
    "no layers": (training("--set", "model.layers=0"), ("model.layers", "expected 1 or more", "0")),
    "heads that do not divide": (training(*TRANSFORMER, "--set", "model.heads=3"), ("256", "3", "heads")),
    "recurrent heads that do not divide": (training("--set", "model.kind=recurrent", "--set", "model.width=64", "--set", "model.heads=3"), ("64", "3", "heads")),
    "heads without a score": (training("--set", "model.kind=recurrent", "--set", "model.attention=mean", "--set", "model.heads=3"), ("heads=3", "attention=mean", "model.heads=0")),
    "heads without attention": (training("--set", "model.kind=recurrent", "--set", "model.heads=1", "--set", "model.attention=none"), ("heads=1 needs", "attention=none", "model.heads=0")),
    "unknown kind": (training("--set", "model.kind=magic"), ("model", "'magic'", "transformer", "recurrent")),
    "unknown score": (training("--set", "model.kind=recurrent", "--set", "model.attention=magic"), ("model.attention", "additive", "'magic'")),
    "unknown position": (training(*TRANSFORMER, "--set", "model.position=magic"), ("model.position", "sinusoidal", "'magic'")),
    "impossible size": (training(*TRANSFORMER, "--set", "model.width=65536", "--set", "model.layers=1000"), ("model.width", "memory", "GB")),
    "impossible recurrent size": (training("--set", "model.kind=recurrent", "--set", "model.width=65536", "--set", "model.layers=99"), ("model.width", "memory", "GB")),
    "impossible hidden size": (training(*TRANSFORMER, "--set", "model.hidden=1000000", "--set", "model.width=16384"), ("model.width", "memory", "GB")),
    "impossible vocabulary": (training("--set", "tokens.level=bpe", "--set", "tokens.size=2"), ("tokens.size", "expected 5 or more")),
    "joint vocabulary of two levels": (training("--set", "tokens.level=words", "--set", "output.joint=true"), ("output.joint", "words", "characters")),
    "joint vocabulary of two levels by the old names": (training("--set", "tokens.source_level=words", "--set", "tokens.joint=true"), ("output.joint", "words", "characters")),
    "no minutes": (training("--minutes", "0"), ("--minutes is 0", "expected more than 0")),
    "negative minutes": (training("--minutes", "-3"), ("--minutes is -3", "expected more than 0")),
    "minutes that are no number": (training("--minutes", "nan"), ("--minutes is 'nan'", "finite number")),
    "no steps": (training("--steps", "0"), ("--steps is 0", "expected 1 or more")),
    "negative seed": (training("--seed", "-1"), ("--seed is -1", "expected 0 or more")),
    "giant seed": (training("--seed", str(2**70)), ("--seed is", "expected less than")),
    "unknown task": (training("--task", "sing"), ("--task sing", "expected one of convert")),
    "config missing": (lambda at: ["train", at.path("none.yaml")], ("none.yaml", "cannot be read", "No such file")),
    "config empty": (settings(""), ("my.yaml", "holds no settings")),
    "config that is a list": (settings("- a\n- b\n"), ("my.yaml", "holds no settings")),
    "config with a syntax error": (settings("task: convert\ndata:\n  train: [a\nmodel: 3\n"), ("my.yaml:4", "not valid YAML")),
    "config with a tab": (settings("data:\n\ttrain: [a]\n"), ("my.yaml:2", "not valid YAML")),
    "config with a Python object": (settings("data: !!python/object:os.system {}\n"), ("my.yaml:1", "not valid YAML")),
    "config with an unknown key": (settings("data: {train: [a]}\ntraining: {rat: 1}\n"), ("my.yaml", "'training.rat'", "'training.rate'")),
    "config with an unknown section": (settings("data: {train: [a]}\nmodle: {width: 1}\n"), ("my.yaml", "'modle'", "'model'")),
    "config with a setting for a section": (settings("data: {train: [a]}\ntraining: 3\n"), ("my.yaml", "training", "3")),
    "config with a model without a kind": (settings("data: {train: [a]}\nmodel: {width: 8}\n"), ("my.yaml", "'model.kind' is missing", "transformer, recurrent")),
    "config in capitals with an unknown key": (lambda at: ["train", at.file("MY.YAML", b"data: {train: [a]}\ntrain: {}\n")], ("MY.YAML", "no setting 'train'")),
    "check a config in capitals": (lambda at: ["check", at.file("MY.YML", b"data: {train: [a]}\ntrain: {}\n")], ("MY.YML", "no setting 'train'")),
    "config without data": (settings("task: convert\n"), ("my.yaml", "'data' is missing")),
    "config with no training data": (settings("data: {train: []}\n"), ("my.yaml", "data.train", "at least 1")),
    "config with missing data": (settings("data: {train: [none.tsv]}\n"), ("none.tsv", "no such file")),
    "check a config with a bad value": (lambda at: ["check", at.file("c.yaml", b"data: {train: [a]}\ntraining: {rate: -1}\n")], ("c.yaml", "training.rate", "expected more than 0", "-1")),
    "check a config of a giant": (lambda at: ["check", at.file("c.yaml", b"data: {train: [a]}\nmodel: {kind: transformer, width: 65536, layers: 999}\n")], ("c.yaml", "model.width", "GB")),
    "demo without time": (lambda at: ["demo", "-o", at.path("run"), "--minutes", "0"], ("minutes", "expected more than 0")),
    # ---- decoding
    "no beam": (predicting("--beam", "0"), ("beam", "0")),
    "giant beam": (predicting("--beam", "100000000"), ("beam", "100000000")),
    "evaluate with no beam": (lambda at: ["evaluate", at.run, at.file("p.tsv"), "--beam", "0"], ("beam", "0")),
    "evaluate with a negative penalty": (lambda at: ["evaluate", at.run, at.file("p.tsv"), "--length-penalty", "-1"], ("length penalty", "-1.0")),
    "no answers": (predicting("--n-best", "0"), ("--n-best is 0", "expected 1")),
    "more answers than beam": (predicting("--beam", "2", "--n-best", "3"), ("--n-best", "--beam", "2", "3")),
    "several answers of a sample": (predicting("--sample", "--n-best", "3"), ("--n-best", "--sample")),
    "no temperature": (predicting("--sample", "--temperature", "0"), ("temperature", "0")),
    "top p beyond 1": (predicting("--sample", "--top-p", "2"), ("top_p", "2")),
    "top k of none": (predicting("--sample", "--top-k", "0"), ("top_k", "0")),
    "sampling options without --sample": (predicting("--temperature", "0.5"), ("--temperature", "--sample")),
    "negative seed of a sample": (predicting("--sample", "--seed", "-1"), ("--seed is -1", "expected 0 to")),
    "endless seed of a sample": (predicting("--sample", "--seed", "9" * 30), ("--seed is 999", "expected 0 to")),
    "beam of a sample": (predicting("--sample", "--beam", "3"), ("--beam", "drawn", "leave it out")),
    "length penalty of a sample": (predicting("--sample", "--length-penalty", "1"), ("--length-penalty", "drawn")),
    "negative length penalty": (predicting("--length-penalty", "-1"), ("length penalty", "-1")),
    "negative minimum": (predicting("--minimum", "-1"), ("minimum", "-1")),
    "no longest": (predicting("--longest", "0"), ("--longest", "0")),
    "endless minimum": (predicting("--minimum", "1000000000"), ("--minimum", "1000000000")),
    "minimum beyond the longest": (predicting("--minimum", "9", "--longest", "3"), ("minimum", "longest", "9", "3")),
    "unknown alignment": (predicting("--alignment", "foo"), ("--alignment", "'foo'", "hard or soft")),
    "alignment without attention": (lambda at: ["predict", str(at.blind / "run"), "ab", "--alignment", "hard"], ("no attention",)),
    "input too long": (lambda at: ["predict", at.run, "ab" * 5000], ("too long", "10,000 tokens", "data.longest")),
    # ---- names that are not UTF-8
    "name of data": (lambda at: ["train", at.path(LATIN), "-o", at.path("run")], UNWRITABLE),
    "name of validation data": (training("--valid", LATIN), UNWRITABLE),
    "name of test data": (training("--test", LATIN), UNWRITABLE),
    "name of a run": (training("-o", LATIN), UNWRITABLE),
    "name of a start": (training("--from", LATIN), UNWRITABLE),
    "name of an average": (lambda at: ["average", at.run, "-o", at.path(LATIN)], UNWRITABLE),
    "name of an import": (lambda at: ["import", at.path("none"), "-o", at.path(LATIN)], UNWRITABLE),
    "name of a demo": (lambda at: ["demo", "-o", at.path(LATIN)], UNWRITABLE),
    # ---- pictures
    "unknown suffix": (lambda at: ["show", at.run, "abc", "-o", at.path("a.gif")], ("a.gif", "'.gif'", ".png")),
    "no suffix": (lambda at: ["show", at.run, "abc", "-o", at.path("a")], ("suffix", ".png")),
    "empty text": (lambda at: ["show", at.run, "", "-o", at.path("a.png")], ("empty",)),
    "text of blanks": (lambda at: ["show", at.run, "  ", "-o", at.path("a.png")], ("empty",)),
    "text too long to show": (lambda at: ["show", at.run, "ab" * 5000, "-o", at.path("a.png")], ("too long",)),
    "several texts in a picture": (lambda at: ["show", at.run, "ab", "ba", "-o", at.path("a.png")], ("one text", "found 2", ".html")),
    "one answer to two texts": (lambda at: ["show", at.run, "ab", "ba", "--answer", "AB", "-o", at.path("a.html")], ("--answer", "found 2")),
    "answer too long to show": (lambda at: ["show", at.run, "ab", "--answer", "AB" * 5000, "-o", at.path("a.png")], ("too long", "10,000 tokens")),
    "empty answer": (lambda at: ["show", at.run, "ab", "--answer", "", "-o", at.path("a.png")], ("--answer", "empty")),
    "picture into nowhere": (lambda at: ["show", at.run, "ab", "-o", at.path("no/where.png")], ("where.png", "cannot be written")),
    "page into nowhere": (lambda at: ["show", at.run, "ab", "-o", at.path("no/where.html")], ("where.html", "cannot be written")),
    "numbers into nowhere": (lambda at: ["show", at.run, "ab", "-o", at.path("no/where.npz")], ("where.npz", "cannot be written")),
    "picture without attention": (lambda at: ["show", str(at.blind / "run"), "ab", "-o", at.path("a.png")], ("no attention",)),
    "page without attention": (lambda at: ["show", str(at.blind / "run"), "ab", "-o", at.path("a.html")], ("no attention",)),
    "grid of a page": (lambda at: ["show", at.run, "ab", "--grid", "-o", at.path("a.npz")], ("--grid", ".png")),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, letters: Path, numbers: Path, blind: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGARD_DEBUG", raising=False)
    monkeypatch.setattr(
        "regard.runs.settings.memory", lambda: 16 * 2**30
    )  # what is impossible does not depend on the machine
    return Place(tmp_path, letters, numbers, blind)


def called(arguments: list[str]) -> int:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_sentence(name: str, place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, words = FAULTS[name]
    given = arguments(place)
    capsys.readouterr()
    code = called(given)
    out, err = capsys.readouterr()
    assert code == 1, err
    assert "Traceback" not in out + err
    said = [line for line in err.splitlines() if line.startswith("regard: ")]
    assert len(said) == 1, err
    assert err.splitlines()[-1] == said[0], "the fault is the last that is said"
    assert not said[0].endswith(("..", "?.", " ")), said[0]
    missing = [word for word in words if word not in said[0]]
    assert not missing, f"{missing} not in: {said[0]}"
    assert not out, "nothing was found, so nothing belongs on standard output"


def test_there_are_many_faults() -> None:
    assert len(FAULTS) >= 45
    assert all(words for _, words in FAULTS.values())


# ---- usage: click's own words and exit 2 ---------------------------------------------------------------------------

USAGE: dict[str, tuple[list[str], str]] = {
    "unknown command": (["tarin", "a.tsv"], "No such command 'tarin'"),
    "unknown option": (["train", "a.tsv", "--fast"], "No such option: --fast"),
    "no data": (["train"], "Missing argument"),
    "no run": (["predict"], "Missing argument"),
    "no text to show": (["show", "run"], "expected either a text"),
    "steps that are a word": (["train", "a.tsv", "--steps", "many"], "valid integer"),
    "beam that is a fraction": (["predict", "run", "--beam", "1.5"], "valid integer"),
    "option without its value": (["train", "a.tsv", "--seed"], "requires an argument"),
}


@pytest.mark.parametrize("name", USAGE)
def test_wrong_usage_exits_with_2(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, words = USAGE[name]
    assert called(arguments) == 2
    out, err = capsys.readouterr()
    assert words.lower() in " ".join(err.replace("│", " ").split()).lower()
    assert "Error: " in err
    assert "Traceback" not in err
    assert not out


# ---- as a user would, in a process of its own ----------------------------------------------------------------------


def regard(arguments: list[str], given: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", "from regard.commands.app import main; main()", *arguments]
    plain = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", **environment}
    return subprocess.run(command, input=given, capture_output=True, env=plain, timeout=120, check=False)


@pytest.mark.parametrize("name", ["missing file", "truncated weights", "unknown setting"])
def test_a_process_says_the_same_and_exits_with_1(name: str, place: Place) -> None:
    arguments, words = FAULTS[name]
    done = regard(arguments(place))
    assert done.returncode == 1
    assert not done.stdout
    (said,) = done.stderr.decode().splitlines()
    assert said.startswith("regard: ")
    assert all(word in said for word in words)


def test_an_impossible_size_is_refused_before_memory_is_taken(place: Place) -> None:
    import resource

    settings = [*TRANSFORMER, "--set", "model.width=65536", "--set", "model.layers=1000"]
    done = regard(["train", place.file("pairs.tsv"), "-o", place.path("run"), *settings])
    assert done.returncode == 1
    assert b"GB of memory" in done.stderr
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 3e6, "kilobytes: no more than torch itself"
    assert not Path(place.path("run")).exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (PAIRS + b"caf\xe9\tCAFE\n", ("test.tsv:9", "not valid UTF-8")),
        (PAIRS + b"ab\t\n", ("test.tsv:9", "target is empty")),
        (b"source\ttarget\n", ("test.tsv", "no pair in it to evaluate on")),
    ],
)
def test_a_fault_in_test_data_is_said_before_the_training(
    content: bytes, words: tuple[str, ...], place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    test = place.file("test.tsv", content)
    assert called(["train", place.file("pairs.tsv"), "--test", test, "-o", place.path("run"), "--steps", "1"]) == 1
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert not Path(place.path("run")).exists()


@pytest.mark.parametrize(
    ("bad", "fault"),
    [(b"b\xe9", "byte 2 is not UTF-8"), (b"ab" * 5000, "The text is too long: 10,000 tokens, expected at most")],
)
def test_bad_input_lines_are_named_and_those_before_them_answered(place: Place, bad: bytes, fault: str) -> None:
    done = regard(["predict", place.run], b"ab\ncafe\n" + bad + b"\nab\n")
    assert done.returncode == 1
    assert done.stdout == b"AB\nCAFE\n"
    (said,) = done.stderr.decode().splitlines()
    assert said.startswith(f"regard: standard input:3: {fault}")


def test_texts_before_one_that_is_too_long_are_answered(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(["predict", place.run, "ab", "ab" * 5000]) == 1
    out, err = capsys.readouterr()
    assert out == "AB\n"
    assert err.startswith("regard: The text is too long"), "arguments are not counted as lines"


def test_closed_standard_input_is_said(place: Place) -> None:
    code = "import os; os.close(0); os.execvp(os.sys.executable, [os.sys.executable, *os.sys.argv[1:]])"
    command = [sys.executable, "-c", code, "-c", "from regard.commands.app import main; main()", "predict", place.run]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.decode().startswith("regard: Standard input is closed")


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1:strict"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_results_are_utf_8_whatever_the_locale_says(place: Place, environment: dict[str, str]) -> None:
    done = regard(["predict", place.run, "café ジ", "--json"], **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode())["source"] == "café ジ"
    said = regard(["predict", place.path("ジ"), "a"], **environment)
    assert said.returncode == 1
    assert b"Traceback" not in said.stderr


def test_a_text_that_is_not_utf_8_is_marked(place: Place) -> None:
    done = regard(["predict", place.run, os.fsdecode(b"caf\xe9"), "--json"], PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.decode())["source"] == "caf\ufffd"
    page = regard(["show", place.run, os.fsdecode(b"caf\xe9"), "--answer", os.fsdecode(b"\xe9A"), "-o", "a.html"])
    assert page.returncode == 0, page.stderr


def test_half_a_surrogate_pair_is_marked() -> None:
    assert readable("a\ud800b\udfff ジ\udce9") == "a\ufffdb\ufffd ジ\ufffd"


def test_closed_outputs_are_no_traceback(place: Place) -> None:
    script = [sys.executable, "-c", "from regard.commands.app import main; main()", "predict"]
    cases = {">&-": (place.run, 1), "2>&-": (place.run, 0), "2>&- ": (place.path("none"), 1)}
    for closed, (run, code) in cases.items():
        command = ["bash", "-c", f'"$@" {closed}', "bash", *script, run, "cafe"]
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        assert done.returncode == code, done
        assert done.stdout == (b"" if code else b"CAFE\n")
        said = done.stderr.decode().splitlines()
        assert [line.startswith("regard: Standard output is closed") for line in said] == [True] * (closed == ">&-")


def test_a_full_disk_is_said(place: Place) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    command = [sys.executable, "-c", "from regard.commands.app import main; main()", "check", place.file("pairs.tsv")]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120, check=False)
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert b"Traceback" not in done.stderr


def test_debugging_shows_the_traceback(place: Place) -> None:
    done = regard(["predict", place.path("none"), "a"], REGARD_DEBUG="1")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr


def test_a_folder_that_cannot_be_written_to(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    locked = place.folder / "locked"
    locked.mkdir(mode=0o500)
    if os.access(locked, os.W_OK):
        pytest.skip("this user may write everywhere")
    for arguments in (
        ["train", place.file("p.tsv"), "-o", str(locked / "run")],
        ["show", place.run, "ab", "-o", str(locked / "a.png")],
        ["evaluate", place.run, place.file("p.tsv"), "-o", str(locked / "a.txt")],
        ["average", place.run, "-o", str(locked / "mean")],
    ):
        assert called(arguments) == 1
        assert "Permission denied" in capsys.readouterr().err.splitlines()[-1]
