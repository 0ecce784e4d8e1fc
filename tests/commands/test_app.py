"""The commands as a user runs them: what goes in, what comes out, in which order and how soon."""

import json
import os
import random
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard
from regard.commands import predict as predicting
from regard.commands.app import spread
from regard.runs import settings
from tests.conftest import SPELLED, Regard

COMMAND = [sys.executable, "-c", "from regard.commands.app import main; main()"]
PLAIN = {**os.environ, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}


def words(count: int, seed: int = 7) -> list[str]:
    chosen = random.Random(seed)
    return ["".join(chosen.choices("abcdefghij", k=chosen.randint(2, 6))) for _ in range(count)]


def sentences(count: int) -> list[str]:
    chosen = random.Random(3)
    return [" ".join(chosen.choices(SPELLED, k=chosen.randint(1, 6))) for _ in range(count)]


# ---- predict -------------------------------------------------------------------------------------------------------


def test_one_line_out_for_each_line_in(cli: Regard, letters: Path) -> None:
    texts = ["bad", "", "   ", "cafe", "\t", "", "xyz?", "bad", "", "ジ", ""]
    answers = cli.lines("predict", letters / "run", given="\n".join(texts) + "\n")
    assert len(answers) == len(texts)
    assert [answers[i] for i in (0, 3, 7)] == ["BAD", "CAFE", "BAD"]
    assert [answers[i] for i in (1, 2, 4, 5, 8, 10)] == [""] * 6


@pytest.mark.parametrize(
    "options", [["--with-score"], ["--alignment", "soft"], ["--json"], ["--sample"], ["--beam", "1"]]
)
def test_empty_lines_keep_their_place_whatever_is_shown(cli: Regard, letters: Path, options: list[str]) -> None:
    assert len(cli.lines("predict", letters / "run", *options, given="\nab\n \n\n")) == 4


@pytest.mark.parametrize(
    ("given", "count"), [("", 0), ("\n", 1), ("ab", 1), ("ab\n", 1), ("ab\ncd", 2), ("ab\r\ncd\r\n", 2)]
)
def test_the_last_line_may_end_or_not(cli: Regard, letters: Path, given: str, count: int) -> None:
    assert cli.run("predict", letters / "run", given=given).count("\n") == count


def test_a_byte_order_mark_is_no_part_of_the_first_line(cli: Regard, letters: Path) -> None:
    with_mark, without = (
        cli.lines("predict", letters / "run", "--json", given=f"{mark}cafe\nbad\n") for mark in ("\ufeff", "")
    )
    assert with_mark == without


def test_blanks_around_a_text_change_nothing(cli: Regard, letters: Path) -> None:
    first, second = cli.lines("predict", letters / "run", "--with-score", "  cafe\u3000", "cafe")
    assert first == second


def test_more_lines_than_are_taken_together_stay_in_order(cli: Regard, letters: Path) -> None:
    texts = words(predicting.AHEAD + 90)
    answers = cli.lines("predict", letters / "run", "--beam", "1", given="\n".join(texts))
    assert len(answers) == len(texts)
    assert sum(answer == text.upper() for text, answer in zip(texts, answers, strict=True)) > 0.7 * len(texts)


@pytest.mark.parametrize("options", [[], ["--beam", "1"], ["--n-best", "3"]])
@pytest.mark.parametrize("name", ["letters", "numbers"])
def test_the_answer_is_the_same_alone_in_a_batch_and_in_any_order(
    cli: Regard, request: pytest.FixtureRequest, name: str, options: list[str]
) -> None:
    run = request.getfixturevalue(name) / "run"
    texts = words(12) if name == "letters" else sentences(12)
    shuffled = random.Random(1).sample(texts, len(texts))
    together, mixed = (
        {item["source"]: item["answers"] for item in cli.objects("predict", run, *options, given="\n".join(lines))}
        for lines in (texts, shuffled)
    )
    for text in texts:
        (alone,) = cli.objects("predict", run, text, *options)
        for other in (together[text], mixed[text]):
            assert [answer["text"] for answer in other] == [answer["text"] for answer in alone["answers"]]
            for one, two in zip(other, alone["answers"], strict=True):
                assert one["score"] == pytest.approx(two["score"], abs=1e-4)


