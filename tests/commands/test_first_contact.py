"""Files as newcomers bring them: each is recognised as expected, the message says why, and `check` and `train` agree.

No step is trained: a training is stopped where its first one would begin.
"""

import csv
import gzip
import io
import json
import random
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from regard.commands import check as checking
from regard.errors import UserError, shell
from regard.inputs import INPUTS
from regard.training import train as training
from regard.training.loop import Trainer

Content = str | bytes | Callable[[Path], None]
NOUNS = [
    "actor",
    "plot",
    "camera",
    "music",
    "scene",
    "ending",
    "script",
    "director",
    "story",
    "light",
    "sound",
    "cut",
    "joke",
    "fight",
    "dance",
    "song",
]
GOOD, BAD = ["superb", "lovely", "clever", "warm", "brisk"], ["dull", "clumsy", "noisy", "slow", "pale"]
GERMAN = dict(zip(NOUNS, ["Rolle", "Handlung", "Kamera", "Musik", "Szene", "Ende", "Buch", "Regie", "Geschichte", "Licht", "Ton", "Schnitt", "Witz", "Kampf", "Tanz", "Lied"], strict=True))  # fmt: skip
OTHERS = [
    "while",
    "nobody",
    "in",
    "the",
    "hall",
    "could",
    "tell",
    "why",
    "it",
    "had",
    "to",
    "be",
    "so",
    "long",
    "and",
    "what",
    "it",
    "was",
    "about",
    "after",
    "all",
]


def reviews(count: int = 80, seed: int = 0) -> list[tuple[str, str]]:
    """Texts and their labels, no text twice."""
    chosen, found = random.Random(seed), {}
    while len(found) < count:
        good = len(found) % 2 == 0
        words = [
            chosen.choice(GOOD if good else BAD),
            chosen.choice(NOUNS),
            *chosen.choices(OTHERS, k=chosen.randint(3, 9)),
        ]
        found[f"a {' '.join(words)}"] = "positive" if good else "negative"
    return list(found.items())


def words(count: int = 80, seed: int = 0) -> list[tuple[str, str]]:
    """Words and the same in capitals, with blanks between the letters."""
    chosen = random.Random(seed)
    found = {"".join(chosen.choices("abcdefghij", k=chosen.randint(2, 8))) for _ in range(2 * count)}
    return [(word, " ".join(word.upper())) for word in sorted(found, key=lambda w: (hash_of(w), w))][:count]


def hash_of(text: str) -> int:
    return random.Random(text).randrange(10**6)


def sentences(count: int = 80, seed: int = 0) -> list[tuple[str, str]]:
    """English and German of about the same length."""
    chosen, found = random.Random(seed), []
    for _ in range(count):
        nouns = chosen.choices(NOUNS, k=chosen.randint(2, 9))
        found.append((" ".join(f"the {n}" for n in nouns), " ".join(f"das {GERMAN[n]}" for n in nouns)))
    return found


def tagged(count: int = 40, seed: int = 0) -> list[list[tuple[str, str]]]:
    chosen = random.Random(seed)
    lexicon = [(noun, "NOUN") for noun in NOUNS] + [(word, "ADJ") for word in (*GOOD, *BAD)] + [("the", "DET")]
    return [[chosen.choice(lexicon) for _ in range(chosen.randint(2, 7))] for _ in range(count)]


def prose(count: int = 80, seed: int = 0) -> list[str]:
    chosen = random.Random(seed)
    return [
        " ".join(chosen.choices([*NOUNS, *OTHERS], k=chosen.randint(4, 14))).capitalize() + "." for _ in range(count)
    ]


def lines(rows: Any, form: str) -> str:
    return "".join(form.format(*row) + "\n" for row in rows)


def written(rows: Any, header: tuple[str, ...] = (), **how: Any) -> str:
    """Rows as Python's csv module writes them."""
    table = io.StringIO()
    csv.writer(table, **how).writerows([*([header] if header else []), *rows])
    return table.getvalue()


def conll(form: str = "{}\t{}", head: str = "", between: str = "\n") -> str:
    blocks = ["".join(form.format(*word) + "\n" for word in sentence) for sentence in tagged()]
    return head + between.join(blocks)


def conllu() -> str:
    blocks = []
    for number, sentence in enumerate(tagged(), 1):
        rows = [f"{i}\t{w}\t{w}\t{t}\tX{t}\t_\t0\troot\t_\t_" for i, (w, t) in enumerate(sentence, 1)]
        blocks.append("\n".join([f"# sent_id = {number}", *rows]) + "\n\n")
    return "".join(blocks)


def jsonl(rows: Any, *names: str) -> str:
    return "".join(json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)


def parquet(rows: Any, *names: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)

    return write


