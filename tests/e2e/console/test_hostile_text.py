"""Hostile text in every place that the page shows: it stays text, and no script of it runs."""

from urllib.parse import quote

import pytest
from playwright.async_api import Browser, expect

from dragoman.core.messages import Tool
from support.browser.hostile_text import ATTACK, LINK, NAME, check_unhurt
from support.browser.pages import tab
from support.scripted_gateway import DIALECTS, scripted_gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
ADDRESSES = (
    f"/exchanges/{quote(NAME, safe='')}",
    f"/context/{quote(NAME, safe='')}",
    f"/?search={quote(ATTACK)}&model={quote(NAME)}&agent={quote(NAME)}&outcome={quote(NAME)}",
    f"/reports?by={quote(NAME)}&days={quote(NAME)}",
    f"/{quote(NAME, safe='')}",
    "/exchanges/%",
    "/exchanges/%E0%A4%A",
)


async def test_hostile_text_stays_text(chromium: Browser) -> None:
    async with (
        scripted_gateway(models=(NAME, "caller", "plain")) as console,
        tab(chromium, console.url, expected=("status of 40",)) as page,
    ):
        await console.capture(True)
        await page.open()
        await page.page.get_by_text("live").wait_for()
        call = {"name": NAME, "arguments": f'{{"city": "{NAME}", "{NAME}": 1}}'}
        calls = {"tool_calls": [{"index": 0, "id": NAME, "type": "function", "function": call}]}
        console.script.pieces[NAME] = ({"reasoning_content": ATTACK}, ATTACK, LINK, calls)
        console.script.errors["plain"] = ATTACK
        tool = Tool(NAME, ATTACK, '{"type": "object", "properties": {"city": {"type": "string"}}}')
        headers = {"user-agent": ATTACK, "x-session-id": NAME, "x-title": ATTACK, "x-dragoman-agent": NAME}
        ids = list[str]()
        for dialect in DIALECTS:
            for model in (NAME, "plain"):
                more = {"user": ATTACK, "metadata": {"user_id": ATTACK}}
                asked = await console.ask(model, ATTACK + LINK, dialect, [tool], headers, **more)
                ids.append(asked.id)
        await page.page.locator(f"[data-id='{ids[-1]}']").wait_for()
        await check_unhurt(page, "live list")
        for path in (*(f"/exchanges/{id}" for id in ids[:2]), f"/context/{ids[0]}"):
            await page.go(path)
            await page.page.locator("main").get_by_text("globalThis.hacked").first.wait_for()
            await page.page.evaluate("() => document.querySelectorAll('[data-place]').forEach(span => span.click())")
            await check_unhurt(page, path)
        for path in ("/", "/reports", "/upstreams", "/models", "/settings", "/playground", *ADDRESSES):
            await page.go(path)
            await expect(page.page.locator(".loading")).to_have_count(0)
            await check_unhurt(page, path)
        await expect(page.page.locator("main")).to_be_visible()
