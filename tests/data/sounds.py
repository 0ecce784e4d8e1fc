"""Small recordings for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

RATE = 8000


def tone(hertz: float, seconds: float, rate: int = RATE, loud: float = 0.3) -> NDArray[np.float64]:
    time = np.arange(round(seconds * rate)) / rate
    noise = np.random.default_rng(round(hertz)).standard_normal(len(time))
    return loud * np.sin(2 * np.pi * hertz * time) + 0.01 * noise


def write(path: Path, samples: NDArray[Any] | None = None, rate: int = RATE, **more: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, tone(440, 0.3, rate) if samples is None else samples, rate, **more)
    return path
