"""The tasks there are. A new output is one file in `outputs` and its line here."""

from regard.outputs.convert import Convert
from regard.outputs.task import Task

TASKS: dict[str, type[Task]] = {"convert": Convert}