def test_json_lines_hold_what_they_should(cli: Regard, letters: Path) -> None:
    (item,) = cli.objects("predict", letters / "run", "cafe")
    assert item.keys() == {"source", "answers"}
    assert item["source"] == "cafe"
    assert item["answers"][0].keys() == {"text", "score", "normalised", "finished"}
    assert item["answers"][0]["text"] == "CAFE"
    assert item["answers"][0]["finished"] is True
    (more,) = cli.objects("predict", letters / "run", "cafe", "--alignment", "hard")
    assert more["answers"][0].keys() == item["answers"][0].keys() | {"tokens", "source_tokens", "alignment"}
    assert more["answers"][0]["source_tokens"] == list("cafe")
    assert more["answers"][0]["tokens"] == list("CAFE")


def test_the_n_best_are_sorted_and_distinct(cli: Regard, letters: Path) -> None:
    for item in cli.objects("predict", letters / "run", "--n-best", "7", "--length-penalty", "0", *words(5)):
        answers = item["answers"]
        assert len(answers) == 7, "--n-best alone widens the beam"
        assert len({answer["text"] for answer in answers}) == 7
        scores = [answer["score"] for answer in answers]
        assert scores == sorted(scores, reverse=True)
    assert len(cli.lines("predict", letters / "run", "--n-best", "4", "ab", "cd")) == 8


def test_every_line_has_as_many_answers_as_are_asked_for(cli: Regard, letters: Path) -> None:
    three = ["predict", letters / "run", "--n-best", "3"]
    lines = cli.lines(*three, given="ab\n\ncafe\n")
    assert [lines[0], *lines[3:7]] == ["AB", "", "", "", "CAFE"]
    assert len(lines) == 9
    few = cli.lines(*three, "--longest", "1", "--n-best", "1000", "--with-score", "ab", "")
    assert len(few) == 2000
    assert few[999] == "-inf\t", "there are not so many letters"
    assert few[1000] == "0.0000\t"


def test_the_n_best_come_in_the_order_that_is_shown(cli: Regard, letters: Path) -> None:
    """Score ÷ length to the power of the penalty: not the order of the scores."""
    orders = set()
    for item in cli.objects("predict", letters / "run", "--n-best", "7", "--length-penalty", "2", *words(5)):
        found = [(answer["normalised"], answer["score"]) for answer in item["answers"]]
        assert found == sorted(found, reverse=True)
        orders.add([score for _, score in found] == sorted((score for _, score in found), reverse=True))
        for answer in item["answers"]:
            assert answer["normalised"] == pytest.approx(answer["score"] / (len(answer["text"]) + 1) ** 2, rel=1e-4)
    assert False in orders, "the order of the scores is another"


def test_scores_are_log_probabilities(cli: Regard, letters: Path) -> None:
    lines = cli.lines("predict", letters / "run", "--with-score", "cafe", "abba")
    items = cli.objects("predict", letters / "run", "cafe", "abba")
    for line, item in zip(lines, items, strict=True):
        score, text = line.split("\t")
        assert text == item["answers"][0]["text"]
        assert re.fullmatch(r"-?\d+\.\d{4}", score)
        assert float(score) == pytest.approx(item["answers"][0]["score"], abs=1e-4)
        assert item["answers"][0]["score"] < 0


# ---- predict: alignment, sampling ----------------------------------------------------------------------------------


def test_hard_alignment_is_pharaoh_and_within_range(cli: Regard, letters: Path) -> None:
    texts = words(10)
    for text, line in zip(texts, cli.lines("predict", letters / "run", "--alignment", "hard", *texts), strict=True):
        answer, alignment = line.split("\t")
        pairs = [tuple(map(int, pair.split("-"))) for pair in alignment.split(" ")]
        assert [target for _, target in pairs] == list(range(len(answer)))
        assert all(0 <= source < len(text) for source, _ in pairs)


