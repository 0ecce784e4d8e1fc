"""Small applications with generated data: one command each writes the data, trains, and says what is reached.

python recipes/applications.py NAME -o runs/NAME

Each trains for a number of steps that takes less than 8 minutes of one quiet core; --steps or --minutes change that.

conditioning   one language model, several tasks named in the input, and a combination that is never trained
languages      numbers in words, in three languages by one model: the language is a token
answers        a question over a text, answered by a word of the text
summaries      a report of a match, and its headline
dialogue       what was said so far, and the reply
tunes          ABC notation that goes on
proteins       amino acids, and helix, sheet or coil for each of them
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import regard

Rows = list[tuple[str, str]]
NAMES = "Ada Ben Cleo Dan Eva Finn Gus Hana Ivo Jane Kim Leo Mia Noah Olga Paul".split()
PLACES = ["garden", "kitchen", "office", "park", "library", "station", "museum", "harbour"]
THINGS = ["book", "lamp", "key", "apple", "map", "coat", "letter", "violin"]


# ---- conditioning: tasks by their names ----------------------------------------------------------------------------

WORK: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "reverse": lambda text: text[::-1],
    "double": lambda text: text + text,
    "first": lambda text: text[:1],
}
NEVER = "upper reverse"


def conditioned(chosen: random.Random, count: int, name: str | None = None) -> Rows:
    """Return (prompt, answer): the name of one task or of two that follow each other, and a string."""
    known = [*WORK, *(f"{a} {b}" for a in WORK for b in WORK if a != b and f"{a} {b}" != NEVER)]
    rows = []
    for _ in range(count):
        task = name or chosen.choice(known)
        text = answer = "".join(chosen.choices("abcdefgh", k=chosen.randint(2, 6)))
        for word in task.split():
            answer = WORK[word](answer)
        rows.append((f"{task}: {text} = ", answer))
    return rows


# Small, so that it takes many steps, and with relative positions: a string is turned round alike wherever it stands.
LETTERS = ["model.layers=3", "model.width=96", "model.hidden=192", "model.heads=4", "model.dropout=0"]
LETTERS += ["model.position=rotary", "output.context=64", "training.budget=1040", "training.every=1000"]
LETTERS += ["tokens.level=characters"]


def conditioning(out: Path, how: dict[str, Any]) -> dict[str, float]:
    chosen = random.Random(1)
    path = out / "tasks.txt"
    path.write_text("".join(a + b + "\n" for a, b in conditioned(chosen, 20_000)), encoding="utf-8")
    model = regard.train(path, out / "run", task="continue", set=LETTERS, **how)
    scores = {}
    for name in (*WORK, "reverse upper", "double first", NEVER):
        rows = conditioned(random.Random(2), 100, name)
        said = model.predict([prompt for prompt, _ in rows], longest=14, top_k=1)
        right = [a[len(p) :].split("\n")[0] == b for a, (p, b) in zip(said, rows, strict=True)]
        scores[name + (" (never trained)" if name == NEVER else "")] = 100 * sum(right) / len(right)
    rows = conditioned(random.Random(3), 100, "reverse")
    ranked = [model.predict([p], choices=f"{b},{b[::-1]}x,{b[1:]}{b[0]}q")[0] == b for p, b in rows]
    scores["reverse, chosen among three"] = 100 * sum(ranked) / len(ranked)
    return scores


# ---- pairs ---------------------------------------------------------------------------------------------------------


def languages(chosen: random.Random, count: int) -> Rows:
    """Numbers up to 9,999 in words; Babel knows none, so three regular ways of writing them are made up here."""
    digits = {
        "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
        "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
        "fr": ["zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf"],
    }
    rows = []
    for _ in range(count):
        language, number = chosen.choice([*digits]), str(chosen.randint(0, 9999))
        order = number[::-1] if language == "de" else number  # the smallest digit first, as in German tens
        rows.append((f"{language} ||| {number}", " ".join(digits[language][int(d)] for d in order)))
    return rows


def answers(chosen: random.Random, count: int) -> Rows:
    """Who is where with what: one to three sentences and a question about one of them."""
    rows = []
    for _ in range(count):
        many = chosen.randint(1, 3)
        people, places, things = (chosen.sample(group, many) for group in (NAMES, PLACES, THINGS))
        facts = [f"{p} has the {t} in the {w} ." for p, w, t in zip(people, places, things, strict=True)]
        which = chosen.randrange(many)
        question, answer = chosen.choice(
            [
                (f"where is {people[which]} ?", places[which]),
                (f"who has the {things[which]} ?", people[which]),
                (f"what is in the {places[which]} ?", things[which]),
            ]
        )
        rows.append((f"{question} ||| {' '.join(facts)}", answer))
    return rows


def summaries(chosen: random.Random, count: int) -> Rows:
    """A match told goal by goal, and who won."""
    rows = []
    for _ in range(count):
        one, other = chosen.sample(NAMES, 2)
        goals = [chosen.choice((one, other)) for _ in range(chosen.randint(1, 5))]
        minutes = sorted(chosen.sample(range(1, 90), len(goals)))
        told = " ".join(f"in minute {m} {who} scored ." for m, who in zip(minutes, goals, strict=True))
        a, b = goals.count(one), goals.count(other)
        headline = (
            f"{one} and {other} draw {a} to {b}"
            if a == b
            else (f"{one} beats {other} {a} to {b}" if a > b else f"{other} beats {one} {b} to {a}")
        )
        rows.append((f"{one} met {other} in the {chosen.choice(PLACES)} . {told} then it was over .", headline))
    return rows


def dialogue(chosen: random.Random, count: int) -> Rows:
    """A customer and a shop: the reply depends on what was asked for and on what was said before."""
    rows = []
    for _ in range(count):
        name, thing, other, price = chosen.choice(NAMES), *chosen.sample(THINGS, 2), chosen.randint(2, 40)
        turns = [
            (f"hello , i am {name} .", f"good day {name} , what would you like ?"),
            (f"do you have a {thing} ?", f"yes , a {thing} is {price} euros ."),
            (f"and a {other} ?", f"no , we are out of every {other} ."),
            ("then i take it .", f"that is {price} euros for the {thing} , {name} ."),
        ]
        cut = chosen.randint(1, 4)
        past = " ||| ".join(f"{a} {b}" for a, b in turns[: cut - 1])
        if cut == 2:  # the price is in the question's list
            past += f" ||| [ {thing} {price} ]"
        rows.append((f"{past} ||| {turns[cut - 1][0]}" if past else turns[0][0], turns[cut - 1][1]))
    return rows


def proteins(chosen: random.Random, count: int) -> Rows:
    """Strings of amino acids: helices, sheets and coils, three quarters of whose residues are those that favour them."""
    kinds = {"H": "AELMQKR", "E": "VIYFWTC", "C": "GPNDSH"}
    rows = []
    for _ in range(count):
        acids, states, last = [], [], ""
        for _ in range(chosen.randint(3, 7)):
            last = chosen.choice([kind for kind in kinds if kind != last])
            size = chosen.randint(4, 9)
            some = [
                chosen.choice(kinds[last] if chosen.random() < 0.75 else "ARNDCQEGHILKMFPSTWYV") for _ in range(size)
            ]
            acids, states = acids + some, states + [last] * size
        rows.append((" ".join(acids), " ".join(states)))
    return rows


def supervised(make: Callable[[random.Random, int], Rows], task: str, count: int, changes: list[str]) -> Any:
    def run(out: Path, how: dict[str, Any]) -> dict[str, float]:
        chosen = random.Random(1)
        for name, many in (("train", count), ("valid", 300), ("test", 500)):
            rows = make(chosen, many)
            if task == "tag":
                lines = "\n".join(
                    "".join(f"{a}\t{b}\n" for a, b in zip(s.split(), t.split(), strict=True)) for s, t in rows
                )
            else:
                lines = "".join(f"{s}\t{t}\n" for s, t in rows)
            (out / f"{name}.{'txt' if task == 'tag' else 'tsv'}").write_text(lines, encoding="utf-8")
        files = [out / f"{name}.{'txt' if task == 'tag' else 'tsv'}" for name in ("train", "valid", "test")]
        model = regard.train(files[0], out / "run", task=task, valid=[files[1]], set=changes, **how)
        return {score.name: score.value for score in model.evaluate([files[2]])[0]}

    return run


# ---- tunes ---------------------------------------------------------------------------------------------------------


def tunes(out: Path, how: dict[str, Any]) -> dict[str, float]:
    """Tunes in ABC notation, each a theme of four bars of eight eighths, repeated with another ending."""
    chosen = random.Random(1)

    def tune(number: int) -> str:
        key = chosen.choice(["C", "G", "D", "F"])
        place, bars = chosen.randint(2, 5), []
        for _ in range(4):
            notes = []
            for _ in range(8):
                place = max(0, min(7, place + chosen.choice((-2, -1, -1, 0, 1, 1, 2))))
                notes.append("CDEFGABc"[place])
            bars.append("".join(notes))
        theme = "|".join(bars)
        return f"X:{number}\nK:{key}\n|:{theme}:|\n|:{'|'.join(bars[:3])}|{bars[0]}:|\n"

    path = out / "tunes.txt"
    path.write_text("\n".join(tune(number) for number in range(1, 1500)), encoding="utf-8")
    model = regard.train(
        path, out / "run", task="continue", set=["tokens.level=characters", "output.context=128"], **how
    )
    said = model.predict([f"X:1\nK:{key}\n|:" for key in "CGDF" for _ in range(10)], longest=110, seed=1)
    bars = [bar.strip(":\n") for text in said for bar in text.split("\n")[2].split("|") if bar.strip(":\n")]
    right = sum(len(bar) == 8 and set(bar) <= set("CDEFGABc") for bar in bars)
    return {"bars of eight notes": 100 * right / max(1, len(bars))}


TRANSFORMER = ["model.kind=transformer", "model.layers=2", "model.width=128", "model.hidden=256", "model.heads=4"]
WORDS = ["tokens.level=words", "output.level=words", "model.dropout=0.1", "decoding.beam=1"]
# A question is looked up by many small steps; one table for both sides, as the answer is a word of the text.
LOOKED_UP = ["model.kind=transformer", "model.layers=3", "model.width=64", "model.hidden=128", "model.heads=4"]
LOOKED_UP += ["model.position=rotary", "model.dropout=0", "training.optimiser=muon", "training.warmup=100"]
LOOKED_UP += ["training.rate=3e-3", "tokens.level=words", "output.level=words", "output.joint=true", "decoding.beam=1"]
LOOKED_UP += ["training.budget=1040", "training.every=500", "training.smoothing=0", "training.average=1"]
LOOKED_UP += ["output.metric=wer"]  # one word has no BLEU
Job = Callable[[Path, dict[str, Any]], dict[str, float]]
JOBS: dict[str, tuple[Job, int]] = {  # and the steps that it takes
    "conditioning": (conditioning, 3000),
    "languages": (
        supervised(languages, "convert", 6000, ["tokens.level=characters", "output.level=words", "decoding.beam=1"]),
        250,
    ),
    "answers": (supervised(answers, "convert", 30_000, LOOKED_UP), 2500),
    "summaries": (supervised(summaries, "convert", 12_000, [*TRANSFORMER, *WORDS]), 500),
    "dialogue": (supervised(dialogue, "convert", 8000, [*TRANSFORMER, *WORDS]), 150),
    "tunes": (tunes, 400),
    "proteins": (
        supervised(proteins, "tag", 2000, ["model.kind=convolution", "model.layers=3", "model.kernel=5"]),
        100,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=JOBS)
    parser.add_argument("-o", "--out", type=Path)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--steps", type=int)
    asked = parser.parse_args()
    out = asked.out or Path("runs") / asked.name
    out.mkdir(parents=True, exist_ok=True)
    job, steps = JOBS[asked.name]
    how: dict[str, Any] = {"minutes": asked.minutes} if asked.minutes else {"steps": asked.steps or steps}
    for name, value in job(out, how).items():
        print(f"{name}: {value:.1f}")
    print(f"processor time: {time.process_time():.0f} s")


if __name__ == "__main__":
    main()
