"""Finished runs of version 0.1 load, and answer as version 0.1 did.

`old/` holds twelve of them, each with what a model is loaded from and no more, and the first lines of their data;
`old/answers.json` is what version 0.1 itself answered: `predict`, `predict --json` and `evaluate`.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import regard
from regard.errors import UserError
from regard.runs import settings, upgrade
from regard.runs.model import settings_in

OLD = Path(__file__).parent / "old"
ANSWERS: dict[str, dict[str, Any]] = json.loads((OLD / "answers.json").read_text(encoding="utf-8"))


def flat(found: Any, where: str = "") -> dict[str, Any]:
    """All values of nested objects and lists by where they stand, so that numbers are compared nearly."""
    if not isinstance(found, dict | list):
        return {where: found}
    keys = found.items() if isinstance(found, dict) else enumerate(found)
    return {place: value for key, inner in keys for place, value in flat(inner, f"{where}.{key}").items()}


def compare(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    mine, theirs = flat(found), flat(expected)
    assert mine.keys() == theirs.keys()
    for place, value in theirs.items():
        same = pytest.approx(value, abs=tolerance) if isinstance(value, float) else value
        assert mine[place] == same, place


@pytest.mark.parametrize("name", ANSWERS)
def test_a_run_of_version_0_1_answers_as_before(name: str) -> None:
    expected = ANSWERS[name]
    model = regard.load(OLD / name)
    texts, changes = expected["texts"], expected["changes"]
    assert model.predict(texts, **changes) == expected["answers"]
    lines = model.task.lines(texts, 0, changes, with_score=False, as_json=True)
    compare([json.loads(line) for line in lines], expected["objects"])
    scores, answers = model.evaluate([OLD / expected["data"]])
    assert answers == expected["evaluated"]
    compare({score.name: score.value for score in scores}, expected["scores"])


def test_every_task_and_every_kind_of_its_network_is_there() -> None:
    configs = [settings_in(OLD / name)[0] for name in ANSWERS]
    assert {config.task for config in configs} == {"convert", "tag", "classify", "continue", "fill"}
    assert {config.model.kind for config in configs} == {
        "recurrent", "transformer", "bert", "gpt", "transformer-xl", "xlnet",
    }  # fmt: skip
    assert any(getattr(config.model, "ngrams", 1) > 1 for config in configs)
    assert sum(path.stat().st_size for path in OLD.rglob("*") if path.is_file()) < 1e6


def test_its_settings_have_today_s_names() -> None:
    text = (OLD / "convert_recurrent" / "config.yaml").read_text(encoding="utf-8")
    assert "source_level: characters" in text
    config, old = settings_in(OLD / "convert_recurrent")
    assert old
    assert (config.input, config.tokens.level, config.output.level) == ("tokens", "characters", "characters")
    config = settings_in(OLD / "continue_gpt")[0]
    assert config.output.context == 32
    given = {"task": "convert", "data": {"train": ["a"]}, "tokens": {"source_level": "words"}}
    assert settings.make(given, "here").tokens.level == "words"
    given["tokens"]["level"] = "characters"  # type: ignore[index]
    assert settings.make(given, "here").tokens.level == "characters", "the new name counts"


def test_a_damaged_one_is_refused(tmp_path: Path) -> None:
    run = Path(shutil.copytree(OLD / "tag", tmp_path / "run"))
    (run / "tags.json").write_bytes((run / "tags.json").read_bytes().replace(b"PER", b"ORG"))
    with pytest.raises(UserError, match=r"tags\.json has changed since it was written"):
        regard.load(run)


def test_weights_that_have_no_place_are_refused(tmp_path: Path) -> None:
    """Every weight of the file has a place in the network, and the other way round."""
    found = load_file(OLD / "convert_recurrent" / "model.safetensors")
    renamed = upgrade.weights(found, "convert")
    assert len(renamed) == len(found)
    assert {*renamed} == {name for name, _ in regard.load(OLD / "convert_recurrent").network.named_parameters()}
    run = Path(shutil.copytree(OLD / "convert_recurrent", tmp_path / "run"))
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("attention: additive", "attention: dot"), encoding="utf-8")
    with pytest.raises(UserError, match=r"does not fit the model its config\.yaml describes"):
        regard.load(run)


def test_it_can_be_started_from(tmp_path: Path) -> None:
    model = regard.train(OLD / "pairs.tsv", tmp_path / "run", start=OLD / "convert_recurrent", steps=1, quiet=True)
    assert model.config.output.level == "characters"
    assert model.predict(["dea"])
