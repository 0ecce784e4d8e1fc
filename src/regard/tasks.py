"""The tasks there are. A new output is one file in `outputs` and its line here."""

from regard.outputs.classify import Classify
from regard.outputs.continuing import Continue
from regard.outputs.convert import Convert
from regard.outputs.fill import Fill
from regard.outputs.tag import Tag
from regard.outputs.task import Task

TASKS: dict[str, type[Task]] = {
    "convert": Convert,
    "tag": Tag,
    "classify": Classify,
    "continue": Continue,
    "fill": Fill,
}