def zipped(files: Mapping[str, str | bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", how) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return archive.getvalue()


def by_class(rows: list[tuple[str, str]], folder: str = "") -> dict[str, str]:
    return {f"{folder}{label}/{number}.txt": f"{text}\nIndeed.\n" for number, (text, label) in enumerate(rows)}


R, W, S, P = reviews(), words(), sentences(), prose()
TSV = lines(R, "{}\t{}")


@dataclass
class Case:
    """Files, the options of the command, and what is expected: a task and a format, or a sentence that refuses."""

    files: Mapping[str, Content]
    task: str = ""  # "": refused
    kind: str = ""
    says: str = ""  # a pattern of what is reported, or of the refusal
    data: tuple[str, ...] = ()  # all files, unless these
    columns: str = ""  # that are stored
    options: dict[str, Any] = field(default_factory=dict)
    count: int | None = None  # examples


def one(name: str, content: Content, *expected: str, **more: Any) -> Case:
    return Case({name: content}, *expected, **more)


CASES: dict[str, Case] = {
    # ---- tab-separated columns
    "pairs": one("a.tsv", lines(W, "{}\t{}"), "convert", "tsv", r"80 pairs.*source, target \(both columns vary in 80 rows\)", count=80),
    "pairs without a suffix": one("a", lines(W, "{}\t{}"), "convert", "tsv"),
    "text and label": one("a.tsv", TSV, "classify", "tsv", r"text, label \(column 2 has 2 values in 80 rows\)", columns="source=1,target=2"),
    "label and text": one("a.tsv", lines(R, "{1}\t{0}"), "classify", "tsv", "label, text", columns="source=2,target=1"),
    "labels with blanks": one("a.tsv", lines(((t, "very good" if lb == "positive" else "not so good") for t, lb in R), "{}\t{}"), "classify", "tsv", "2 labels: "),
    "labels 1 to 5": one("a.tsv", lines(((t, i % 5 + 1) for i, (t, _) in enumerate(reviews(100))), "{}\t{}"), "classify", "tsv"),
    "labels a,b": one("a.tsv", lines(((t, ("a,b", "a", "b")[i % 3]) for i, (t, _) in enumerate(R)), "{}\t{}"), "classify", "tsv", "3 labels"),
    "long labels": one("a.tsv", lines(((t, f"the answer to question {i % 4} is on page {i % 4}") for i, (t, _) in enumerate(R)), "{}\t{}"), "classify", "tsv"),
    "one label is 1 in 40": one("a.tsv", lines(((t, "rare" if i % 40 == 7 else "common") for i, (t, _) in enumerate(reviews(200))), "{}\t{}"), "classify", "tsv"),
    "sorted by label": one("a.tsv", lines(sorted(reviews(1600), key=lambda r: r[1]), "{}\t{}"), "classify", "tsv", count=1600),
    "header text, label": one("a.tsv", "text\tlabel\n" + TSV, "classify", "tsv", "with a header: text and label.*by their names", columns="source=text,target=label", count=80),
    "header with other columns": one("a.tsv", "id\tsentiment\tsentence\n" + lines(((i, lb, t) for i, (t, lb) in enumerate(R)), "{}\t{}\t{}"), "classify", "tsv", columns="source=sentence,target=sentiment"),
    "header of unknown names": one("a.tsv", "was\twie\n" + TSV, "classify", "tsv", "with a header", count=80),
    "header source, target with few targets": one("a.tsv", "source\ttarget\n" + lines(((w, i % 2) for i, (w, _) in enumerate(W)), "{}\t{}"), "convert", "tsv"),
    "trailing tab": one("a.tsv", lines(W, "{}\t{}\t"), "convert", "tsv", columns="source=1,target=2", count=80),
    "trailing tab in some lines": one("a.tsv", "".join(f"{a}\t{b}{'' if i % 3 else chr(9)}\n" for i, (a, b) in enumerate(W)), "convert", "tsv", count=80),
    "quotes of pandas": one("a.tsv", written(R, delimiter="\t", quoting=csv.QUOTE_ALL), "classify", "csv", "(?s)tab-separated columns, quoted.*2 labels: (negative|positive) 50"),
    "quotes where needed": one("a.tsv", written([(f'{t} "indeed"', lb) for t, lb in R], delimiter="\t"), "classify", "csv", "quoted"),
    "sentences in quotes": one("a.tsv", lines(((f'"{a}", he said', b) for a, b in S), "{}\t{}"), "convert", "tsv"),
    "inflection": one("a.tsv", lines(((w, ("V;PST", "V;PRS")[i % 2], w + "x") for i, (w, _) in enumerate(W)), "{}\t{}\t{}"), "convert", "tsv", "features", columns="source=1+2,target=3"),
    "anki with attribution": one("a.txt", lines(((a, b, f"CC-BY 2.0 tatoeba #{i}") for i, (a, b) in enumerate(S)), "{}\t{}\t{}"), "convert", "tsv", "attribution", columns="source=1,target=2"),
    "numbered pairs": one("a.tsv", lines(((i, a, b) for i, (a, b) in enumerate(S)), "{}\t{}\t{}"), "convert", "tsv", columns="source=2,target=3"),
    "pandas index, en, de": one("a.tsv", "\ten\tde\n" + lines(((i, a, b) for i, (a, b) in enumerate(S)), "{}\t{}\t{}"), "convert", "tsv", "en and de", columns="source=en,target=de", count=80),
    "nli": one("a.tsv", "premise\thypothesis\tlabel\n" + lines(((a, b, i % 3) for i, (a, b) in enumerate(S)), "{}\t{}\t{}"), "classify", "tsv", "premise, hypothesis and label", columns="source=premise+hypothesis,target=label"),
    "four columns of text": one("a.tsv", lines(((a, b, b[::-1], a[::-1]) for a, b in S), "{}\t{}\t{}\t{}"), says=r"a.tsv: expected source and target, found 4 columns \(.*Try --columns source=1,target=2"),
    "four columns, two chosen": one("a.tsv", lines(((a, b, b[::-1], a[::-1]) for a, b in S), "{}\t{}\t{}\t{}"), "convert", "tsv", "as --columns says", columns="source=1,target=3", options={"columns": "source=1,target=3"}),
    "a number that is no column": one("a.tsv", TSV, says="expected numbers from 1 to 2, found '3'", options={"columns": "source=1,target=3"}),
    "columns without a target's name": one("a.tsv", TSV, says=r"expected source=2,target=4 or .*, found '2'", options={"columns": "source=1,2"}),
    "the other direction": one("a.tsv", lines(S, "{}\t{}"), "convert", "tsv", columns="source=2,target=1", options={"columns": "source=2,target=1"}),
    "columns by name, joined": one("a.tsv", "nr\tquestion\tcontext\tanswer\n" + lines(((i, a, b, a.split()[1]) for i, (a, b) in enumerate(S)), "{}\t{}\t{}\t{}"), "convert", "tsv", columns="source=question+context,target=answer", options={"columns": "source=question+context,target=answer", "task": "convert"}),
    "pairs with bars": one("a.txt", lines(S, "{} ||| {}"), "convert", "tsv", r"\|\|\|", count=80),
    "no tabs": one("a.tsv", "".join(f"{p}\n" for p in P), says="a.tsv does not hold pairs: expected source<TAB>target"),
    "missing and extra columns": one("a.tsv", lines(W, "{}\t{}") + "one\n" + "a\tb\tc\n", says=r"a.tsv:81: has 1 columns, expected 2"),
    "an empty side": one("a.tsv", lines(W, "{}\t{}") + "abc\t\n", says="a.tsv:81: the target is empty"),
    "an empty side, skipped": one("a.tsv", lines(W, "{}\t{}") + "abc\t\n", "convert", "tsv", "skipped 1 faulty line", options={"set": ["data.faults=skip"]}),
    "carriage returns": one("a.tsv", lines(W, "{}\t{}").replace("\n", "\r"), "convert", "tsv", count=80),
    "Windows line ends and a mark": one("a.tsv", "\ufeff" + TSV.replace("\n", "\r\n"), "classify", "tsv", "2 labels", count=80),
    "indented text": one("a.txt", "".join(f"\t{p}\n" for p in P), "continue", "text"),
    "blank lines between": one("a.tsv", lines(W, "{}\t{}\n"), "convert", "tsv", count=80),
    "control characters": one("a.tsv", lines(W, "{}\t{}") + "a\x07b\tA B\n", "convert", "tsv", "(?s)No faults were found that stop a training.*U.0007"),
    "emoji, Arabic, Chinese": one("a.tsv", lines(((f"{t} 👩‍👩‍👧 مرحبا 电影", lb) for t, lb in R), "{}\t{}"), "classify", "tsv"),
    # ---- comma-separated values
    "csv": one("a.csv", written(R, ("text", "label")), "classify", "csv", "comma-separated values with a header: text and label", columns="source=text,target=label", count=80),
    "csv of Excel": one("a.csv", "\ufeff" + written([(f"{t}, \"so\"\nand on", lb) for t, lb in R], ("Review", "Rating"), delimiter=";"), "classify", "csv", "semicolon-separated values", count=80),
    "sep=": one("a.csv", "sep=;\n" + written(R, ("Text", "Rating"), delimiter=";"), "classify", "csv", "semicolon-separated values with a header: Text and Rating", count=80),
    "sep= without a header": one("a.csv", "sep=;\r\n" + written(R, delimiter=";"), "classify", "csv", count=80),
    "csv without a header": one("a.csv", written(R), "classify", "csv", "comma-separated values: text, label", count=80),
    "csv pairs without a header": one("a.csv", written(W), "convert", "csv", count=80),
    "csv with a header of unknown names": one("a.csv", written(R, ("was", "wie")), "classify", "csv", "with a header: was and wie", count=80),
    "csv with ids and dates": one("a.csv", written([(i, f"2024-01-{i % 28 + 1:02}", t, lb) for i, (t, lb) in enumerate(R)], ("id", "date", "review", "rating")), "classify", "csv", columns="source=review,target=rating"),
    "csv, label first": one("a.csv", written([(lb, t) for t, lb in R], ("label", "text")), "classify", "csv", columns="source=text,target=label"),
    "csv, target and source": one("a.csv", written([(b, a) for a, b in S], ("target", "source")), "convert", "csv", columns="source=source,target=target"),
    "csv with a pandas index": one("a.csv", written([(i, a, b) for i, (a, b) in enumerate(S)], ("", "en", "de")), "convert", "csv", columns="source=en,target=de"),
    "id, messy, clean": one("a.csv", written([(i, a, b) for i, (a, b) in enumerate(W)], ("id", "messy", "clean")), "convert", "csv", columns="source=messy,target=clean"),
    "AG News": one("a.csv", written([(i % 4 + 1, a, b) for i, (a, b) in enumerate(S)], quoting=csv.QUOTE_ALL), "classify", "csv", columns="source=2+3,target=1", count=80),
    "instruction, input, output": one("a.csv", written([("shout", a, b) for a, b in W], ("instruction", "input", "output")), "convert", "csv", columns="source=input,target=output"),
    "csv of many columns": one("a.csv", written([(a, b, a[::-1], b[::-1], a * 2) for a, b in W], ("one", "two", "three", "four", "five")), says=r"found 5 columns \(one: .*Try --columns source=one,target=two"),
    "csv of many columns, chosen": one("a.csv", written([(a, b, a[::-1], b[::-1], a * 2) for a, b in W], ("one", "two", "three", "four", "id")), "convert", "csv", columns="source=one,target=four", options={"columns": "source=one,target=four"}),
    "a name that is no column": one("a.csv", written(R, ("text", "label")), says="expected columns text, label, found 'label2'", options={"columns": "source=text,target=label2"}),
    "csv by another name": one("a.dat", written(W, ("word", "sound")), "convert", "csv", count=80),
    "csv in one column": one("a.csv", "".join(f"{w}\n" for w, _ in W), says="does not hold pairs: expected at least two columns"),
    "csv with one faulty line": one("a.csv", written(R, ("text", "label")) + "one, two, three\n", says="a.csv:82: has 3 columns, expected 2"),
    "an unclosed quote": one("a.csv", written(R, ("text", "label")) + '"never closed,positive\n', says="a.csv:82: is not valid CSV"),
    "a header alone": one("a.csv", "text,label\n", says="there is nothing in it to train on"),
    "csv said to be one": one("a.dat", written([(f"{a}, {a}", b) for a, b in W]), "convert", "csv", options={"format": "csv"}, count=80),
    "real numbers": one("a.csv", written([(t, f"{hash_of(t) / 1e5:.3f}") for t, _ in R], ("text", "rating")), "classify", "csv", "warning: the labels are real numbers"),
    "real targets": one("a.tsv", lines(((t, f"{hash_of(t) / 1e5:.3f}") for t, _ in R), "{}\t{}"), "convert", "tsv", "warning: the targets are real numbers"),
    "commas in every line": one("chat.txt", "".join(f"[00:{i:02}] Anna: {p[:-1]}, I think 😀\n" for i, p in enumerate(P)), "continue", "text", count=80),
    "a poem with commas": one("a.txt", "".join(f"{p[:-1]},\n" for p in P), "continue", "text"),
    # ---- labels before texts
    "label and blank": one("a.txt", lines(R, "{1} {0}"), "classify", "labelled", "first words of 80 lines are 2 values, which are rare elsewhere", count=80),
    "log file": one("a.log", "".join(f"{('INFO', 'WARN')[i % 2]} {p}\n" for i, p in enumerate(P)), "classify", "labelled"),
    "fastText": one("a.txt", lines(R, "__label__{1} {0}"), "classify", "fasttext", "2 labels: (negative|positive) 50", count=80),
    "fastText with several labels": one("a.txt", "".join(f"__label__x{i % 2} __label__y {p}\n" for i, p in enumerate(P)), "classify", "fasttext", "x0,y"),
    "Anna and Bob": one("a.txt", "".join(f"{('Anna:', 'Bob:')[i % 2]} {p}\n" for i, p in enumerate(P)), "continue", "text"),
    "Anna and Bob as labels": one("a.txt", "".join(f"{('Anna:', 'Bob:')[i % 2]} {p}\n" for i, p in enumerate(P)), "classify", "labelled", options={"task": "classify"}),
    "bullets": one("a.txt", "".join(f"- {p}\n" for p in P), "continue", "text"),
    "bullets of two kinds": one("a.txt", "".join(f"{'-*'[i % 2]} {p}\n" for i, p in enumerate(P)), "continue", "text"),
    "numbered list": one("a.txt", "".join(f"{i % 9}. {p}\n" for i, p in enumerate(P)), "continue", "text"),
    "quotes": one("a.txt", "".join(f"> {p}\n" for p in P), "continue", "text"),
    "lines that begin alike": one("a.txt", "".join(f"Hello {p}\n" for p in P), "continue", "text"),
    "code": one("a.py", "".join(f"def {w}(x):\n    return x + {i}\n\n" for i, (w, _) in enumerate(W)), "continue", "text"),
    "html": one("a.html", "<html>\n" + "".join(f"<p>{p}</p>\n" for p in P) + "</html>\n", "continue", "text"),
    "srt": one("a.srt", "".join(f"{i}\n00:00:{i % 60:02},000 --> 00:00:{i % 60:02},900\n{p}\n\n" for i, p in enumerate(P)), "continue", "text"),
    "labelled by --format": one("a.txt", "".join(f"Hello {p}\n" for p in P), "classify", "labelled", "warning: only one label", options={"format": "labelled"}),
    # ---- records
    "json lines": one("a.jsonl", jsonl(R, "text", "label"), "classify", "jsonl", "JSON lines: text and label .by their names", columns="source=text,target=label", count=80),
    "json lines by another name": one("a.txt", jsonl(S, "en", "de"), "convert", "jsonl", columns="source=en,target=de"),
    "json lines with numbers": one("a.jsonl", jsonl([(i, t, i % 2) for i, (t, _) in enumerate(R)], "id", "review", "stars"), "classify", "jsonl", columns="source=review,target=stars"),
    "json lines of texts": one("a.jsonl", jsonl([(f"{p}\n{p}",) for p in P], "text"), "continue", "jsonl", count=160),
    "json lines to continue": one("a.jsonl", jsonl(R, "text", "label"), "continue", "jsonl", columns="source=text", options={"task": "continue"}),
    "json lines of tokens and tags": one("a.jsonl", jsonl([([w for w, _ in s], [t for _, t in s]) for s in tagged()], "tokens", "ner_tags"), "tag", "jsonl", "3 tags", count=40),
    "json lines, unequal tags": one("a.jsonl", jsonl([(["a", "b"], ["X", "Y"])] * 20 + [(["a", "b"], ["X"])], "tokens", "tags"), says="a.jsonl:21: has 1 tags for 2 words"),
    "json lines, prompts": one("a.jsonl", jsonl(S, "prompt", "completion"), "convert", "jsonl"),
    "json lines, a field missing": one("a.jsonl", jsonl(R, "text", "label") + '{"text": "x"}\n', says="a.jsonl:81: has no field 'label'"),
    "json lines, a line damaged": one("a.jsonl", jsonl(R, "text", "label") + '{"text": \n', says="a.jsonl:81: is not a JSON object"),
    "chat json lines": one("a.jsonl", jsonl([([{"role": "user", "content": a}, {"role": "assistant", "content": b}],) for a, b in S], "messages"), says="expected records with fields of text.*messages"),
    "json lines, fields chosen": one("a.jsonl", jsonl([(a, b, b[::-1]) for a, b in S], "x", "y", "z"), "convert", "jsonl", columns="source=y,target=z", options={"columns": "source=y,target=z"}),
    "json array": one("a.json", json.dumps([{"text": t, "label": lb} for t, lb in R], indent=1), "classify", "json", "a JSON array: text and label", count=80),
    "json array in one line": one("a.json", json.dumps([{"src": a, "tgt": b} for a, b in S]), "convert", "json", count=80),
    "json array in an object": one("a.json", json.dumps({"version": 1, "data": [{"src": a, "tgt": b} for a, b in S]}), "convert", "json", count=80),
    "parquet": one("a.parquet", parquet(R, "text", "label"), "classify", "parquet", "a Parquet table: text and label", columns="source=text,target=label", count=80),
    "parquet pairs": one("a", parquet(S, "en", "de"), "convert", "parquet", count=80),
    "damaged parquet": one("a.parquet", b"PAR1" + b"x" * 100, says="damaged Parquet"),
    # ---- tagged sentences
    "conll": one("a.conll", conll(), "tag", "columns", "blank lines part", count=40),
    "conll with blanks": one("a.txt", conll("{} {}"), "tag", "columns", "3 tags", count=40),
    "conll of four columns": one("a.txt", conll("{0} X O {1}", "-DOCSTART- -X- -X- O\n\n"), "tag", "columns", "3 tags: ", count=40),
    "comments as wide as words": one("a.txt", conll("{} {}", "# doc\n", "\n# doc\n"), "tag", "columns", "3 tags: ", count=40),
    "comments of four words": one("a.txt", conll("{0} X O {1}", "# sent_id = 1\n", "\n# sent_id = 2\n"), "tag", "columns", "3 tags: ", count=40),
    "documents": one("a.txt", "#begin document (a);\n" + conll("{0} X {1}") + "\n#end document\n", "tag", "columns", "3 tags: ", count=40),
    "marks of documents": one("a.txt", "<doc id=1>\n" + conll("{0}\tX\t{1}") + "</doc>\n", "tag", "columns", "3 tags: ", count=40),
    "conllu": one("a.conllu", conllu(), "tag", "conllu", "ten columns", count=40),
    "conllu, another column": one("a.conllu", conllu(), "tag", "conllu", "XNOUN", columns="source=2,target=5", options={"columns": "word=2,tag=5".replace("word", "words")}),
    "conll, a column missing": one("a.txt", conll() + "\nalone\n", says=r"has 1 columns, expected 2"),
    # ---- two files
    "aligned": Case({"a.en": lines(S, "{0}"), "a.de": lines(S, "{1}")}, "convert", "aligned", "by their names", count=80),
    "aligned by length": Case({"one": lines(S, "{0}"), "two": lines(S, "{1}")}, "convert", "aligned", "both have 80 lines, long and short together"),
    "aligned, turned round": Case({"a.en": lines(S, "{0}"), "a.de": lines(S, "{1}")}, "convert", "aligned", columns="source=2,target=1", options={"columns": "source=2,target=1"}),
    "aligned, begin alike": Case({"s.en": lines(S, "hello {0}"), "s.de": lines(S, "hallo {1}")}, "convert", "aligned", count=80),
    "aligned, one line short": Case({"s.en": lines(S, "hello {0}"), "s.de": lines(S[:-1], "hallo {1}")}, says="s.en:80: has no partner"),
    "aligned words and tags": Case({"a.words": "".join(" ".join(w for w, _ in s) + "\n" for s in tagged()), "a.tags": "".join(" ".join(t for _, t in s) + "\n" for s in tagged())}, "tag", "aligned"),
    "aligned texts and labels": Case({"x.text": lines(R, "{0}"), "x.labels": lines(R, "{1}")}, "classify", "aligned"),
    "two plain texts": Case({"one.txt": "".join(f"{p}\n" for p in P), "two.txt": "".join(f"{p}\n" for p in prose(50, 1))}, "continue", "text", count=130),
    "two plain texts, equally long": Case({"one.txt": "".join(f"{p}\n" for p in P), "two.txt": "".join(f"{p}\n" for p in prose(80, 1))}, "continue", "text", count=160),
    "three plain texts, one with bullets": Case({"a.txt": "".join(f"{p}\n" for p in P), "b.txt": "".join(f"- {p}\n" for p in P), "c.txt": "".join(f"{p}\n" for p in P)}, "continue", "text", count=240),
    "two tables": Case({"a.tsv": TSV, "b.tsv": lines(reviews(40, 1), "{}\t{}")}, "classify", "tsv", count=120),
    "a table and a text": Case({"a.tsv": TSV, "b.txt": "".join(f"{p}\n" for p in P), "c.tsv": TSV}, says="b.txt does not hold labelled texts"),
    "tables of two forms": Case({"a.tsv": TSV, "b.csv": written(R, ("text", "label"))}, says="have different formats"),
    # ---- plain text
    "plain text": one("a.txt", "".join(f"{p}\n" for p in P), "continue", "text", "80 lines: plain text", count=80),
    "one long line": one("a.txt", " ".join(P), "continue", "text", "holding out the last", count=19),
    "one long line with an end": one("text8", " ".join(prose(3000)) + "\n", "continue", "text"),
    "two lines": one("a.txt", f"{P[0]}\n{P[1]}\n", "continue", "text", count=2),
    "one short line": one("a.txt", "hello\n", says="a.txt: expected at least 2 lines, one of them for validation, found 1. Try --valid"),
    "one pair": one("a.tsv", "ab\tAB\n", says="expected at least 2 pairs, one of them for validation, found 1"),
    "three pairs": one("a.tsv", "ab\tAB\ncd\tCD\nef\tEF\n", "convert", "tsv"),
    "fill": one("a.txt", "".join(f"{p}\n" for p in P), "fill", "text", options={"task": "fill"}),
    "a table as text": one("a.tsv", TSV, "continue", "text", options={"format": "text"}),
    # ---- folders and archives
    "folder for each label": Case(by_class(R, "d/"), "classify", "folders", "80 files lie in 2 folders: negative, positive", data=("d",), count=80),
    "folder with train and test": Case(by_class(R, "d/train/") | by_class(reviews(20, 1), "d/test/"), "classify", "folders", data=("d",), count=80),
    "folder of texts": Case({"d/one.txt": "\n".join(P), "d/two.txt": "\n".join(prose(50, 1)), "d/README.md": "# Two texts\n"}, "continue", "text", data=("d",), count=130),
    "folder of tables": Case({"d/one.tsv": TSV, "d/two.tsv": lines(reviews(40, 1), "{}\t{}")}, "classify", "tsv", data=("d",), count=120),
    "folder of train.tsv and dev.tsv": Case({"d/train.tsv": TSV, "d/dev.tsv": lines(reviews(20, 1), "{}\t{}")}, "classify", "tsv", data=("d",), count=80),
    "folder of train.en and train.de": Case({f"d/{name}.{side}": lines(rows, form) for name, rows in (("train", S), ("valid", S[:9])) for side, form in (("en", "{0}"), ("de", "{1}"))}, "convert", "aligned", "validation pairs are also in the training data", data=("d",), count=80, options={"columns": "source=2,target=1"}),
    "empty folder": Case({"d/.hidden": "x"}, says="d: expected data, found a folder without files", data=("d",)),
    "zip of a table": one("a.zip", zipped({"a.tsv": TSV}), "classify", "tsv", count=80),
    "zip, stored": one("a.zip", zipped({"a.tsv": TSV}, zipfile.ZIP_STORED), "classify", "tsv", count=80),
    "zip of folders": one("a.zip", zipped(by_class(R, "all/")), "classify", "folders", count=80),
    "a file in a zip": Case({"a.zip": zipped({"x/a.tsv": TSV, "x/b.txt": "other"})}, "classify", "tsv", data=("a.zip/x/a.tsv",), count=80),
    "damaged zip": one("a.zip", zipped({"a.tsv": TSV})[:200], says="damaged zip"),
    "gzip": one("a.tsv.gz", gzip.compress(TSV.encode()), "classify", "tsv", count=80),
    "damaged gzip": one("a.tsv.gz", gzip.compress(TSV.encode())[:-30], says="damaged gzip"),
    "gz that is plain": one("a.tsv.gz", TSV, "classify", "tsv", count=80),
    "xlsx": one("a.xlsx", zipped({"[Content_Types].xml": "<x/>", "xl/workbook.xml": "<x/>"}), says="is an Office document, expected text. Try to save it as CSV"),
    # ---- bytes
    "utf-16": one("a.tsv", TSV.encode("utf-16"), "classify", "tsv", "2 labels: (negative|positive) 50", count=80),
    "utf-16 csv of Excel": one("a.csv", written(R, ("text", "label"), delimiter="\t").encode("utf-16-le").join([b"\xff\xfe", b""]), "classify", "csv", count=80),
    "utf-16 without a mark": one("a.tsv", TSV.encode("utf-16-be"), "classify", "tsv", count=80),
    "utf-16 that is named": one("a.tsv", TSV.encode("utf-16"), "classify", "tsv", options={"set": ["data.encoding=utf-16"]}),
    "latin-1": one("a.tsv", lines(((f"é{t}", lb) for t, lb in R), "{}\t{}").encode("latin-1"), says=r"a.tsv is not UTF-8 text.*data.encoding=latin-1"),
    "latin-1 that is named": one("a.tsv", lines(((f"é{t}", lb) for t, lb in R), "{}\t{}").encode("latin-1"), "classify", "tsv", options={"set": ["data.encoding=latin-1"]}),
    "one bad byte": one("a.tsv", TSV.encode() + b"caf\xe9\tpositive\n", says=r"a.tsv:81: byte 4 \(0xe9\) is not valid UTF-8"),
    "pdf": one("a.pdf", b"%PDF-1.7\n" + bytes(range(256)) * 9, says="is a PDF document, expected text"),
    "png": one("a.png", b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, says="a.png is one picture: name a folder of pictures"),
    "binary": one("a.bin", bytes(range(256)) * 9, says="is a binary file, expected text"),
    "empty": one("a.tsv", "", says="a.tsv is empty, expected text"),
    "blank": one("a.txt", "\n \n\n", says="a.txt is empty, expected text"),
    "missing": Case({}, says="none.tsv: there is no such file", data=("none.tsv",)),
    # ---- dictionary
    "dictionary": one("a.dict", ";;; a comment\n" + lines(W, "{}  {}"), "convert", "dictionary", count=80),
    # ---- what is said
    "an unknown format": one("a.tsv", TSV, says="--format docx: expected one of text, tsv, csv", options={"format": "docx"}),
    "a format that it is not": one("a.txt", "".join(f"{p}\n" for p in P), says="expected --format jsonl, found plain text. Leave it out", options={"format": "jsonl"}),
    "an unknown task": one("a.tsv", TSV, says="--task translate: there is no such task", options={"task": "translate"}),
    "tagging without tags": one("a.txt", "".join(f"{p}\n" for p in P), says="does not hold tagged sentences", options={"task": "tag"}),
    "one label": one("a.csv", written([(t, "positive") for t, _ in R], ("text", "label")), "classify", "csv", "warning: only one label: 80 texts labelled 'positive'"),
    "one target": one("a.tsv", lines(((w, "X") for w, _ in W), "{}\t{}"), "convert", "tsv", "warning: all 80 pairs have the same target"),
    "contradicting labels": one("a.tsv", TSV + lines(((t, "negative") for t, _ in R[:6]), "{}\t{}"), "classify", "tsv", "warning: 3 texts with contradicting labels"),
    "valid is train": Case({"a.tsv": TSV}, "classify", "tsv", "warning: 80 of 80 validation texts are also in the training data", options={"valid": ["a.tsv"]}),
    "test is train": Case({"a.tsv": TSV}, "classify", "tsv", "warning: 80 of 80 test texts are also in the training data", options={"test": ["a.tsv"]}),
    "valid is train, text": one("a.txt", "".join(f"{p}\n" for p in P), "continue", "text", "warning: .*a.txt is training data and validation data", options={"valid": ["a.txt"]}),
    "labels never seen": Case({"a.tsv": TSV, "v.tsv": lines(((t, "neither") for t, _ in reviews(20, 1)), "{}\t{}")}, "classify", "tsv", r"warning: the validation data has 1 label \(neither\), never seen", data=("a.tsv",), options={"valid": ["v.tsv"]}),
    "valid in another form": Case({"a.tsv": TSV, "v.csv": written(reviews(20, 1), ("text", "label"))}, "classify", "tsv", data=("a.tsv",), options={"valid": ["v.csv"]}),
    "valid of few lines": Case({"a.tsv": lines(R, "{1}\t{0}"), "v.tsv": "positive\ta lovely plot\n"}, "classify", "tsv", data=("a.tsv",), options={"valid": ["v.tsv"]}),
    "valid with a fault": Case({"a.tsv": TSV, "v.tsv": "alone\n" + TSV}, says="v.tsv:1: has 1 columns", data=("a.tsv",), options={"valid": ["v.tsv"]}),
    "texts in parts": one("a.tsv", lines(((" ".join([t] * 70), lb) for t, lb in R), "{}\t{}"), "classify", "tsv", "read in parts of that length"),
    "pairs too long": one("a.tsv", lines(W, "{}\t{}"), says=r"expected pairs of at most 1 tokens, found .* that are longer. Try --set data.longest=\d", options={"set": ["data.longest=1"]}),
    "some pairs too long": one("a.tsv", lines(W, "{}\t{}"), "convert", "tsv", r"left out \d+ pairs with more than 5 tokens: --set data.longest=\d+ takes them all", options={"set": ["data.longest=5"]}),
    "rows that repeat": one("a.tsv", "source\ttarget\n" + lines(((w, w.upper() + str(i % 9)) for w, _ in W[:9] for i in range(9)), "{}\t{}"), "convert", "tsv", r"holding out \d of 81 pairs"),
    "a setting that is none": one("a.tsv", TSV, says="there is no setting 'training.rat'", options={"set": ["training.rat=1"]}),
}  # fmt: skip


class Reached(Exception):
    """The first step of a training would begin."""


@dataclass
class Seen:
    """The outcome of a command: whether it is sound, what it says, and the settings of a training."""

    sound: bool
    said: str
    config: Any = None


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return what a training was about to use when it is stopped; memory is not tried."""
    reached: list[Any] = []

    def stop(_: object, run: object, prepared: Any, *__: object) -> None:
        reached.append(prepared)
        raise Reached

    monkeypatch.setattr(Trainer, "__init__", stop)
    monkeypatch.setattr(checking, "expectation", lambda *_: "")
    return reached


def place(case: Case, folder: Path) -> list[str]:
    for name, content in case.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if callable(content):
            content(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(case.data or case.files)


@pytest.fixture(autouse=True)
def shipped_inputs() -> Iterator[None]:
    """The inputs that come with the package: other tests of this process may have added one of their own."""
    everything = dict(INPUTS)
    INPUTS.pop("series", None)
    yield
    INPUTS.clear()
    INPUTS.update(everything)


@shell()
def checked(data: list[str], options: dict[str, Any]) -> Seen:
    try:
        report, sound = checking.check(data, **options)
    except UserError as error:
        return Seen(False, str(error))
    return Seen(sound, report)


@shell()
def trained(data: list[str], options: dict[str, Any], reached: list[Any], capsys: pytest.CaptureFixture[str]) -> Seen:
    capsys.readouterr()
    try:
        training.train(data, out="run", **options)
    except UserError as error:
        return Seen(False, str(error))
    except Reached:
        return Seen(True, capsys.readouterr().err, reached[-1].config)
    raise AssertionError("a training ended without a step")


def plain(text: str) -> set[str]:
    """The lines of a log, without the width of a terminal."""
    return {line.strip() for line in text.splitlines() if line.strip()}


@pytest.mark.parametrize("name", CASES)
def test_a_file_is_recognised_and_check_agrees_with_train(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    data = place(case, tmp_path)
    check, train = checked(data, case.options), trained(data, case.options, stopped, capsys)
    assert check.sound == train.sound, f"check: {check.said}\ntrain: {train.said}"
    assert train.sound == bool(case.task), train.said
    if not case.task:
        assert re.search(case.says, train.said), train.said
        assert re.search(case.says, check.said), check.said
        assert "\n" not in train.said
        return
    config = train.config
    assert (config.task, config.data.format) == (case.task, case.kind), check.said
    assert not case.columns or config.data.columns == case.columns
    assert re.search(case.says, check.said), check.said
    foretold = plain(check.said.partition("`regard train` would say")[2])
    assert foretold - plain(train.said) == set()
    assert any(line.startswith("data.train: ") for line in foretold)
    if case.count is not None:
        assert re.search(rf"data.train: {case.count:,} ", check.said), check.said


def test_there_are_many_kinds_of_files() -> None:
    assert len(CASES) >= 120
