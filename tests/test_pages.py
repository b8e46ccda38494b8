"""Pages whose tables were measured show what was measured, to the letter."""

import json
import re

import pytest

from pages import DOCS, PAGES, rendered, tables_of


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_was_measured(name: str) -> None:
    page, tables = (DOCS / name).read_text(encoding="utf-8"), tables_of(name)
    assert rendered(page, tables) == page
    assert set(re.findall(r"<!-- ((?!end)[\w ]+) -->", page)) == set(tables)
    assert page.count("<!-- end -->") == len(tables)
    for table in tables:
        assert rendered(page, tables | {table: tables[table] + " and more"}) != page


@pytest.mark.parametrize("name", PAGES)
def test_every_figure_that_is_kept_is_of_a_whole_run(name: str) -> None:
    held = json.loads((DOCS / PAGES[name][0]).read_text(encoding="utf-8"))
    assert not held.get("run", {}).get("quick", False)
    text = "".join(tables_of(name).values())
    assert "nan" not in text and "inf" not in text and "None" not in text


def test_other_measurements_make_another_table() -> None:
    held = json.loads((DOCS / "language_model.json").read_text(encoding="utf-8"))
    make = PAGES["language_models.md"][1]
    before = make(held)
    held["points"][0]["milliseconds"] += 50
    held["bars"][0]["met"] = False
    after = make(held)
    assert after["heads"] != before["heads"] and "**missed**" in after["bars"] and after["lost"] == before["lost"]