def test_a_trained_model_aligns_letters_with_their_capitals(cli: Regard, letters: Path) -> None:
    texts = [word for word in words(40) if len(set(word)) == len(word) >= 3]
    right = total = 0
    for item in cli.objects("predict", letters / "run", "--alignment", "soft", *texts):
        answer = item["answers"][0]
        for token, row in zip(answer["tokens"], answer["alignment"], strict=True):
            right += item["source"][int(np.argmax(row))].upper() == token
            total += 1
    assert right > 0.6 * total, "chance is about a quarter"


@pytest.mark.parametrize("name", ["letters", "numbers"])
def test_soft_alignment_rows_sum_to_1(cli: Regard, request: pytest.FixtureRequest, name: str) -> None:
    run, texts = request.getfixturevalue(name) / "run", words(4) if name == "letters" else sentences(4)
    for line in cli.lines("predict", run, "--alignment", "soft", *texts):
        weights = np.array(json.loads(line.split("\t")[-1]))
        assert (weights >= 0).all()
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-4 * weights.shape[1])


def test_sub_words_are_merged_into_words(cli: Regard, numbers: Path) -> None:
    model = regard.load(numbers / "run")
    texts = sentences(8)
    assert any(len(model.task.input.encode([text])[0][0]) > len(text.split()) for text in texts), "there are sub-words"
    for item in cli.objects("predict", numbers / "run", "--alignment", "soft", *texts):
        (answer,) = item["answers"]
        assert answer["source_tokens"] == item["source"].split()
        assert answer["tokens"] == answer["text"].split()
        assert np.shape(answer["alignment"]) == (len(answer["tokens"]), len(answer["source_tokens"]))


def test_sampling_is_reproducible_and_its_seed_counts(cli: Regard, letters: Path) -> None:
    hot = ["predict", letters / "run", "--sample", "--temperature", "3"]
    given = "\n".join(words(30))
    first, again, other = (cli.lines(*hot, "--seed", seed, given=given) for seed in ("4", "4", "5"))
    assert first == again
    assert sum(a != b for a, b in zip(first, other, strict=True)) > 10
    assert cli.lines(*hot, "--top-k", "1", given=given) == cli.lines(
        "predict", letters / "run", "--beam", "1", given=given
    )


def test_repeated_lines_are_drawn_apart(cli: Regard, letters: Path) -> None:
    assert len(set(cli.lines("predict", letters / "run", "--sample", "--temperature", "3", given="cafe\n" * 12))) > 6


def test_a_draw_does_not_depend_on_how_the_lines_came_in(letters: Path) -> None:
    from io import StringIO

    model, texts = regard.load(letters / "run"), [word[:3] for word in words(predicting.AHEAD + 8)]
    ways = ([len(texts)], [1, 2, predicting.AHEAD - 5, 10], [predicting.AHEAD - 1, 9])
    found = []
    for sizes in ways:
        rest, out = iter(texts), StringIO()
        chunks = ([next(rest) for _ in range(size)] for size in sizes)
        predicting.predict(model, chunks, {"seed": 3, "temperature": 3.0}, out)
        found.append(out.getvalue().splitlines())
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == len(texts)


# ---- predict as a process ------------------------------------------------------------------------------------------


def test_answers_stream_before_the_input_ends(letters: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*COMMAND, "predict", str(letters / "run")], env=PLAIN, bufsize=0, **pipes) as process:  # type: ignore[call-overload]
        for text in (b"cafe", b"bad"):
            process.stdin.write(text + b"\n")
            assert select.select([process.stdout], [], [], 60)[0], "the answer waits for more input"
            assert process.stdout.readline() == text.upper() + b"\n"
        process.stdin.close()
        assert process.wait(60) == 0
        assert process.stdout.read() == b""
        assert b"Traceback" not in process.stderr.read()


