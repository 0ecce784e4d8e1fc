"""Machines to plan for: this one, some by name, or one that a YAML file describes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from regard.config import Section, expected_by, is_settings, nearest, parse
from regard.errors import UserError

Share = Annotated[float, Field(gt=0, le=1)]


class Machine(Section):
    """Devices that train together. Rates are those of the data sheet; `efficiency` is the share of them that a training
    reaches, from its worst to its best."""

    name: str = Field("own", description="name of the machine")
    devices: int = Field(1, ge=1, le=10**6, description="processors that train together, a process for each")
    teraflops: float = Field(gt=0, description="10¹² operations a second of a device in float32")
    half: float | None = Field(None, gt=0, description="the same in bfloat16; empty: it has no kernels for it")
    gigabytes: float = Field(gt=0, description="memory of a device")
    watts: float | None = Field(None, gt=0, description="power of a device under load")
    price: float | None = Field(None, ge=0, description="price of a device for an hour")
    currency: str = Field("", description="currency of the price")
    efficiency: tuple[Share, Share] = Field((0.2, 0.5), description="share of the rate that is reached, from … to …")

    @field_validator("efficiency")
    @classmethod
    def _worst_first(cls, given: tuple[float, float]) -> tuple[float, float]:
        if given[0] > given[1]:
            raise PydanticCustomError("efficiency", "expected the worst share first, then the best")
        return given

    def rate(self, precision: str) -> float:
        """Return operations a second of all devices together, as the data sheet has them."""
        each = self.half if precision == "bfloat16" and self.half else self.teraflops
        return 1e12 * each * self.devices


# Rates and powers of the makers' data sheets; for the P100 the 9.5 of Vaswani et al. 2017, §6.1, which they sustained.
DEVICES: dict[str, dict[str, Any]] = {
    "P100": {"teraflops": 9.5, "gigabytes": 16, "watts": 250},
    "V100": {"teraflops": 15.7, "gigabytes": 32, "watts": 300},
    "A100": {"teraflops": 19.5, "half": 312, "gigabytes": 80, "watts": 400},
    "H100": {"teraflops": 67, "half": 989, "gigabytes": 80, "watts": 700},
    "laptop": {"teraflops": 0.25, "gigabytes": 16, "watts": 45, "efficiency": (0.15, 0.5)},
}
EXAMPLES = ["this", "laptop", "P100x8", "V100x8", "A100x8", "H100x64"]


def machine_of(name: str) -> Machine:
    """Return the machine of this name, such as A100x8, or the one that a YAML file describes."""
    if is_settings(name):
        return _written(Path(name))
    found = re.fullmatch(rf"({'|'.join(DEVICES)})(?:x(\d+))?", name)
    if found is None or found[2] == "0":
        close = nearest(name, [*EXAMPLES, *DEVICES])
        raise UserError(f"--on {name}: expected one of {', '.join(EXAMPLES)}, or a YAML file{close}")
    return Machine(name=name, devices=int(found[2] or 1), **DEVICES[found[1]])


def _written(path: Path) -> Machine:
    try:
        return Machine.model_validate({"name": path.stem} | parse(path))
    except ValidationError as error:
        first = error.errors()[0]
        key, known = ".".join(map(str, first["loc"])), [*Machine.model_fields]
        if first["type"] == "extra_forbidden":
            raise UserError(f"{path}: there is no key {key!r} of a machine{nearest(key, known)}") from error
        expected = expected_by(first)
        said = f"{first['msg'][0].lower()}{first['msg'][1:]}" if expected is None else f"expected {expected}"
        found = "" if first["type"] == "missing" else f", found {first['input']!r}"
        raise UserError(f"{path}: {key}: {said}{found}; keys: {', '.join(known)}.") from error
