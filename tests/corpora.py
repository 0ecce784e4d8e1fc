"""Large generated corpora, and how much memory a command takes for them: used by the short and by the long test."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SETTINGS = """
task: convert
data: {{train: [{train}], valid: [{valid}]}}
tokens: {{level: symbols, size: 2000}}
output: {{level: symbols, joint: true}}
model: {{kind: recurrent, width: 8, attention: dot, feeding: false}}
training: {{budget: 500, steps: 3, minutes: null, every: 3}}
"""


def write_corpus(folder: Path, pairs: int, words: int) -> Path:
    """Pairs of about `words` random words a side out of 1,500, and settings to train on them; returns the settings."""
    folder.mkdir()
    generator = np.random.default_rng(pairs)
    names = np.array([f"w{number:04d}" for number in range(1500)])

    def write(path: Path, count: int) -> Path:
        with path.open("w", encoding="utf-8") as file:
            for _ in range(count):
                sides = (generator.integers(len(names), size=generator.integers(words // 2, 2 * words)) for _ in "st")
                file.write("\t".join(" ".join(names[side]) for side in sides) + "\n")
        return path

    text = SETTINGS.format(train=write(folder / "train.tsv", pairs), valid=write(folder / "valid.tsv", 4))
    (folder / "settings.yaml").write_text(text, encoding="utf-8")
    return folder / "settings.yaml"


def size_of(settings: Path) -> int:
    """Bytes of a corpus as text and, once it has been trained on, as stored tokens."""
    return sum(path.stat().st_size for path in [settings.parent / "train.tsv", *settings.parent.glob("run/cache/*/*")])


def train(settings: Path, limit: int | None = None) -> tuple[dict[str, int], str]:
    """Train in a process of its own, with at most `limit` bytes of private memory; the most that it had of each kind of
    memory, and what it said. What is mapped from files (programs, stored tokens) is not private, and not limited."""

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    command = [sys.executable, "-m", "regard", "train", str(settings), "-o", str(settings.parent / "run")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=limited)
    most = {"RssAnon": 0, "VmData": 0}
    while process.poll() is None:
        for line in _status(process.pid):
            key, _, value = line.partition(":")
            if key in most:
                most[key] = max(most[key], 1024 * int(value.split()[0]))
        time.sleep(0.01)
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    assert process.returncode == 0, said[-2000:]
    return most, said


def _status(process: int) -> list[str]:
    try:
        return Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return []  # it has just ended
