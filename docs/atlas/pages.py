"""Pages as they are checked: their blocks, their steps and what these print, their links and pictures."""

import contextlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from textwrap import dedent
from urllib.parse import unquote
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]

# ---- reading a page -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block: what stands behind its fence, the page's line of its first line, and its text."""

    info: str
    line: int
    text: str


def blocks(page: str) -> list[Block]:
    found, fence, info, start, kept = [], "", "", 0, list[str]()
    for number, line in enumerate(page.splitlines(), 1):
        match = re.match(r"\s*(`{3,}|~{3,})\s*(.*?)\s*$", line)
        if not fence and match:
            fence, info, start, kept = match[1], match[2], number + 1, []
        elif fence and match and match[1].startswith(fence) and not match[2]:
            found.append(Block(info, start, dedent("\n".join(kept))))
            fence = ""
        elif fence:
            kept.append(line)
    assert not fence, f"the block that begins at line {start} is never closed"
    return found


def prose(page: str) -> str:
    """Return the page without its fenced blocks, line for line."""
    lines = page.splitlines()
    for block in blocks(page):
        end = block.line + len(block.text.splitlines())
        lines[block.line - 2 : end] = [""] * (end - block.line + 2)
    return "\n".join(lines)


def python_of(page: str) -> list[Block]:
    """Return the python blocks; every other way to write their fence is refused, so that none escapes being run."""
    found = []
    for block in blocks(page):
        if re.match(r"py", block.info, re.IGNORECASE):
            assert block.info == "python", f"line {block.line - 1}: write ```python alone, found ```{block.info}"
            found.append(block)
    return found


def name(page: Path) -> str:
    """Return a page's path below the root, as its pictures carry it."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


# ---- its steps ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Python blocks that follow each other, or a command; where it stands, and what the page says that it prints."""

    line: int
    python: tuple[Block, ...]
    command: str
    quoted: tuple[str, ...]


@dataclass(frozen=True)
class Done:
    """A step that has run: what it printed, and its seconds of processor time without the imports of the software."""

    step: Step
    printed: str
    seconds: float


class Failed(Exception):
    """A step that failed, in a sentence with the page and the line, and what was printed."""


def steps(page: str) -> list[Step]:
    """Return the python and the lines that begin with `$ `, in the page's order.

    Quoted output is what follows a command in its block, and a block without a name (or `text`) after a step.
    """
    found: list[Step] = []
    python_of(page)
    for block in blocks(page):
        if block.info == "python":
            if found and found[-1].python and not found[-1].quoted:
                found[-1] = Step(found[-1].line, (*found[-1].python, block), "", ())
            else:
                found.append(Step(block.line, (block,), "", ()))
        elif block.info == "console":
            for number, line in enumerate(block.text.splitlines(), block.line):
                if line.startswith("$ "):
                    found.append(Step(number, (), line[2:], ()))
                elif found:
                    found[-1] = _quoting(found[-1], [line])
        elif block.info in ("", "text") and found:
            found[-1] = _quoting(found[-1], block.text.splitlines())
    return found


def _quoting(step: Step, lines: list[str]) -> Step:
    return Step(step.line, step.python, step.command, (*step.quoted, *lines))


def execute(page: str, python: list[tuple[int, str]]) -> None:
    """Run python blocks one after the other; empty lines before each make every line number that of the page."""
    namespace = {"__name__": "__main__"}
    for line, text in python:
        exec(compile("\n" * (line - 1) + text, page, "exec"), namespace)


DRIVER = f"""
{inspect.getsource(execute)}
import json, sys, time
import regard.attention, regard.pictures.style

sys.argv, page, python = json.load(sys.stdin)
start = time.process_time()
execute(page, python)
print("\\nto the end in", time.process_time() - start)
"""


def run_python(page: Path, python: tuple[Block, ...], folder: Path, limit: float) -> tuple[str, float]:
    """Run blocks in a process of their own inside `folder`; return what they printed and their seconds."""
    given = json.dumps([[name(page)], str(page), [(b.line, b.text) for b in python]])
    command = [sys.executable, "-c", DRIVER]
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, cwd=folder, env=environment(), timeout=limit, check=False
    )
    if done.returncode == 0 and (end := re.search(r"\nto the end in (\S+)\n\Z", done.stdout)):
        return done.stdout[: end.start()], float(end[1])
    lines = re.findall(rf'File "{re.escape(str(page))}", line (\d+)', done.stderr)
    said = done.stderr.strip() or f"it ended before its last block, with exit code {done.returncode}"
    raise Failed(f"{page.name}:{lines[-1] if lines else '?'}: {said.splitlines()[-1]}\n\n{said}")


def run_here(page: Path, folder: Path) -> str:
    """Run all python of a page in this process, inside `folder`; return what it printed."""
    printed, given = io.StringIO(), sys.argv
    try:
        sys.argv = [name(page)]
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            execute(str(page), [(b.line, b.text) for b in python_of(page.read_text(encoding="utf-8"))])
    finally:
        sys.argv = given
    return printed.getvalue()


