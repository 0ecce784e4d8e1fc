"""`make atlas`: run every page of the atlas, compare what it quotes, draw its pictures again.

`make atlas PAGES="a5 b1"` runs some. Each page runs in a folder of its own. Seconds are of processor time, without the
imports; seconds.json keeps them, and the suite runs the pages that take less than 2.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from docs.atlas import catalogue
from docs.atlas.pages import Failed, follow, unprinted

SECONDS = catalogue.FOLDER / "seconds.json"
QUICK = 2.0  # seconds: the suite runs these
MOST = 60.0  # seconds of processor time that a page may take
LIMIT = 1800.0  # seconds after which a step is given up, however busy the machine is


def run(page: Path, folder: Path) -> tuple[float, list[str]]:
    """Run a page in an empty folder; return its seconds and what is wrong with it."""
    (folder / "pictures").mkdir()
    seconds, faults = 0.0, list[str]()
    try:
        for done in follow(page, folder, LIMIT):
            seconds += done.seconds
            missing = unprinted(done.step.quoted, done.printed)
            faults += [
                f"{page.name}:{done.step.line}: it no longer prints '{line}', but\n{done.printed}" for line in missing
            ]
    except Failed as fault:
        faults.append(str(fault))
    except subprocess.TimeoutExpired as fault:
        faults.append(f"{page.name}: given up after {fault.timeout:.0f} seconds")
    if seconds > MOST:
        faults.append(f"{page.name}: {seconds:.0f} seconds, at most {MOST:.0f} were expected")
    return seconds, faults


def main(chosen: list[str]) -> int:
    pages = [
        page for page in catalogue.pages() if not chosen or page.stem in chosen or page.stem.split("-")[0] in chosen
    ]
    kept: dict[str, float] = json.loads(SECONDS.read_text()) if chosen and SECONDS.exists() else {}
    wrong, start = list[str](), time.perf_counter()
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            before = time.perf_counter()
            seconds, faults = run(page, Path(folder))
            print(
                f"{page.stem:40} {seconds:6.1f} s of {time.perf_counter() - before:6.1f} s {'FAILED' if faults else ''}"
            )
            wrong += faults
            kept[page.stem] = round(seconds, 1)
            if not faults:
                for drawn in sorted(Path(folder).glob("pictures/*")):
                    shutil.copy(drawn, catalogue.FOLDER / "pictures")
    known = {page.stem for page in catalogue.pages()}
    SECONDS.write_text(json.dumps({key: kept[key] for key in sorted(kept) if key in known}, indent=1) + "\n")
    print(f"{len(pages)} pages in {(time.perf_counter() - start) / 60:.1f} minutes, {len(wrong)} faults")
    print("\n".join(wrong), file=sys.stderr)
    return max(int(bool(wrong)), catalogue.main())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
