"""Going from page to page: slow answers, and where the focus of the keyboard stays."""

import asyncio
import re

import pytest
from playwright.async_api import Browser, Route, expect

from support.browser.pages import tab
from support.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_page_that_is_left_before_it_is_loaded_is_not_shown(chromium: Browser, console: ScriptedGateway) -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        asked.set()
        await goes_on.wait()
        await route.continue_()

    async with tab(chromium, console.url) as page:
        await page.page.route("**/assets/reports-*.js", hold)
        await page.open()
        pages = page.page.get_by_role("navigation", name="Pages")
        await pages.get_by_role("link", name="Reports").click()
        await asked.wait()
        await pages.get_by_role("link", name="Traffic").click()
        search = page.page.get_by_role("searchbox")
        await expect(search).to_be_visible()
        async with page.page.expect_event("requestfinished", lambda request: "/assets/reports-" in request.url):
            goes_on.set()
        await page.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        await expect(search).to_be_visible()


async def test_answer_that_takes_longer_than_the_polling_is_shown(chromium: Browser, console: ScriptedGateway) -> None:
    held: list[Route] = []

    async with tab(chromium, console.url) as page:
        await page.page.clock.install()
        await page.page.route("**/console/api/upstreams", lambda route: held.append(route))
        async with page.page.expect_request("**/console/api/upstreams"):
            await page.open("/upstreams")
        await page.page.clock.run_for(20_000)
        assert len(held) == 1
        await held[0].continue_()
        await expect(page.page.get_by_role("heading", level=2).first).to_be_visible()
        async with page.page.expect_request("**/console/api/upstreams"):
            await page.page.clock.run_for(6_000)
        await page.page.unroute_all(behavior="ignoreErrors")


async def test_focus_is_kept(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    id = (await console.ask("leaking")).id
    async with tab(chromium, console.url) as page:
        await page.open()
        row = page.page.locator(f"[data-testid=row][data-id='{id}']")
        await row.wait_for()
        before = await page.page.evaluate("() => history.length")
        await row.get_by_role("link").click()
        await page.page.wait_for_url(f"**/console/exchanges/{id}")
        assert await page.page.evaluate("() => history.length") == before + 1
        await expect(page.page.locator("#content")).to_be_focused()

        copy = page.page.get_by_role("button", name="Copy as code")
        await copy.click()
        await page.page.get_by_role("dialog").get_by_role("button", name="Close").click()
        await expect(copy).to_be_focused()

        name = page.page.locator("[data-lane=model] [data-link='call:0'].kind-name")
        rule = page.page.get_by_test_id("rule")
        for close in ("key", "button"):
            await name.click()
            await expect(name).to_have_attribute("aria-pressed", "true")
            button = rule.get_by_role("button", name=re.compile("^Close"))
            if close == "key":
                await button.focus()
                await page.page.keyboard.press("Escape")
            else:
                await button.click()
            await expect(name).to_have_attribute("aria-pressed", "false")
            await expect(name).to_be_focused()
