"""Regard trains, inspects and serves attention models on a user's own data.

Nothing here imports torch: names are looked up when they are first used, so that `import regard` and
`regard --help` answer at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from regard.errors import UserError

if TYPE_CHECKING:
    from regard.running import Model, load, train
    from regard.watching import watch

__version__ = "0.1.0"
__all__ = ["Model", "UserError", "__version__", "load", "train", "watch"]

_HOMES = {
    "Model": "regard.running",
    "load": "regard.running",
    "train": "regard.running",
    "watch": "regard.watching",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
