"""The documentation site builds without a warning, names everything public, and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lazygumbel as lg

ROOT = Path(__file__).parent.parent
LOADED = re.compile(r"<(?:(?:script|img|iframe|source)\b[^>]*\bsrc|link\b[^>]*\bhref)=[\"']?([^\"'\s>]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it would hide warnings from --strict as well.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert built.returncode == 0, built.stderr
    return folder


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    loaded = [target for page in pages for target in LOADED.findall(page.read_text(encoding="utf-8"))]
    assert len(pages) > 20 and len(loaded) > len(pages)
    assert [target for target in loaded if re.match(r"\w+:|//", target)] == []
    styles = "".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?(?:https?:)?//|@import", styles)


def test_the_reference_names_everything_public(site: Path) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html"))
    documented = {name.rsplit(".", 1)[-1] for name in re.findall(r'<h\d id="(lazygumbel\.[\w.]+)"', pages)}
    assert set(lg.__all__) - {"__version__"} - documented == set()
    # What a distribution has from others stands with the rest of it.
    verbs = {name for name in dir(lg.Distribution) if not name.startswith("_")}
    assert {name for name in verbs if f'id="lazygumbel.distribution.Distribution.{name}"' not in pages} == set()


def test_every_page_is_in_the_navigation_once() -> None:
    linked = re.findall(r":\s+(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(linked) == sorted(pages)
