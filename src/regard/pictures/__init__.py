"""Pictures from plain data: token lists and arrays in, matplotlib figures out, `save` to PNG or SVG."""

from regard.pictures.allowed import mask, masks
from regard.pictures.lines import curves, sinusoidal_products, sinusoidal_table, sinusoidal_variance
from regard.pictures.maps import alignment, grid
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
]
