"""The site: it builds without a warning, every page is in its navigation, and links that work on GitHub work there."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from docs.site import cheatsheet, links, reference

from regard.attention import Rolling, padding
from regard.commands.app import COMMANDS
from regard.config import keys_of
from regard.inputs import INPUTS
from regard.outputs import OUTPUTS
from regard.runs import settings
from tests.browser import browser, needs_browser
from tests.test_docs import ROOT, help_of


@pytest.mark.parametrize(
    ("target", "becomes"),
    [
        ("../src/regard/task.py", "source/src/regard/task.py.md"),
        ("../src/regard/task.py#L3-L9", "source/src/regard/task.py.md#__codelineno-0-3"),
        ("../CONTRIBUTING.md#the-tree", "source/CONTRIBUTING.md#the-tree"),
        ("../recipes", "source/recipes/index.md"),
        ("tasks.md#what-is-recognised", "tasks.md#what-is-recognised"),
        ("#here", "#here"),
        ("https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_links_lead_to_pages_of_the_site(target: str, becomes: str) -> None:
    page = '[a]({0}) ![b]({0} "c") <a href="{0}">\n[d]: {0}\n`[e]({1})`\n```\n[f]({1})\n```\n'
    assert links.in_site(page.format(target, target), "docs/page.md") == page.format(becomes, target)


def test_links_start_at_the_page() -> None:
    assert links.in_site("[a](docs/images.md)", "CONTRIBUTING.md") == "[a](../images.md)\n"
    assert links.in_site("[a](../../src/regard/task.py)", "docs/atlas/a.md") == "[a](../source/src/regard/task.py.md)\n"
    assert links.in_site("[a](../images.md) ![](pictures/a.png)", "docs/atlas/a.md") == (
        "[a](../images.md) ![](pictures/a.png)\n"
    )
    assert links.outside("[a](../recipes) [b](tasks.md) [c](../gone.py) [d](https://x.org)", "docs/a.md") == {"recipes"}


def test_lists_are_lists_in_the_site_too() -> None:
    given = "text\n- a\n- b\n  goes on\n- c\n\n1. d\n```\ntext\n- e\n```\n"
    assert links.spaced(given) == given.replace("text\n- a", "text\n\n- a")


# ---- the reference ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", reference.PAGES)
def test_the_reference_says_what_the_code_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {name: made for name, made in reference.INPUTS.items() if made.__module__.startswith("regard.")}
    monkeypatch.setattr(reference, "INPUTS", own)  # other tests add inputs of theirs
    kept = (reference.FOLDER / page).read_text(encoding="utf-8")
    assert kept == reference.PAGES[page](), f"docs/reference/{page} is stale: python -m docs.site.reference"


def test_every_setting_and_option_has_a_line() -> None:
    """By another way than the pages are written: what is written into a run, and what a command answers to --help."""
    page = (reference.FOLDER / "settings.md").read_text(encoding="utf-8")
    for task, output in OUTPUTS.items():
        for source in (name for name, input in INPUTS.items() if not output.needs - input.offers):
            given = settings.make({"task": task, "input": source, "data": {"train": ["a"]}}, "here")
            for key in keys_of(given.model_dump()):
                listed = key.replace("encoder.", "model.") if key != "encoder.kind" else key  # the same kinds
                assert key in ("task", "input") or f"| `{listed}` |" in page, key
    page = (reference.FOLDER / "commands.md").read_text(encoding="utf-8")
    for command in COMMANDS:
        section = page.partition(f"## regard {command}\n")[2].partition("\n## ")[0]
        options = re.findall(r"^ +(?:-\w, )?(--[a-z][\w-]*)", str(help_of(command)), re.MULTILINE)
        assert "--help" in options
        assert not [option for option in options if f"`{option}`" not in section and option != "--help"], command


def test_the_cheat_sheet_sees_what_a_layer_does() -> None:
    """The trials tell apart layers of which each lacks one thing."""
    row = cheatsheet.ROWS[0]
    ahead = replace(row, mask=lambda n, back: padding)  # looks ahead though it was asked not to
    deaf = replace(row, mask=lambda n, back: type("Deaf", (), {"__rand__": lambda self, rule: padding})())
    assert (cheatsheet.looks_back(row), cheatsheet.looks_back(ahead)) == ("yes", "no")
    assert (cheatsheet.obeys(row), cheatsheet.obeys(replace(deaf, layer=row.layer))) == ("yes", "no")
    assert cheatsheet.tried(cheatsheet.steps, replace(row, start=lambda: Rolling(2)))[0] == "no", "it forgets too soon"
    assert cheatsheet.growth(row) == "n²"


# ---- the whole ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_builds_without_a_warning_and_asks_no_other_server(built: Path) -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = (built / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|iframe|source)[^>]*\bsrc=\"?(https?:[^\">]+)", text)
        fetched += re.findall(r"<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?(https?:[^\">]+)", text)
        assert not fetched, page.name
    assert "\\|" not in (built / "reference/commands.html").read_text(encoding="utf-8"), "as in DATA… | CONFIG"
    assert "def attend(" in re.sub(r"<[^>]+>", "", (built / "source/src/regard/attention/equation.py.html").read_text())


@needs_browser
def test_from_the_disk_the_site_is_searched_and_its_commands_are_copied_without_prompts(built: Path) -> None:
    with browser() as driver:
        driver.get((built / "tutorials/images.html").as_uri())
        driver.set_script_timeout(60)
        found = driver.execute_async_script("""
            const [done] = arguments, field = document.querySelector(".md-search__input");
            field.focus(); field.value = "doubly stochastic"; field.dispatchEvent(new Event("input", { bubbles: true }));
            const look = () => [...document.querySelectorAll("a.md-search-result__link")].map((link) => link.href);
            const timer = setInterval(() => { if (look().length) { clearInterval(timer); done(look()); } }, 100);
        """)
        assert any("images.html" in address or "c16" in address for address in found), found
        copied = driver.execute_script("""
            const block = [...document.querySelectorAll("pre code")].find((each) => each.innerText.includes("$ regard predict"));
            block.setAttribute("data-md-copying", "");  // as the button of the theme does
            return block.innerText;
        """)
        assert re.fullmatch(r"regard predict [^\n]+\s+regard show [^\n]+\s*", copied), copied
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