def test_a_closed_pipe_ends_it_quietly(letters: Path, tmp_path: Path) -> None:
    (tmp_path / "many").write_text("cafe\n" * 5000)
    script = '"$@" <many | head -1; echo "${PIPESTATUS[0]}"'
    command = ["bash", "-c", script, "bash", *COMMAND, "predict", str(letters / "run"), "--beam", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=PLAIN, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "CAFE\n0\n"
    assert not done.stderr


# ---- evaluate, show, average, check, train --------------------------------------------------------------------------


def test_evaluate_gives_signatures_and_intervals(cli: Regard, letters: Path) -> None:
    report = json.loads(
        cli.run("evaluate", letters / "run", letters / "test.tsv", "--json", "--by-length", "-o", "answers.txt")
    )
    exact, errors = report["scores"]
    assert (exact["name"], errors["name"]) == ("exact_match", "character_error_rate")
    for score in (exact, errors):
        assert score["low"] <= score["value"] <= score["high"]
        assert "nrefs:1" in score["signature"]
    answers = (cli.folder / "answers.txt").read_text().splitlines()
    lines = (letters / "test.tsv").read_text().splitlines()
    found = {line.split("\t")[0]: answer for line, answer in zip(lines, answers, strict=True)}
    right = sum(source.upper() == answer for source, answer in found.items())
    assert exact["value"] == pytest.approx(100 * right / len(found))
    assert sum(bucket["items"] for bucket in report["by_length"]) == len(found)
    assert len(report["by_length"]) > 2, "words of 2 to 6 letters are told apart"


def test_evaluate_writes_an_answer_for_each_pair(cli: Regard, letters: Path) -> None:
    """Pairs of the same source are scored as one, but the file of answers has a line for each of them."""
    (cli.folder / "twice.tsv").write_text("cab\tCAB\nbad\tBAD\ncab\tcab\nbad\tBAD\nabc\tABC\n", encoding="utf-8")
    report = json.loads(cli.run("evaluate", letters / "run", "twice.tsv", "--json", "-o", "answers.txt"))
    assert report["scores"][0]["count"] == 3
    assert (cli.folder / "answers.txt").read_text().splitlines() == ["CAB", "BAD", "CAB", "BAD", "ABC"]
    assert "5 pairs have 3 sources: 2 pairs were joined" in cli.said
    cli.run("evaluate", letters / "run", letters / "test.tsv", "--json", "-o", "answers.txt")
    sources = [line.split("\t")[0] for line in (letters / "test.tsv").read_text().splitlines()]
    assert len((cli.folder / "answers.txt").read_text().splitlines()) == len(sources)
    assert ("joined" in cli.said) == (len(set(sources)) < len(sources))


def test_evaluate_of_running_text_in_words(cli: Regard, numbers: Path) -> None:
    text = cli.run("evaluate", numbers / "run", numbers / "test.tsv", "--lowercase", "--by-length", "--beam", "2")
    assert re.search(r"BLEU +\d", text)
    assert re.search(r"BLEU: .*case:lc.*version:", text)
    assert "95 % interval" in text
    head, *rows = text.rstrip().split("\n\n")[-1].splitlines()
    assert head.split() == ["source", "length", "items", "BLEU"]
    assert len(rows) > 1
    assert all(re.fullmatch(r"\d+(–\d+)? +\d+ +[\d.]+", row) and len(row) == len(head) for row in rows)


def test_evaluate_searches_as_predict_does(cli: Regard, numbers: Path) -> None:
    sources = [line.split("\t")[0] for line in (numbers / "test.tsv").read_text().splitlines()]
    found = {}
    for penalty in ("0", "10"):
        search = ("--beam", "4", "--length-penalty", penalty)
        cli.run("evaluate", numbers / "run", numbers / "test.tsv", *search, "-o", "answers.txt")
        found[penalty] = (cli.folder / "answers.txt").read_text().splitlines()
        assert found[penalty] == cli.lines("predict", numbers / "run", *search, *sources)
    assert sum(map(len, found["0"])) < sum(map(len, found["10"]))  # the penalty did something


@pytest.mark.parametrize("name", ["letters", "numbers"])
def test_show_writes_what_the_suffix_says(cli: Regard, request: pytest.FixtureRequest, name: str) -> None:
    run, text = request.getfixturevalue(name) / "run", "abc" if name == "letters" else "one two"
    for arguments, beginning in (
        (["a.png"], b"\x89PNG"),
        (["a.svg"], b"<?xml"),
        (["b.png", "--grid"], b"\x89PNG"),
        (["c.png", "--answer", "AB" if name == "letters" else "two"], b"\x89PNG"),
        (["a.html"], b"<!doctype html"),
        (["a.npz"], b"PK"),
    ):
        assert cli.run("show", run, text, "-o", *arguments) == arguments[0] + "\n"
        assert (cli.folder / arguments[0]).read_bytes()[:20].lower().startswith(beginning.lower())
    cli.run("show", run, text, text[:2], "-o", "several.html")
    assert (cli.folder / "several.html").stat().st_size > (cli.folder / "a.html").stat().st_size


@pytest.mark.parametrize("suffix", [".PNG", ".SVG", ".Html", ".NPZ"])
def test_a_suffix_may_be_written_in_capitals(cli: Regard, letters: Path, suffix: str) -> None:
    assert cli.run("show", letters / "run", "abc", "-o", f"a{suffix}") == f"a{suffix}\n"
    assert [path.name for path in cli.folder.iterdir()] == [f"a{suffix}"]


def test_a_missing_font_is_one_sentence(letters: Path, tmp_path: Path) -> None:
    arguments = ["show", str(letters / "run"), "ab\u0378", "-o", str(tmp_path / "a.png")]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True, env=PLAIN)
    assert re.fullmatch(r"regard: No installed font has \u0378: [^\n]*fonts-noto-core\.\n", done.stderr), done.stderr


