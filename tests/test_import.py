"""The cost of importing: `import regard` without torch, `import regard.attention` with nothing but torch."""

import subprocess
import sys


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_regard_does_not_import_torch() -> None:
    assert (
        run("import sys, regard; print(any(m.split('.')[0] in ('torch', 'numpy', 'matplotlib') for m in sys.modules))")
        == "False"
    )


def test_attention_imports_nothing_beyond_torch() -> None:
    code = """
import sys, torch
before = set(sys.modules)
import regard.attention
print(sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))
print([m for m in set(sys.modules) - before if m.startswith('torch.')])
"""
    assert run(code).splitlines() == ["['regard']", "[]"]


def test_unknown_names_are_attribute_errors() -> None:
    assert run("import regard; print(hasattr(regard, 'nonsense'), hasattr(regard, 'watch'))") == "False True"


def test_predicting_loads_nothing_that_only_other_commands_need() -> None:
    heavy = ("matplotlib", "transformers", "tensorboard", "ctranslate2", "sacrebleu", "scipy", "babel")
    assert (
        run(
            f"import sys, regard.commands.predict, regard.exchange.engine; print([m for m in {heavy} if m in sys.modules])"
        )
        == "[]"
    )
