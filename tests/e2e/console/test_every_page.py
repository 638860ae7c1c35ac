"""Every page of the console: at two widths, light and dark, without accessibility violations and sideways scrolling."""

from collections.abc import Iterator

import pytest
from playwright.async_api import Browser, expect

from support.browser.pages import Tab, Theme, tab
from support.scripted_gateway import DIALECTS, ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGES = ("/", "/exchanges/{id}", "/context/{id}", "/upstreams", "/models", "/settings", "/reports", "/playground")
LOOKS: tuple[tuple[int, Theme], ...] = ((1280, "light"), (390, "dark"), (1280, "dark"), (390, "light"))


def looks() -> Iterator[object]:
    """The first two looks always, the others with --every."""
    for number, (width, theme) in enumerate(LOOKS):
        yield pytest.param(width, theme, id=f"{width}-{theme}", marks=() if number < 2 else pytest.mark.every)


async def settled(page: Tab) -> None:
    """Waits until the page has its data."""
    await page.page.locator("main h1, main h2").first.wait_for(state="attached")
    await expect(page.page.locator(".loading")).to_have_count(0)


@pytest.mark.parametrize(("width", "theme"), list(looks()))
async def test_page_is_accessible_and_fits(
    width: int, theme: Theme, chromium: Browser, console: ScriptedGateway, subtests: pytest.Subtests
) -> None:
    await console.capture(True)
    for model in ("plain", "leaky", "unfinished", "caller"):
        id = (await console.ask(model, dialect=DIALECTS[len(model) % len(DIALECTS)])).id
    id = (await console.ask("repaired")).id
    async with tab(chromium, console.url, width=width, theme=theme) as page:
        for path in PAGES:
            with subtests.test(path):
                await page.open(path.format(id=id))
                await settled(page)
                await page.keep(f"{path.strip('/').partition('/')[0] or 'traffic'}-{width}-{theme}")
                assert await page.violations() == []
                assert await page.sideways() == 0
