"""A worker process of a server: it loads runs once, and answers batches of jobs until its pipe is closed.

Messages are JSON. In: {"batch", "model", "wants", "options", "jobs": [{"content", "media", "place"}]}. Out: pieces of
streamed answers {"batch", "job", "piece"}, and {"batch", "found": [[job, {"answer" or "fault", "status"}], …], "end"}.
"""

from __future__ import annotations

import base64
import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.errors import UserError
from regard.serving import looking

if TYPE_CHECKING:
    from regard.runs.model import Model
    from regard.task import Task

TEXT = "text/plain"


class Order(NamedTuple):
    """The arguments of a worker."""

    runs: dict[str, str]  # name → folder
    engine: str
    threads: int
    longest: int  # characters of a text


def main(pipe: Connection, order: Order, stopped: Any) -> None:
    """Load the models, answer one thing with each, and then whatever comes; `stopped` holds the batch to give up."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # the server ends its workers itself
    os.environ.setdefault("OMP_NUM_THREADS", str(order.threads))
    try:
        worker = Worker(order, lambda message: pipe.send_bytes(json.dumps(message).encode()), stopped)
    except UserError as error:
        pipe.send_bytes(json.dumps({"failed": str(error)}).encode())
        return
    pipe.send_bytes(json.dumps({"ready": worker.facts}).encode())
    while True:
        try:
            message = json.loads(pipe.recv_bytes())
        except (EOFError, OSError):
            return
        if "quit" in message:
            return
        worker.work(message)


class Worker:
    """The models of a server in one process."""

    def __init__(self, order: Order, send: Callable[[dict[str, Any]], None], stopped: Any) -> None:
        import torch

        from regard.exchange import engine
        from regard.inputs.input import Opens
        from regard.runs.model import load
        from regard.training.allocator import keep_memory

        keep_memory()
        torch.set_num_threads(order.threads)
        self.send, self.stopped, self.longest = send, stopped, order.longest
        self.models = {name: load(Path(folder)) for name, folder in order.runs.items()}
        self.facts: dict[str, Any] = {}
        for name, model in self.models.items():
            engine.use(model, order.engine, {}, lambda _: None)
            self.facts[name] = self._facts(model)
            input = model.task.input
            if input.alphabet is not None or isinstance(input, Opens):  # ready means: it has answered
                model.task.answers([input.sample() if isinstance(input, Opens) else input.read("a")])

    @staticmethod
    def _facts(model: Model) -> dict[str, Any]:
        task = model.task
        return {
            "task": model.config.task,
            "input": model.config.input,
            "does": task.does,
            "noun": task.input.noun,
            "options": sorted(task.output.options - {"alignment"}),
            "draws": task.output.draws,
            "files": [str(path) for path in model.config.data.train],
            **looking.facts(model),
        }

    def work(self, message: Mapping[str, Any]) -> None:
        """Answer a batch; a job that cannot be answered does not fail the others."""
        batch, jobs = message["batch"], message["jobs"]
        model = self.models[message["model"]]
        model.task.stop = lambda: bool(self.stopped.value == batch)
        sources: list[tuple[int, Any]] = []
        found: list[tuple[int, dict[str, Any]]] = []
        for number, job in enumerate(jobs):
            try:
                source = self._source(model, job)
                model.task.refuse(source, message["options"])
                sources.append((number, source))
            except UserError as error:
                found.append((number, {"fault": str(error), "status": 422}))
            except Exception as error:  # decoders raise what they like
                found.append((number, {"fault": f"This cannot be read ({type(error).__name__}).", "status": 422}))
        try:
            found += [(number, {"answer": answer}) for number, answer in self._answers(model, sources, message)]
        except Exception as error:  # the worker outlives whatever one batch does
            self._one_by_one(model, sources, message, error)
        self.send({"batch": batch, "found": found, "end": True})

    def _one_by_one(self, model: Model, sources: list[tuple[int, Any]], message: Any, error: Exception) -> None:
        """Answer the jobs of a batch that failed each for itself."""
        from regard.inference.stop import Stopped

        for number, source in sources:
            found: dict[str, Any] = {"fault": "The answer was not finished in time.", "status": 504}
            if not isinstance(error, Stopped):
                found = {"fault": f"The model failed ({type(error).__name__}).", "status": 500}
                if len(sources) > 1:
                    try:
                        ((_, answer),) = self._answers(model, [(number, source)], message)
                        found = {"answer": answer}
                    except Stopped:
                        found = {"fault": "The answer was not finished in time.", "status": 504}
                    except UserError as fault:
                        found = {"fault": str(fault), "status": 422}
                    except Exception as fault:
                        found = {"fault": f"The model failed ({type(fault).__name__}).", "status": 500}
                elif isinstance(error, UserError):
                    found = {"fault": str(error), "status": 422}
            self.send({"batch": message["batch"], "found": [(number, found)], "end": False})

    def _source(self, model: Model, job: Mapping[str, Any]) -> Any:
        from regard.inputs.input import Opens

        if job["media"] == looking.MEDIA:
            return looking.source_of(model, json.loads(job["content"]), self.longest)
        if job["media"] == TEXT:
            if model.task.input.alphabet is None:
                raise UserError(f"This model reads {model.task.input.noun}, and this is a text.")
            if len(job["content"]) > self.longest:
                raise UserError(f"The text is too long: expected at most {self.longest:,} characters.")
            return model.task.input.read(job["content"])
        if not isinstance(model.task.input, Opens):
            raise UserError(f"This model reads {model.task.input.noun}, and these are bytes.")
        return model.task.input.open(base64.b64decode(job["content"]), job["media"])

    def _answers(self, model: Model, sources: list[tuple[int, Any]], message: Any) -> list[tuple[int, dict[str, Any]]]:
        task, options = model.task, message["options"]
        if message["wants"] == "look":
            return [(n, looking.look(model, source, message["jobs"][n]["content"])) for n, source in sources]
        if message["wants"] == "attention":
            return [(number, self._looked(task, source, options)) for number, source in sources]
        if message["wants"] == "stream":
            return [(number, self._streamed(task, source, options, message, number)) for number, source in sources]
        first = message["jobs"][sources[0][0]]["place"] if sources else 0
        answers = task.answers([source for _, source in sources], first, **options)
        return [
            (number, {**_as_json(task, source, answer), "tokens": _tokens(task, source, answer)})
            for (number, source), answer in zip(sources, answers, strict=True)
        ]

    def _streamed(self, task: Task, source: Any, options: Any, message: Any, number: int) -> dict[str, Any]:
        def write(piece: str) -> None:
            self.send({"batch": message["batch"], "job": number, "piece": piece})

        if task.stream(source, options, write):
            return {"source": task.input.text(source), "streamed": True}
        answer = task.answers([source], **options)[0]
        write(task.output.as_target(answer))
        return _as_json(task, source, answer)

    @staticmethod
    def _looked(task: Task, source: Any, options: Any) -> dict[str, Any]:
        """Return an answer, and the weights of all layers and heads behind it."""
        answer = task.answers([source], **options)[0]
        exhibit = task.exhibit(source, None)
        maps = [
            replace(a_map, weights=np.round(np.asarray(a_map.weights, dtype=np.float64), 6).tolist())
            for a_map in exhibit.maps
        ]
        attention = {
            "tokens": exhibit.tokens(),
            "maps": [{"name": m.name, "rows": m.rows, "columns": m.columns, "weights": m.weights} for m in maps],
        }
        return {**_as_json(task, source, answer), "attention": attention}


def _as_json(task: Task, source: Any, answer: Any) -> dict[str, Any]:
    """Return what `predict --json` prints."""
    return {"source": task.input.text(source), **task.output.as_json(answer)}


def _tokens(task: Task, source: Any, answer: Any) -> list[int]:
    """Return how many elements were read (of a recording: seconds), and how many were written."""
    best = answer[0] if isinstance(answer, list) and answer else answer
    whole = task.input.alphabet is None
    read = task.input.length(source) if whole else len(task.input.encode([source])[0][0])
    return [read, len(getattr(best, "ids", ()))]
