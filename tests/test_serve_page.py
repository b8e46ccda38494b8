"""The page in a real browser: type a word, move the slider, exclude, audit, copy; in dark, and on a narrow screen.

It needs a Chromium; `make test` installs one where it can.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

import lazygumbel as lg
from lazygumbel.sharded import ShardedModel
from serve_helpers import N, Server, named_model, serving
from statistics_helpers import make_rows, probabilities_of

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = [
    *(["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TOKEN = "a-token-of-some-length"
expect.set_options(timeout=20_000)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None,
    reason="NO BROWSER: the page was not tested; install Debian's chromium, or run `make test` as root",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(named_model()) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """The page, which must ask nobody but the service, and write no error to the console."""
    context = browser.new_context(
        viewport={"width": 1200, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )
    opened, wrong = context.new_page(), list[str]()
    opened.on("request", lambda request: None if request.url.startswith(server.url) else wrong.append(request.url))
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.goto(server.url)
    expect(opened.locator("#examples button").first).to_be_visible()
    yield opened
    context.close()
    assert not wrong


def ask(page: Page, query: str) -> None:
    page.fill("#query", query)
    page.press("#query", "Enter")
    expect(page.locator("#answer")).to_be_visible()
    settled(page)


def settled(page: Page) -> None:
    expect(page.locator('#answer[aria-busy="false"]:not(.stale)')).to_be_visible()


def names(page: Page, which: str) -> list[str]:
    return page.locator(f"#{which} .name").all_inner_texts()


def number(page: Page, element: str) -> float:
    return float(page.locator(element).inner_text().replace(",", "").rstrip("%"))


def temperature(page: Page) -> float:
    return float(re.search(r"[#&]t=([\d.e-]+)", page.url)[1])  # type: ignore[index]


def contrast(element: Locator, ground: list[int]) -> float:
    """Of its text with a colour behind it, as the Web Content Accessibility Guidelines measure it."""
    ink = element.evaluate("element => getComputedStyle(element).color.match(/\\d+/g).map(Number)")

    def luminance(colour: list[int]) -> float:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(colour[:3]) / 255]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    light, dark = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_typing_completes_a_name_and_shows_its_distribution(page: Page) -> None:
    page.keyboard.press("Escape")  # out of the field, and back by the key for it
    page.keyboard.press("/")
    page.keyboard.type("ri")
    expect(page.locator("#options li")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settled(page)
    assert page.input_value("#query") == "river"
    rows, held = named_model().features.gather(np.arange(N)), temperature(page)
    exact = probabilities_of(rows, rows[0], held)
    order = np.argsort(-exact)
    ids = [int(i) for i in page.locator("#top li").evaluate_all("items => items.map(item => item.dataset.id)")]
    assert ids == order[:20].tolist()
    assert number(page, "#mass") == pytest.approx(100 * exact[order[:100]].sum(), abs=1.0)
    entropy = -(exact * np.log(exact)).sum()
    assert number(page, "#perplexity") == pytest.approx(np.exp(entropy), rel=0.1)
    theta = named_model()(rows[0], temperature=held)
    drawn = theta.sample_without_replacement(20, rng=0)
    assert names(page, "drawn") == [named_model().features.names[int(i)] for i in drawn.ids]
    expect(page.locator("#label")).to_have_text(drawn.label)
    beyond = len(set(drawn.ids.tolist()) - set(order[:100].tolist()))
    expect(page.locator("#drawn .beyond")).to_have_count(beyond)
    assert 0 < beyond < 20
    expect(page.locator("#plot circle")).not_to_have_count(0)
    expect(page.locator("#work")).to_contain_text("rows read")


def test_the_slider_changes_perplexity_and_log_z(page: Page) -> None:
    ask(page, "river + lake - creek")
    before, log_z = number(page, "#perplexity"), number(page, "#log-z")
    page.locator("#temperature").focus()
    for _ in range(3):
        page.keyboard.press("]")
    settled(page)
    assert number(page, "#perplexity") > before
    assert number(page, "#log-z") != log_z
    for _ in range(12):
        page.keyboard.press("[")
    settled(page)
    assert number(page, "#perplexity") < before / 2


def test_rows_are_excluded_by_a_click_and_brought_back(page: Page) -> None:
    ask(page, "river")
    first = names(page, "top")
    page.locator("#top li").nth(0).hover()
    page.get_by_label("Leave out river").first.click()
    expect(page.locator("#excluded button")).to_have_text(["river"])
    settled(page)
    assert names(page, "top")[:19] == first[1:]
    assert "river" not in names(page, "drawn")
    page.locator("#excluded button").click()
    expect(page.locator("#excluded")).to_be_hidden()
    settled(page)
    assert names(page, "top") == first


def test_an_audit_shows_the_truth_beside_the_estimates(page: Page) -> None:
    ask(page, "lake")
    page.keyboard.press("Tab")  # out of the field, where letters are text
    page.locator("#audit").click()
    expect(page.locator("#truth")).to_contain_text(f"All {N:,} rows were read")
    assert page.locator("#top .true").count() == 20
    assert page.locator(".true.off").count() == 0
    expect(page.locator("#plot path.exact")).to_have_count(1)
    page.keyboard.press("r")  # other draws: the audit was of the old ones
    expect(page.locator("#truth")).to_be_hidden()


def test_the_seed_and_the_address_keep_the_draws(page: Page) -> None:
    ask(page, "river")
    first = names(page, "drawn")
    page.click("#again")
    settled(page)
    second, address = names(page, "drawn"), page.url
    assert second != first
    other = page.context.new_page()
    other.goto(address)
    settled(other)
    assert names(other, "drawn") == second
    assert other.input_value("#seed") == "1"


def test_copied_commands_give_the_draws_that_are_shown(page: Page) -> None:
    ask(page, "river")
    shown = names(page, "drawn")
    page.click("#python")
    expect(page.locator("#said")).to_have_text("copied as Python")
    code = page.evaluate("navigator.clipboard.readText()")
    held: dict[str, object] = {}
    exec(code, held)
    assert held["drawn"].names == shown  # type: ignore[attr-defined]
    page.click("#curl")
    expect(page.locator("#said")).to_have_text("copied as curl")
    command = page.evaluate("navigator.clipboard.readText()")
    if shutil.which("curl"):
        printed = subprocess.run(["bash", "-c", command], capture_output=True, check=True, text=True).stdout
        assert json.loads(printed)["names"] == shown


def test_a_name_that_is_not_there_is_said_and_the_next_query_works(page: Page) -> None:
    page.fill("#query", "nobody")
    page.press("#query", "Enter")
    expect(page.locator("#problem")).to_have_text("no row is named 'nobody'")
    expect(page.locator("#answer")).to_be_hidden()
    expect(page.locator("#examples button").first).to_be_visible()  # what might be asked instead
    ask(page, "river")
    expect(page.locator("#problem")).to_be_hidden()
    expect(page.locator("#empty")).to_be_hidden()
    page.fill("#query", "nobody")
    page.press("#query", "Enter")
    expect(page.locator("#answer.stale")).to_be_visible()  # it is of the query before, and looks so


def test_a_service_that_is_gone_is_said(page: Page) -> None:
    ask(page, "river")
    page.context.set_offline(True)
    page.click("#again")
    expect(page.locator("#problem")).to_contain_text("does not answer")
    page.context.set_offline(False)
    page.locator("#query").press("Enter")
    expect(page.locator("#problem")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_overflows_and_text_stands_out(browser: Browser, server: Server, scheme: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 700}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(f"{server.url}/#q=river&t=0.2&without=3")
    settled(page)
    page.click("#audit")
    expect(page.locator("#truth")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = (
        page.evaluate(f"getComputedStyle(document.body).{name}.match(/\\d+/g).map(Number)")
        for name in ("backgroundColor", "color")
    )
    assert (sum(ground) < sum(ink)) == (scheme == "dark")
    for faint in ("#facts", "#work", "#log-z-error", "#top small >> nth=0", "#top .number >> nth=0"):
        assert contrast(page.locator(faint), ground) >= 4.5, faint
    page.click("#theme")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") != scheme
    context.close()


def test_rows_in_shards_are_explored_like_others(browser: Browser, tmp_path: Path) -> None:
    """Names are completed, and audits made, over all shards."""
    ShardedModel.split(named_model(), tmp_path / "shards", shards=3, rng=0)
    with serving(tmp_path / "shards") as server:
        page = browser.new_page()
        page.goto(server.url)
        page.locator("#query").press_sequentially("word199")
        expect(page.locator("#options li")).to_have_count(8)
        page.keyboard.press("Enter")
        settled(page)
        assert names(page, "top")[0] == "word199"
        page.click("#audit")
        expect(page.locator("#truth")).to_contain_text(f"All {N:,} rows were read")
        assert page.locator(".true.off").count() == 0
        page.close()


def test_rows_without_names_are_asked_for_by_id_behind_a_token(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("token") / "token"
    file.write_text(TOKEN)
    with serving(lg.LogLinear.build(make_rows(50, 4)), "--token-file", str(file)) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.fill("#token", TOKEN)
        page.press("#token", "Enter")
        expect(page.locator("#examples button").first).to_be_visible()
        ask(page, "7")
        assert names(page, "top")[0].startswith("#")
        expect(page.locator("#label")).to_have_text("exact")
        expect(page.locator("#log-z-error")).to_have_text("exact")
        page.close()