def test_the_numbers_behind_a_picture(cli: Regard, letters: Path, numbers: Path) -> None:
    cli.run("show", letters / "run", "cafe", "--answer", "CAF", "-o", "a.npz")
    with np.load(cli.folder / "a.npz") as found:
        assert set(found) == {"source", "target", "decoder.glimpse"}
        assert list(found["source"]) == list("cafe")
        assert list(found["target"]) == ["C", "A", "F", "∎"]
        assert found["decoder.glimpse"].shape == (1, 1, 4, 4)
        np.testing.assert_allclose(found["decoder.glimpse"].sum(-1), 1, atol=1e-5)
    cli.run("show", numbers / "run", "one two", "-o", "b.npz")
    with np.load(cli.folder / "b.npz") as found:
        assert set(found) == {"source", "target", "prefix", "encoder.attention", "decoder.own", "decoder.cross"}
        assert list(found["prefix"]) == ["▷", *found["target"][:-1]]
        assert np.triu(found["decoder.own"], 1).max() == 0, "nobody looks ahead"
        n, m = len(found["source"]), len(found["target"])
        assert found["encoder.attention"].shape == (2, 2, n, n)
        assert found["decoder.own"].shape == (2, 2, m, m)
        assert found["decoder.cross"].shape == (2, 2, m, n)


def test_an_average_is_a_run_that_predicts(cli: Regard, letters: Path) -> None:
    assert cli.run("average", letters / "run", "--last", "2", "-o", "mean") == "mean\n"
    assert cli.lines("predict", "mean", "cafe", "bad") == regard.load("mean").predict(["cafe", "bad"])
    from safetensors.numpy import load_file

    kept = sorted((letters / "run" / "checkpoints").glob("*.safetensors"))[-2:]
    mean, parts = load_file(cli.folder / "mean" / "model.safetensors"), [load_file(path) for path in kept]
    for name, weights in mean.items():
        np.testing.assert_allclose(weights, (parts[0][name] + parts[1][name]) / 2, atol=1e-6)


