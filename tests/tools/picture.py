"""The README's picture: the first screen of a report's page.

python tests/tools/picture.py advisor-report/report.html docs/report.png
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import chromium


def main(page: Path, picture: Path) -> None:
    """Writes the first screen of the page, down to the three best actions, as PNG."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        chromium.browser(Path(profile)) as browser,
    ):
        browser.open(page, width=1200)
        height = browser.run("document.querySelector('.first').getBoundingClientRect().bottom + 28")
        view = {"x": 0, "y": 0, "width": 1200, "height": height, "scale": 1}
        picture.write_bytes(browser.picture(clip=view))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
