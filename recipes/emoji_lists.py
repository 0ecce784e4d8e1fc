"""Lists of emoji pictures and their names, for the recipes emoji_*.yaml.

    .venv/bin/python recipes/emoji_lists.py

unpacks data/cap_emoji/images_48px.zip to data/emoji/images and writes data/emoji/{train,dev}_{en,de,fr}.tsv.
"""

import csv
import gzip
import zipfile
from pathlib import Path

LANGUAGES = ("en", "de", "fr")


def main() -> None:
    source, target = Path("data/cap_emoji"), Path("data/emoji")
    with zipfile.ZipFile(source / "images_48px.zip") as archive:
        archive.extractall(target / "images")
    with gzip.open(source / "captions.tsv.gz", "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    for language in LANGUAGES:
        for split in ("train", "dev"):
            lines = [f"{row['id']}.png\t{row[language]}\n" for row in rows if row["split"] == split]
            (target / f"{split}_{language}.tsv").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