def test_check_of_data_names_lines_and_says_what_training_would_do(cli: Regard, letters: Path) -> None:
    good = cli.run("check", letters / "data.tsv")
    assert "No faults were found" in good
    assert "`regard train` would say" in good
    assert re.search(r"about [\d.]+ million parameters; training needs about [\d.]+ GB", good)
    assert re.search(r"^about \d+\.\d % of a batch's tokens would be padding", good, re.MULTILINE)
    (cli.folder / "bad.tsv").write_bytes(b"ab\tAB\ncd\tCD\nef\t\nb\xe9\tBE\n")
    bad = cli.run("check", "bad.tsv", code=1)
    assert "bad.tsv:3" in bad
    assert "bad.tsv:4" in bad
    assert "Traceback" not in bad + cli.said
    leaks = cli.run("check", letters / "data.tsv", "--test", letters / "data.tsv")  # which train says, and goes on
    assert "test pairs in the training data (600)" in leaks
    assert "warning: 600 of 600 test pairs are also in the training data" in leaks


def test_check_of_a_config_and_of_a_run(cli: Regard, letters: Path, numbers: Path, blind: Path) -> None:
    assert "all settings are valid" in cli.run("check", letters / "run" / "config.yaml")
    for run in (letters, numbers, blind):
        report = cli.run("check", run / "run")
        assert report.count("  ok  ") == 4, report


@pytest.mark.parametrize(
    "model",
    [
        ["model.kind=transformer", "model.width=96"],
        ["model.kind=recurrent"],
        ["model.kind=recurrent", "model.cell=gru", "model.layers=3"],
    ],
)
def test_the_size_that_is_checked_is_near_the_truth(model: list[str]) -> None:
    """The estimate decides what is refused as too large."""
    from regard.data.example import Example
    from regard.data.survey import take_survey
    from regard.runs.build import build
    from regard.training.prepare import learn

    text = " ".join(f"t{i}" for i in range(196))
    levels = ["tokens.level=symbols", "output.level=symbols"]
    config = settings.override(settings.make({"data": {"train": ["a"]}}, "here"), [*levels, *model])
    parts = learn(config, take_survey(iter([Example(text, text, "a", 1)]), lambda _: (), ""), None)
    truth = sum(parameter.numel() for parameter in build(config, parts).network.parameters())
    assert config.parameters() == pytest.approx(truth, rel=0.12)


def test_the_same_command_again_goes_on(cli: Regard, blind: Path) -> None:
    shutil.copy(blind / "data.tsv", "data.tsv")
    command = ["train", "data.tsv", "--set", "model.width=8"]
    assert cli.run(*command, "--steps", "3") == "runs/data\n"
    assert "resuming" not in cli.said
    assert "regard predict runs/data" in cli.said
    assert cli.run(*command, "--steps", "3") == "runs/data\n"
    assert "resuming at step 3" in cli.said


