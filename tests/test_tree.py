"""The tree of `src/regard`: few files on its top level, no folders that import each other in a circle, and classes whose
methods are abstract or final."""

import ast
import importlib
import inspect
import pkgutil
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import regard
from tests.messages import messages

ROOT = Path(regard.__file__).parent
TOP_LEVEL = 10  # .py files at most
FORBIDDEN = {
    "attention": {"data", "text", "inputs", "outputs", "backbones"},
    "data": {"inputs", "outputs"},
    "metrics": {"inputs", "outputs", "data"},
    "text": {"data", "inputs", "outputs"},
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(root: Path) -> dict[str, set[str]]:
    """Return the folders (and single files) of a package and which others each imports, wherever in a file it does so."""
    found: dict[str, set[str]] = {}
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).with_suffix("").parts
        targets = {name.split(".")[1] for name in _imported(path, root) if name.count(".")}
        found.setdefault(inside[0], set()).update(targets - {inside[0]})
    return found


def _imported(path: Path, root: Path) -> set[str]:
    """Return the modules of the package that a file imports, by their full names."""
    names: set[str] = set()
    package = [root.name, *path.relative_to(root).parts[:-1]]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            near = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*near, *([node.module] if node.module else [])])
            names |= {f"{module}.{alias.name}" for alias in node.names}
    return {name for name in names if name.split(".")[0] == root.name}


def cycle(graph: dict[str, set[str]], nodes: frozenset[str]) -> list[str]:
    """Return the nodes of one circle of imports, or an empty list."""
    try:
        TopologicalSorter({node: graph[node] & nodes for node in nodes}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_folders_import_each_other_in_a_circle() -> None:
    graph = imports(ROOT)
    assert {"attention", "data", "inputs", "outputs", "runs", "training", "commands"} <= graph.keys()
    assert cycle(graph, frozenset(graph)) == []


@pytest.mark.parametrize("folder", sorted(FORBIDDEN))
def test_what_is_below_does_not_know_what_is_above(folder: str) -> None:
    assert imports(ROOT)[folder] & FORBIDDEN[folder] == set()


def test_a_class_name_means_one_thing() -> None:
    counts = Counter(
        node.name for path in ROOT.rglob("*.py") for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in counts.items() if count > 1} == set()


def overridden(classes: Iterable[type]) -> set[str]:
    """Return the methods of classes that take the place of a concrete one of another of them. A constructor may, and a
    protocol has none."""
    own = {*classes}
    return {
        f"{kind.__qualname__}.{name}"
        for kind in own
        for base in kind.__mro__[1:]
        if base in own and not getattr(base, "_is_protocol", False)
        for name in vars(kind).keys() & vars(base).keys()
        if not name.startswith("__") and _is_concrete(vars(base)[name])
    }


def _is_concrete(member: object) -> bool:
    return inspect.isroutine(member) | isinstance(member, property) and not getattr(
        member, "__isabstractmethod__", False
    )


def test_no_concrete_method_is_overridden() -> None:
    names = [module.name for module in pkgutil.walk_packages(regard.__path__, "regard.")]
    assert len(names) > 100
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    classes = {each for module in modules for each in vars(module).values() if inspect.isclass(each)}
    assert overridden(each for each in classes if each.__module__.startswith("regard.")) == set()


def test_an_overridden_method_is_found_and_an_abstract_one_may_be_written() -> None:
    class Base(ABC):
        @abstractmethod
        def asked(self) -> int: ...

        @property
        def own(self) -> int:
            return 1

        @classmethod
        def made(cls) -> int:
            return 2

    class Good(Base):
        def asked(self) -> int:
            return 3

    class Bad(Good):
        def asked(self) -> int:
            return 4

        own, made = 5, classmethod(lambda _: 6)

    assert overridden([Base, Good]) == set()
    assert {name.rpartition("<locals>.")[2] for name in overridden([Base, Good, Bad])} == {
        "Bad.asked",
        "Bad.own",
        "Bad.made",
    }


def test_few_files_lie_on_the_top_level() -> None:
    assert len(list(ROOT.glob("*.py"))) <= TOP_LEVEL


@pytest.mark.parametrize(
    "late",
    [
        "def f():\n    from pack.b.one import x\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pack.b.one\n",
        "from pack import b\n",
        "from ..b import one\n",
    ],
)
def test_a_circle_is_found_wherever_its_imports_stand(tmp_path: Path, late: str) -> None:
    root = tmp_path / "pack"
    for folder, text in (("a", late), ("b", "from pack.c import y\n"), ("c", "import os\nfrom pack.a.one import z\n")):
        (root / folder).mkdir(parents=True)
        (root / folder / "one.py").write_text(text)
    graph = imports(root)
    assert graph == {"a": {"b"}, "b": {"c"}, "c": {"a"}}
    assert sorted(set(cycle(graph, frozenset(graph)))) == ["a", "b", "c"]
    assert cycle(graph, frozenset("ab")) == []


def test_docstrings_say_the_result() -> None:
    """They begin with a verb or a noun phrase."""
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
                words = (ast.get_docstring(node) or "").split()
                if words and words[0] in ("What", "Whether", "How", "Which", "Where"):
                    found.append(f"{path.relative_to(ROOT)}: {' '.join(words[:6])}")
    assert found == []


def test_no_message_shows_the_name_of_a_variable() -> None:
    """As one does that was meant to be an f-string."""
    said = [(path.relative_to(ROOT), text) for path in sorted(ROOT.rglob("*.py")) for _, text in messages(path)]
    assert len(said) > 1000
    assert [f"{path}: {text}" for path, text in said if re.search(r"{[a-z_.]+}", text)] == []
