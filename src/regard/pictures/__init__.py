"""Pictures from plain data: token lists and arrays in, matplotlib figures out, `save` to PNG or SVG.

matplotlib takes a while to load, and most commands draw nothing: names are looked up when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.pictures.allowed import mask, masks
    from regard.pictures.lines import curves, sinusoidal_products, sinusoidal_table, sinusoidal_variance
    from regard.pictures.maps import alignment, grid
    from regard.pictures.strips import strip
    from regard.pictures.style import save

__all__ = [
    "alignment",
    "curves",
    "grid",
    "mask",
    "masks",
    "save",
    "sinusoidal_products",
    "sinusoidal_table",
    "sinusoidal_variance",
    "strip",
]

_HOMES = {
    "alignment": "maps",
    "curves": "lines",
    "grid": "maps",
    "mask": "allowed",
    "masks": "allowed",
    "save": "style",
    "sinusoidal_products": "lines",
    "sinusoidal_table": "lines",
    "sinusoidal_variance": "lines",
    "strip": "strips",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'regard.pictures' has no attribute {name!r}")
    return getattr(import_module(f"regard.pictures.{_HOMES[name]}"), name)