def test_stopped_after_the_last_step_it_says_how_to_go_on(
    cli: Regard, blind: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    shutil.copy(blind / "data.tsv", cli.folder / "my data.tsv")
    command = ["train", "my data.tsv", "-o", "my runs/a", "--steps", "2", "--set", "model.width=8"]
    monkeypatch.setattr("sys.argv", ["regard", *command])
    with monkeypatch.context() as patched:
        patched.setattr("regard.training.train._prepared", stop)
        cli.run(*command, code=130)
        assert cli.said.endswith("regard: stopped\n"), "there is nothing to go on with yet"
    with monkeypatch.context() as patched:
        patched.setattr("regard.training.train.write_card", stop)
        cli.run(*command, code=130)
    assert cli.said.splitlines()[-2:] == [
        "stopped; the last state is saved. Resume with the same command:",
        "  regard train 'my data.tsv' -o 'my runs/a' --steps 2 --set model.width=8",
    ]
    assert cli.run(*command) == "my runs/a\n"
    assert "try: regard predict 'my runs/a' " in cli.said, "as a shell takes it"
    assert "     regard show 'my runs/a' " in cli.said
    card = (cli.folder / "my runs/a/README.md").read_text()
    assert "`regard predict 'my runs/a' " in card
    assert "`regard train 'my runs/a/config.yaml' -o 'my runs/a-again'`" in card


def test_several_settings_may_follow_one_set(cli: Regard, blind: Path) -> None:
    shutil.copy(blind / "data.tsv", "data.tsv")
    cli.run("train", "--set", "model.width=8", "model.dropout=0.2", "data.tsv", "--steps", "2")
    found = settings.load(Path("runs/data/config.yaml"))
    assert (found.model.width, found.model.dropout, found.data.train) == (8, 0.2, ["data.tsv"])
    words = ["predict", "run", "--set", "a.b=1", "c.d=2", "e=f", "g.h=3"]  # a text is no setting
    assert spread(words) == ["predict", "run", "--set", "a.b=1", "--set", "c.d=2", "e=f", "g.h=3"]


# ---- help ----------------------------------------------------------------------------------------------------------


def test_help_is_quick_and_does_without_torch() -> None:
    code = (
        "import sys\nfrom regard.commands.app import main\ntry:\n    main(['--help'])\nfinally:\n"
        "    print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules], file=sys.stderr)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], env=PLAIN, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    assert b"predict" in out
    assert err.strip() == b"[]"
    assert used.ru_utime < 1.0, "seconds; half a second on a machine that does nothing else"


@pytest.mark.parametrize("command", ["train", "predict", "evaluate", "show", "check", "compare", "average", "demo"])
def test_every_command_has_help_with_an_example(cli: Regard, command: str) -> None:
    assert "Example: regard " + command in " ".join(cli.run(command, "--help").split()).replace("echo bonjour | ", "")


def test_runs_that_answer_together(cli: Regard, letters: Path, numbers: Path) -> None:
    run = letters / "run"
    alone = cli.lines("predict", run, "abc", "fade", "--with-score")
    assert cli.lines("predict", run, "abc", "fade", "--with-score", "--with", run, "--with", run) == alone
    assert cli.run("evaluate", run, letters / "test.tsv", "--with", run) == cli.run(
        "evaluate", run, letters / "test.tsv"
    )
    cli.run("predict", run, "abc", "--with", numbers / "run", code=1)
    assert "has another vocabulary" in cli.said
    cli.run("predict", run, "abc", "--with", run, "--engine", "ctranslate2", code=1)
    assert "CTranslate2 runs one model" in cli.said


def test_classifiers_that_answer_together(cli: Regard, letters: Path, tmp_path: Path) -> None:
    rows = [f"{kind}\t{kind} {word} thing\n" for kind in ("good", "bad") for word in "abcdefghijklmnop"]
    (tmp_path / "labels.tsv").write_text("".join(rows), encoding="utf-8")
    for name, changes in {"one": [], "two": ["tokens.level=characters", "model.kind=deepsets"]}.items():
        settings = ["training.warmup=0", "model.width=8", "data.held_out=4", *changes]
        regard.train("labels.tsv", name, task="classify", steps=3, set=settings, quiet=True)

    def chances(*arguments: str) -> dict[str, float]:
        (line,) = cli.lines("predict", *arguments, "good thing", "--json")
        return json.loads(line)["probabilities"]

    one, two, both = chances("one"), chances("two"), chances("one", "--with", "two")
    assert one != two
    assert both == pytest.approx({name: (one[name] + two[name]) / 2 for name in one}, abs=1e-4)
    cli.run("predict", "one", "good", "--with", letters / "run", code=1)
    assert "run: expected a model that labels texts, found one that converts texts." in cli.said
    cli.run("predict", letters / "run", "good", "--with", "one", code=1)
    assert "--with one: expected a model that converts texts, found one that labels texts." in cli.said
    (tmp_path / "labels.tsv").write_text("".join(rows).replace("bad\t", "worse\t"), encoding="utf-8")
    regard.train("labels.tsv", "three", task="classify", steps=1, set=["training.warmup=0"], quiet=True)
    cli.run("predict", "one", "good", "--with", "three", code=1)
    assert "three has other labels: an ensemble needs models with the same labels." in cli.said


@pytest.mark.parametrize("command", ["predict", "evaluate", "show", "check"])
def test_help_speaks_of_every_task(cli: Regard, command: str) -> None:
    """Not every model converts pairs."""
    said = " ".join(cli.run(command, "--help").split())
    assert "pairs" not in said
    assert "Convert" not in said
