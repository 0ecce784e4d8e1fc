"""What the site needs beyond Markdown: pages of linked files, links between them, and the sections that are folders."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parents[2]))
from docs.atlas.source import expand
from docs.site import links

ORIGINS: dict[str, str] = {}  # the path in the repository of each page of the site


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file that a page links to, and list the pages that the navigation names by how they begin."""
    pages = {f"docs/{file.src_uri}": expand(file.content_string) for file in files.documentation_pages()}
    waiting = [*pages, "CONTRIBUTING.md", "CHANGELOG.md"]
    while waiting:
        path = waiting.pop()
        if path not in pages:
            pages[path] = links.included(path)
            files.append(File.generated(config, links.place(path), content=pages[path]))
        ORIGINS[links.place(path)] = path
        waiting += links.outside(pages[path], path) - {*pages, *waiting}
    config.nav = filled(config.nav, sorted(file.src_uri for file in files.documentation_pages()))
    return files


def filled(nav: Any, pages: list[str]) -> Any:
    """Return the navigation with all pages whose names begin so in the place of `name*`."""
    if isinstance(nav, dict):
        return {title: filled(entry, pages) for title, entry in nav.items()}
    if isinstance(nav, str):
        return sorted((page for page in pages if page.startswith(nav[:-1])), key=by_number) if nav[-1] == "*" else nav
    return [filled(entry, pages) for entry in nav]


def by_number(page: str) -> list[str]:
    """Order pages as people count: a2 before a10."""
    return [part.zfill(9) for part in re.findall(r"\d+|\D+", page)]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the page's links to pages of the site."""
    return links.in_site(expand(markdown), ORIGINS[page.file.src_uri])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Tell the check of links which lines of code can be linked to; pictures load when they are seen.

    A stroke in the code of a table is written `\\|`, which GitHub shows as `|` and Markdown for Python as it stands.
    """
    page.present_anchor_ids = (page.present_anchor_ids or set()) | {*re.findall(r'id="(__codelineno[^"]+)"', html)}
    html = re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)
    return re.sub(r"<img (?![^>]*loading=)", '<img loading="lazy" ', html)
