"""Pictures from plain data: token lists and arrays in, matplotlib figures out, `save` to PNG or SVG.

matplotlib takes a while to load, and most commands draw nothing: names are looked up when they are first used.
"""

from typing import TYPE_CHECKING

from regard.lazy import lazily

if TYPE_CHECKING:
    from regard.pictures.galleries import apart, bars, gallery, latent_space, tile_sheet
    from regard.pictures.graphs import graph
    from regard.pictures.maps import alignment, grid
    from regard.pictures.mask_gallery import mask, masks
    from regard.pictures.overlays import confusion, contact_sheet, overlay
    from regard.pictures.plots import (
        curves,
        position_tables,
        sinusoidal_products,
        sinusoidal_table,
        sinusoidal_variance,
    )
    from regard.pictures.spectrograms import spectrogram
    from regard.pictures.strips import strip
    from regard.pictures.style import coloured, save

__all__ = [
    "alignment",
    "apart",
    "bars",
    "coloured",
    "confusion",
    "contact_sheet",
    "curves",
    "gallery",
    "graph",
    "grid",
    "latent_space",
    "mask",
    "masks",
    "overlay",
    "position_tables",
    "save",
    "sinusoidal_products",
    "sinusoidal_table",
    "sinusoidal_variance",
    "spectrogram",
    "strip",
    "tile_sheet",
]

_MODULES = {
    "galleries": ["apart", "bars", "gallery", "latent_space", "tile_sheet"],
    "graphs": ["graph"],
    "mask_gallery": ["mask", "masks"],
    "plots": ["curves", "position_tables", "sinusoidal_products", "sinusoidal_table", "sinusoidal_variance"],
    "maps": ["alignment", "grid"],
    "overlays": ["confusion", "contact_sheet", "overlay"],
    "spectrograms": ["spectrogram"],
    "strips": ["strip"],
    "style": ["coloured", "save"],
}

__getattr__ = lazily(__name__, {name: f"{__name__}.{home}" for home, names in _MODULES.items() for name in names})
