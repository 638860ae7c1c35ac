"""The list of the exchanges in a real browser: live rows, keyboard, filters."""

import time

import pytest
from playwright.async_api import Browser, expect

from support.browser.pages import Tab, tab
from support.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
ROW_S = 0.2
"""Time in which a row appears."""
OBSERVE = """
globalThis.appeared = {};
new MutationObserver(() => {
  for (const row of document.querySelectorAll("[data-testid=row]"))
    appeared[`${row.dataset.id} ${row.dataset.state}`] ??= Date.now() / 1000;
}).observe(document, {subtree: true, childList: true, attributes: true});
"""


async def appeared_s(page: Tab, id: str, state: str) -> float:
    """The time at which the row of an exchange was in this state for the first time."""
    await page.page.locator(f"[data-testid=row][data-id='{id}'][data-state='{state}']").wait_for()
    return float(await page.page.evaluate("key => appeared[key]", f"{id} {state}"))


async def test_row_appears_while_the_exchange_runs_and_changes_at_its_end(
    chromium: Browser, console: ScriptedGateway
) -> None:
    async with tab(chromium, console.url) as page:
        await page.page.add_init_script(OBSERVE)
        await page.open()
        await expect(page.page.get_by_text("live")).to_be_visible()
        delays = list[float]()
        for _ in range(20):  # one is enough: others may be late because this machine does something else
            console.script.slow.clear()
            before = time.time()
            async with console.begun("slow") as running:
                delays.append(await appeared_s(page, running.id, "running") - before)
                ended = time.time()
                console.script.slow.set()
                await running.response.aread()
                delays.append(await appeared_s(page, running.id, "done") - ended)
            if min(delays[::2]) <= ROW_S and min(delays[1::2]) <= ROW_S:
                break
        assert min(delays[::2]) <= ROW_S, delays
        assert min(delays[1::2]) <= ROW_S, delays
        row = page.page.locator(f"[data-id='{running.id}']")
        await expect(row).to_contain_text("slow")
        await expect(row).to_contain_text("far")


async def test_list_is_used_with_the_keyboard(chromium: Browser, console: ScriptedGateway) -> None:
    ids = [(await console.ask(model)).id for model in ("plain", "leaky", "repaired")]
    async with tab(chromium, console.url) as page:
        await page.open()
        await page.page.get_by_test_id("row").first.wait_for()
        await page.page.keyboard.press("/")
        await page.page.keyboard.type("leaky")
        await expect(page.page.locator(f"[data-id='{ids[1]}']")).to_be_visible()
        await expect(page.page.locator(f"[data-id='{ids[0]}']")).to_have_count(0)
        await page.page.keyboard.press("Escape")
        await expect(page.page.get_by_label("Search exchanges")).not_to_be_focused()
        await page.focus("[role=grid]")
        await page.page.keyboard.press("ArrowDown")
        await page.page.keyboard.press("Enter")
        await page.page.wait_for_url("**/console/exchanges/req_*")
        await page.page.go_back()
        await expect(page.page.get_by_label("Search exchanges")).to_have_value("leaky")


async def test_exchange_of_a_page_that_is_paused_waits(chromium: Browser, console: ScriptedGateway) -> None:
    async with tab(chromium, console.url) as page:
        await page.open()
        await expect(page.page.get_by_text("live")).to_be_visible()
        await page.page.get_by_role("button", name="Pause").click()
        asked = await console.ask("plain")
        await expect(page.page.get_by_text("1 newer")).to_be_visible()
        await expect(page.page.locator(f"[data-id='{asked.id}']")).to_have_count(0)
        await page.page.get_by_role("button", name="Resume").click()
        await expect(page.page.locator(f"[data-id='{asked.id}']")).to_be_visible()
