"""The job `communities`: name the community of everybody in a network of friends, of whom few have told theirs.

Everybody has friends, most of them in the same community, and a few interests that say little. A model along edges
finds the communities; one that looks at everybody alone cannot.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from regard import pictures
from regard.commands.predict import listed
from regard.commands.show import show
from regard.inspection.view import View
from regard.pictures.sketch import Sketch, springs
from regard.runs import settings
from regard.runs.folder import quoted, refuse_unwritable
from regard.runs.model import Model
from regard.training.progress import Progress
from regard.training.train import run_training

COMMUNITIES = ("chess", "climbing", "opera", "sailing")
PEOPLE, TOLD, CHECKED = 400, 6, 10  # in all; of each community who have told theirs, to train and to validate on
FRIENDS, OUTSIDE = 7.0, 1.6  # on average, in the same community and in others
INTERESTS, OWN = 24, 0.35  # in all; the share of somebody's that fit the community
SETTINGS = {
    "task": "tag",
    "input": "nodes",
    "nodes": {"scaling": "none", "hops": 3},
    "model": {"kind": "gat", "layers": 2, "width": 32, "heads": 4, "dropout": 0.4, "attention_dropout": 0.2},
    "training": {
        "optimiser": "adam", "rate": 1e-2, "decay": 2e-3, "warmup": 5, "schedule": "constant", "smoothing": 0.0,
        "steps": 200, "every": 10, "patience": 200, "average": 1, "budget": 4096, "minutes": None,
    },
}  # fmt: skip


def demonstrate(run: Path, minutes: float) -> None:
    """Write the network, train with edges and without, say how many are right, and draw what was looked at."""
    refuse_unwritable(run)
    say = Progress().say
    folder = run.with_name(run.name + "-data")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "communities.json"
    path.write_text(json.dumps(network(1)), encoding="utf-8")
    told = len(COMMUNITIES) * TOLD
    say(f"{PEOPLE} people in {len(COMMUNITIES)} communities; {told} have told theirs, {path} has them all")
    right = {}
    for name, changes in (("with edges", []), ("without edges", ["model.kind=deepsets", "model.width=32"])):
        model = _trained(path, run if not changes else run.with_name(run.name + "-alone"), changes, minutes)
        right[name] = model.evaluate([path])[0][0].value
    model = _loaded(run)
    print(f"\nOf {PEOPLE - told - len(COMMUNITIES) * CHECKED} people who did not tell, named right:")
    print(f"  attention along edges     {right['with edges']:5.1f} %")
    print(f"  each one alone (DeepSets) {right['without edges']:5.1f} %")
    (run / "pictures").mkdir(exist_ok=True)
    whole = run / "pictures" / "communities.png"
    pictures.save(pictures.graph(drawn(model, path)), whole)
    one = _asked(model, path)
    picture = show(model, [str(path)], run / "pictures" / "person.png", nodes=[one])
    page = show(model, [str(path)], run / "pictures" / "person.html", nodes=[one])
    print(f"\nEverybody: {whole}\nWhere it looked for {one}: {picture} and, to hover over, {page}")
    print("What to try next:")
    print(f"  regard predict {quoted(run)} {quoted(path)} --node {one}")
    print(f"  regard train {quoted(path)} --set model.kind=gcn")


def network(seed: int) -> dict[str, object]:
    """Return people with interests, friends, and who is for training, validation and test, as JSON."""
    draw = np.random.default_rng(seed)
    home = np.arange(PEOPLE) % len(COMMUNITIES)
    same = home[:, None] == home[None]
    size = PEOPLE / len(COMMUNITIES)
    chance = np.where(same, FRIENDS / size, OUTSIDE / (PEOPLE - size))
    friends = np.argwhere(np.triu(draw.random((PEOPLE, PEOPLE)) < chance, 1))
    of_home = np.arange(INTERESTS).reshape(len(COMMUNITIES), -1)
    nodes = []
    for person in range(PEOPLE):
        own = of_home[home[person]]
        some = [int(draw.choice(own)) if draw.random() < OWN else int(draw.integers(INTERESTS)) for _ in range(3)]
        number = person // len(COMMUNITIES)
        split = "train" if number < TOLD else "valid" if number < TOLD + CHECKED else "test"
        interests = [float(i in some) for i in range(INTERESTS)]
        nodes.append({"id": f"p{person}", "label": COMMUNITIES[home[person]], "split": split, "interests": interests})
    return {"nodes": nodes, "edges": [[f"p{a}", f"p{b}"] for a, b in friends.tolist()]}


def _trained(path: Path, run: Path, changes: list[str], minutes: float) -> Model:
    data = {"train": [f"{path}/train"], "valid": [f"{path}/valid"], "longest": PEOPLE}
    config = settings.make({"data": data, **SETTINGS}, "the demo")
    config = settings.override(config, [*changes, f"training.minutes={minutes}"])
    return run_training(config, {}, run, Progress(quiet=bool(changes)))


def _loaded(run: Path) -> Model:
    from regard.runs.model import load

    return load(run)


def _asked(model: Model, path: Path) -> str:
    """Return somebody of the test with a handful of friends."""
    source = model.task.input.read(listed(model, f"{path}/test")[0])
    graph, nodes = source.graph, source.asked
    return str(graph.name(int(nodes[np.abs(graph.degrees[nodes] - 6).argmin()])))


def drawn(model: Model, path: Path) -> Sketch:
    """Return everybody with the community that the model named, and the mean weights of its last layer."""
    import torch

    from regard.inspection import page
    from regard.inspection.recording import attentions, watch

    task = model.task
    source = task.input.read(str(path))
    tagging = task.answers([source])[0]
    batch = task.output.known(task.passes, [source], [tagging])
    with torch.no_grad(), watch(task.network, [*attentions(task.network)]) as seen:
        task.network.eval().scores(batch)
    weights = page.maps(seen, lambda _: ("source", "source"))[-1].weights
    view: View = task.input.view(source)
    assert view.scene is not None
    edges = view.scene.edges
    last = np.asarray(weights)[-1].mean(0)
    wrong = sum(a != b for a, b in zip(tagging.tags, source.graph.labels, strict=True))
    return Sketch(
        view.names,
        springs(len(view.names), edges),
        edges,
        [("", last[edges[:, 1], edges[:, 0]].astype(np.float64))],
        tagging.tags,
        "community, as named by the model",
        f"{len(view.names)} people, {wrong} named wrong",
    )
