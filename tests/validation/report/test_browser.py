"""The HTML report in a real browser: no errors, nothing from the network, readable on a phone."""

from __future__ import annotations

import shutil

import pytest
from isomorph.validation.report.document import write

CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
def test_the_page(browser, document, tmp_path, width, scheme):
    path = tmp_path / "report.html"
    write(document, "html", path)
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert not problems
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for part in (
        "#overview",
        ".culprit .source",
        "svg.curve circle.marked",
        "svg.histogram rect",
        "table.stages",
        "table.kinds",
        ".axis b",
        "dl.times",
        "dl.versions",
        ".evidence",
    ):
        assert page.locator(part).first.is_visible(), part
    assert "torch.tanh" in page.locator(".culprit .source").first.inner_text()
    page.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
    page.close()
