"""Regard trains, inspects and serves attention models on a user's own data.

Nothing here imports torch: names are looked up when they are first used, so that `import regard` and
`regard --help` answer at once.
"""

from typing import TYPE_CHECKING

from regard.errors import UserError
from regard.lazy import lazily

if TYPE_CHECKING:
    from regard.inspection.recording import watch
    from regard.runs.model import Model, load
    from regard.training.train import train

__version__ = "1.0.0"
__all__ = ["Model", "UserError", "__version__", "load", "train", "watch"]


def __dir__() -> list[str]:
    return [*__all__]


__getattr__ = lazily(
    __name__,
    {
        "Model": "regard.runs.model",
        "load": "regard.runs.model",
        "train": "regard.training.train",
        "watch": "regard.inspection.recording",
    },
)
