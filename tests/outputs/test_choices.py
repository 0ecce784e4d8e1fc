"""Choices ranked by likelihood: against a loop over elements, with a text before, and with a published GPT-2."""

import io
import json
from pathlib import Path

import pytest
import torch

from regard.commands.predict import predict, text_of
from regard.data.columns import JOINED
from regard.errors import UserError
from regard.exchange import huggingface
from regard.inputs.input import Source, Use
from regard.inputs.tokens import EDGE, Tokens, TokenSettings
from regard.text.tokenizer import END
from tests.exchange import published
from tests.outputs.test_continuation import KINDS, make

CHOICES = ["to be", " question", "e"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["characters", "bpe"])
def test_a_choice_has_the_sum_of_the_log_probabilities_of_its_elements(kind: str, level: str) -> None:
    task = make(kind, level, context=64)
    for text in ("or ", "the"):
        (answer,) = task.answers([text], choices=",".join(CHOICES), before="To be,\n")
        expected = {}
        for choice in CHOICES:
            before, ids = (task.output.prompt(task.input, f"To be,\n{text}{more}") for more in ("", choice))
            same = 0
            while same < min(len(before), len(ids) - 1) and before[same] == ids[same]:
                same += 1
            with torch.no_grad():
                features = task.network.head.features(
                    task.network, Source((torch.tensor([ids]),), torch.arange(len(ids)))
                )
                log_p = task.network.head.output(features)[0].log_softmax(-1)
            expected[choice] = sum(float(log_p[t - 1, ids[t]]) for t in range(same, len(ids)))
        found = dict(answer.ranked)
        assert found == pytest.approx(expected, abs=1e-4)
        assert answer.text == max(expected, key=lambda choice: expected[choice])
        assert [score for _, score in answer.ranked] == sorted(found.values(), reverse=True)


@pytest.mark.parametrize("before", [None, "the dog ran\nthe dog sat\n"], ids=["zero-shot", "few-shot"])
def test_a_published_gpt2_ranks_as_transformers_does(before: str | None, tmp_path: Path) -> None:
    theirs = published.gpt2(tmp_path / "gpt2")
    model = huggingface.take_up(tmp_path / "gpt2", tmp_path / "run")
    prompt, choices = "the cat", [" sat", " ran on", " mat"]
    out = io.StringIO()
    shots = {} if before is None else {"before": before}
    predict(model, iter([[prompt]]), {"choices": ",".join(choices), "seed": 1, **shots}, out, as_json=True)
    ranked = json.loads(out.getvalue())["answers"]
    output, tokens = model.task.output, model.task.input.alphabet
    assert sorted(each["text"] for each in ranked) == sorted(choices)
    for each in ranked:
        given = (before or "") + prompt
        known, ids = (output.prompt(model.task.input, given + more) for more in ("", each["text"]))
        rows = torch.tensor([[tokens.rows[id] for id in ids]])
        with torch.no_grad():
            log_p = theirs(rows).logits[0].log_softmax(-1)
        score = sum(float(log_p[t - 1, rows[0, t]]) for t in range(len(known), len(ids)))
        assert each["score"] == pytest.approx(score, abs=1e-4)


def test_what_goes_before_is_a_text_or_a_file_and_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "shots.txt").write_text("to be\n", encoding="utf-8")
    assert text_of(str(tmp_path / "shots.txt")) == "to be\n"
    assert text_of("to be") == "to be"
    assert text_of(None) is None
    with pytest.raises(UserError, match=r"absent\.txt: cannot be read as UTF-8 text \(No such file"):
        text_of(str(tmp_path / "absent.txt"))
    task = make(context=32)
    plain, told = (task.answers(["or"], longest=4, seed=3, before=b)[0] for b in ("", "To be,\n"))
    assert told.text.startswith("or")
    assert told.given == "To be,\nor"
    same = task.answers(["To be,\nor"], longest=4, seed=3)[0]
    assert told.ids == same.ids
    assert plain.text.startswith("or")


def test_one_choice_is_refused() -> None:
    with pytest.raises(UserError, match="choices yes: expected two answers or more"):
        make().answers(["or"], choices="yes")


@pytest.mark.parametrize("place", [0, -1])
def test_a_column_of_languages_is_a_token(place: int) -> None:
    """At the level of characters too; words that do not repeat stay characters."""
    names = ["de", "fr", "hu"]
    rows = [[name, f"w{i}ord{i}"][:: 1 if place == 0 else -1] for i in range(90) for name in names]
    texts = [JOINED.join(row) for row in rows]
    tokens = Tokens.learn(TokenSettings(level="characters"), Use.SOURCE, texts, None)
    (row,), (other,) = tokens.encode(texts[:2])
    assert [len(row), list(row).count(END)] == [2 + len("w0ord0"), 1]
    own, more = (list(r)[0 if place == 0 else -1] for r in (row, other))
    assert own != more
    view = tokens.view(texts[0])
    assert ("de" in view.names, EDGE in view.names, len(view.names)) == (True, True, len(row))
    (new,) = tokens.encode([JOINED.join(["xx", "word"][:: 1 if place == 0 else -1])])[0]
    assert len(new) == 2 + 1 + 4  # a language that was never seen is read by its characters
