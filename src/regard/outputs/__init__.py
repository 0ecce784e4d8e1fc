"""Outputs: from features to loss, answers and scores. A new one is one file or folder here, and its line below."""

from typing import Any

from regard.outputs.classify.output import Classify
from regard.outputs.continuation.output import Continue
from regard.outputs.convert.output import Convert
from regard.outputs.detect.output import Detect
from regard.outputs.fill.output import Fill
from regard.outputs.imagine.output import Imagine
from regard.outputs.output import Output
from regard.outputs.tag.output import Tag

OUTPUTS: dict[str, type[Output[Any]]] = {
    "convert": Convert,
    "tag": Tag,
    "classify": Classify,
    "continue": Continue,
    "fill": Fill,
    "detect": Detect,
    "imagine": Imagine,
}
