"""Regard trains, inspects and serves attention models on a user's own data.

Nothing here imports torch: names are looked up when they are first used, so that `import regard` and
`regard --help` answer at once.
"""

from typing import TYPE_CHECKING

from regard.errors import UserError
from regard.lazily import lazily

if TYPE_CHECKING:
    from regard.running import Model, load, train
    from regard.watching import watch

__version__ = "0.1.0"
__all__ = ["Model", "UserError", "__version__", "load", "train", "watch"]

__getattr__ = lazily(
    __name__,
    {
        "Model": "regard.running",
        "load": "regard.running",
        "train": "regard.running",
        "watch": "regard.watching",
    },
)
