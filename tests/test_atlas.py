"""The atlas: quick pages run and draw what they show, the table is fresh, and what is wrong is named."""

import json
import shlex
from pathlib import Path

import pytest
import torch
from docs.atlas import catalogue, run, source
from docs.atlas.pages import ROOT, looks_like, name, origin_of, run_here, steps, unprinted

ENTRIES = [catalogue.entry(page) for page in catalogue.pages()]
SECONDS = json.loads(run.SECONDS.read_text())
QUICK = [
    each.page
    for each in ENTRIES
    if SECONDS.get(each.page.stem, run.QUICK) < run.QUICK and all(s.python for s in steps(each.text))
]


@pytest.mark.parametrize("page", QUICK, ids=name)
def test_quick_pages_print_and_draw_what_they_show(page: Path, tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    with torch.random.fork_rng():
        printed = run_here(page, tmp_path)
    quoted = tuple(line for step in steps(page.read_text(encoding="utf-8")) for line in step.quoted)
    assert unprinted(quoted, printed) == []
    for drawn in sorted(tmp_path.glob("pictures/*.png")):
        shown = page.parent / "pictures" / drawn.name
        assert looks_like(shown, drawn), f"{name(shown)} is not what {name(page)} draws: make atlas PAGES={page.stem}"


def test_each_row_has_its_page() -> None:
    assert catalogue.missing(ENTRIES) == []


def test_each_cell_leads_somewhere() -> None:
    assert [fault for each in ENTRIES for fault in catalogue.faults(each)] == []


def test_the_table_is_fresh() -> None:
    written = (catalogue.FOLDER / "index.md").read_text(encoding="utf-8")
    assert written == catalogue.index(ENTRIES), "python -m docs.atlas.catalogue writes it again"


def test_each_picture_says_which_page_or_command_drew_it() -> None:
    for each in ENTRIES:
        commands = [shlex.split(step.command) for step in steps(each.text) if step.command]
        for cell in each.cells["picture"]:
            if not cell.startswith("n/a"):
                _, said = origin_of(catalogue.FOLDER / cell)
                assert said == name(each.page) or shlex.split(said) in commands, f"make atlas PAGES={each.page.stem}"


def test_each_page_was_run_and_each_picture_is_shown() -> None:
    assert sorted(SECONDS) == sorted(each.page.stem for each in ENTRIES)
    shown = {cell for each in ENTRIES for cell in each.cells["picture"]}
    assert {f"pictures/{file.name}" for file in (catalogue.FOLDER / "pictures").iterdir()} <= shown


# ---- the checks themselves

PAGE = """---
row: A1
title: Memory
code: [src/regard/attention/scores.py dot, src/regard/attention/scores.py MLP.compare]
test: [tests/test_atlas.py::test_what_is_wrong_with_a_page_is_named]
command: regard --help
picture: "n/a: exact"
result: index.md#the-mechanism
paper: nobody 2026
---

# A1. Memory
<!-- source: src/regard/attention/scores.py dot -->
```console
$ regard --help
```
**Measured.** Elsewhere 81.5, here 92.3 % in 1,000 steps, to 10⁻⁵ ([there](results.md#ours)).
"""
RESULTS = "# Theirs\n81.5\n# Ours\n92.28 after 1,000 steps\n## In detail\n81.49\n# Others\n92.4\n"
WRONG = {
    ("scores.py dot,", "scores.py dto,"): "code: src/regard/attention/scores.py: there is no 'dto' in it",
    ("MLP.compare", "MLP.dot"): "code: src/regard/attention/scores.py: there is no 'MLP.dot' in it",
    ("::test_what", "::test_that"): "test: tests/test_atlas.py: there is no 'test_that_is_wrong",
    ("tests/test_atlas", "tests/test_nothing"): "test: tests/test_nothing.py: there is no such file",
    ("command: regard --help", "command: regard"): "command: 'regard' is no command of the page",
    ("command: regard --help", "command: python"): "command: the page has no python",
    ('"n/a: exact"', "pictures/none.png"): "picture: there is no file pictures/none.png",
    ("n/a: exact", "n/a: lazy"): "picture: 'n/a: lazy' has no known reason",
    ("index.md#the-mechanism", "index.md#no"): "result: index.md has no place 'no'",
    ("index.md#the-mechanism", "seconds.json#no"): "result: seconds.json has no place 'no'",
    ("index.md#the-mechanism", "nothing.md#no"): "result: there is no file nothing.md",
    ("# A1. Memory", "# Memory"): "expected the heading '# A1. Memory'",
    ("row: A1", "row: A2"): "row A2 does not begin the file's name",
    ("row: A1", "row: A13"): "row A13 does not begin the file's name",
    ("row: A1\n", "row: a1\n"): "row a1: expected one of A1 to A12, B1 to B8,",
    ("here 92.3 %", "here 92.4 %"): "'92.4' under Measured stands in none of the sections that are linked there",
    ("py dot -->", "py dots -->"): "src/regard/attention/scores.py: there is no 'dots' in it",
    ("<!-- source: src/regard/attention/scores.py dot -->\n", ""): "no line of the source is shown",
}


@pytest.mark.parametrize("change", WRONG, ids=lambda change: change[1] or change[0])
def test_what_is_wrong_with_a_page_is_named(
    change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "ROOT", tmp_path)
    page = tmp_path / "a1-memory.md"
    for file in ("index.md", "seconds.json"):
        (tmp_path / file).write_text((catalogue.FOLDER / file).read_text())
    (tmp_path / "results.md").write_text(RESULTS)
    page.write_text(PAGE)
    assert catalogue.faults(catalogue.entry(page)) == []
    assert change[0] in PAGE
    page.write_text(PAGE.replace(*change))
    found = "\n".join(catalogue.faults(catalogue.entry(page)))
    assert f"a1-memory.md: {WRONG[change]}" in found


def test_front_matter_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    page = tmp_path / "a1-memory.md"
    for text, fault in {
        "# A1": "expected front matter",
        "---\n---\n# A1": "lacks row, title",
        PAGE.replace('"n/a: exact"', "n/a: exact"): "is no YAML",
        PAGE.replace("paper: nobody 2026\n", ""): "lacks paper",
    }.items():
        page.write_text(text)
        with pytest.raises(ValueError, match=f"a1-memory.md: .*{fault}"):
            catalogue.entry(page)


def test_rows_without_a_page_or_with_two_are_named() -> None:
    found = catalogue.missing([*ENTRIES, ENTRIES[0]])
    assert f"row {ENTRIES[0].row}: 2 pages" in found
    without = catalogue.missing([each for each in ENTRIES if each.row != "A5"])
    assert "row A5 has no page" in without


def test_source_is_included_and_linked() -> None:
    file = "src/regard/attention/scores.py"
    page = f"before\n<!-- source: {file} dot, Additive.forward -->\nafter"
    expanded = source.expand(page)
    first, last = source.lines_of(file, "Additive.forward")
    assert (
        f"[`Additive.forward` in scores.py](../../{file}#L{first}-L{last}):\n\n```python\ndef forward(self" in expanded
    )
    code = (ROOT / file).read_text().splitlines()
    assert code[first - 1].strip().startswith("def forward(")
    assert code[last - 1].strip() == "return self.compare(self.q_proj(query(q)), self.k_proj(k))"
    assert expanded.startswith("before\n[`dot` in scores.py]")
    assert expanded.endswith("```\nafter")
    with pytest.raises(ValueError, match=r"scores.py: there is no 'dott' in it"):
        source.expand(f"<!-- source: {file} dott -->")


def test_quoted_output_is_compared() -> None:
    page = "```\nequation\n```\n```python\nprint(1)\n```\n```text\n1\n```\n```console\n$ echo a\na\n$ echo b\n…\n```\n"
    python, one, two = steps(page)
    assert (python.quoted, one.command, one.quoted, two.quoted) == (("1",), "echo a", ("a",), ("…",))
    printed = "epoch 1 in 3 s\nepoch 2 in 4 s\nscore 0.51\n"
    assert unprinted(("epoch 1 in … s", "…", "score  0.51"), printed) == []
    assert unprinted(("score 0.52",), printed) == ["score 0.52"]
    assert unprinted(("score 0.51", "epoch 2 in 4 s"), printed) == ["epoch 2 in 4 s"]


def test_a_page_that_fails_is_a_fault_of_the_run(tmp_path: Path) -> None:
    page = tmp_path / "a1-memory.md"
    page.write_text("```console\n$ echo one\ntwo\n$ false\n```\n")
    (tmp_path / "fresh").mkdir()
    _, faults = run.run(page, tmp_path / "fresh")
    assert [fault.splitlines()[0] for fault in faults] == [
        "a1-memory.md:2: it no longer prints 'two', but",
        "a1-memory.md:4: false",
    ]