def run_command(page: Path, step: Step, folder: Path, limit: float) -> tuple[str, float]:
    """Run a command in a shell inside `folder`; return what it printed, as a terminal shows it, and its seconds."""
    before = getrusage(RUSAGE_CHILDREN)
    command = ["bash", "-o", "pipefail", "-c", step.command]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment(),
        timeout=limit, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"{page.name}:{step.line}: {step.command}\nexit {done.returncode}: {done.stdout}")
    after = getrusage(RUSAGE_CHILDREN)
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def environment() -> dict[str, str]:
    """Return the surroundings of a step: the software of this interpreter and of this tree, one thread, no colours."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    given.pop("REGARD_DEBUG", None)
    return given


def follow(page: Path, folder: Path, limit: float = 240) -> Iterator[Done]:
    """Run every step of a page in order inside `folder`; the first that fails ends it."""
    for step in steps(page.read_text(encoding="utf-8")):
        if step.python:
            printed, seconds = run_python(page, step.python, folder, limit)
        else:
            printed, seconds = run_command(page, step, folder, limit)
        yield Done(step, printed, seconds)


def unprinted(quoted: tuple[str, ...], printed: str) -> list[str]:
    """Return the quoted lines that were not printed in this order; `…` stands for anything."""
    missing, lines, at = [], [" ".join(line.split()) for line in printed.splitlines()], 0
    for line in quoted:
        if not line.strip("… "):
            continue
        pattern = ".*".join(re.escape(part) for part in " ".join(line.split()).split("…"))
        found = next((n for n in range(at, len(lines)) if re.fullmatch(pattern, lines[n])), None)
        if found is None:
            missing.append(line)
        else:
            at = found + 1
    return missing


# ---- links --------------------------------------------------------------------------------------------------------


def links(page: str) -> list[tuple[int, str]]:
    """Return (line, target) of every link and picture that is not an address on the web."""
    patterns = (r"\]\(<?([^)\s>]+)>?(?:\s[^)]*)?\)", r"^\s*\[[^\]]+\]:\s+(\S+)", r"(?:href|src)=\"([^\"]+)\"")
    found = []
    for number, line in enumerate(prose(page).splitlines(), 1):
        bare = re.sub(r"`[^`]*`", "``", line)
        found += [(number, target) for pattern in patterns for target in re.findall(pattern, bare)]
    return [(number, target) for number, target in found if not re.match(r"[a-z]+:", target)]


def anchors(page: str) -> set[str]:
    """Return the names GitHub gives to headings: small letters, hyphens for spaces, no signs, numbered if repeated."""
    found: set[str] = set(re.findall(r"(?:id|name)=\"([^\"]+)\"", page))
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", prose(page), re.MULTILINE):
        text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        plain = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = sum(1 for a in found if re.fullmatch(re.escape(plain) + r"(-\d+)?", a))
        found.add(f"{plain}-{count}" if count else plain)
    return found


def broken(page: Path, root: Path) -> list[str]:
    """Return a sentence for each link that leads nowhere."""
    faults = []
    for number, target in links(page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        file = (page.parent / unquote(path)).resolve() if path else page
        if not file.is_relative_to(root) or not file.exists() or (file.is_file() and not file.stat().st_size):
            faults.append(f"line {number}: there is no file {path}")
        elif anchor and not anchored(file, anchor):
            faults.append(f"line {number}: {file.name} has no place #{anchor}")
    return faults


def anchored(file: Path, anchor: str) -> bool:
    text = file.read_text(encoding="utf-8")
    if lines := re.fullmatch(r"L(\d+)(?:-L(\d+))?", anchor):
        return int(lines[2] or lines[1]) <= len(text.splitlines())
    return file.suffix == ".md" and anchor in anchors(text)


# ---- pictures -----------------------------------------------------------------------------------------------------


def looks_like(one: Path, other: Path) -> bool:
    """Return whether two pictures have the same size and nearly the same pixels; fonts differ between versions."""
    import numpy as np
    from matplotlib.image import imread

    if not one.exists():
        return False
    a, b = imread(one), imread(other)
    return a.shape == b.shape and bool(np.mean(np.abs(a - b) > 0.25) < 0.02)


def origin_of(picture: Path) -> tuple[str, str]:
    """Return what a PNG or SVG file says that it was drawn by: the software with its version, and the command."""
    if picture.suffix == ".png":
        from PIL import Image

        with Image.open(picture) as opened:
            return str(opened.info.get("Software", "")), str(opened.info.get("Description", ""))
    texts = {
        node.tag.rpartition("}")[2]: "".join(node.itertext()).strip() for node in ElementTree.parse(picture).iter()
    }
    return texts.get("creator", ""), texts.get("description", "")
