"""Hostile text in every place that the page shows: it stays text, and no script of it runs."""

from urllib.parse import quote

import pytest
from playwright.async_api import Browser, expect

from dragoman.core.messages import Tool
from support.browser.pages import Tab, tab
from support.scripted_gateway import DIALECTS, ScriptedGateway, scripted_gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
ATTACK = (
    "\"'><img src=x onerror=globalThis.hacked=1><script>globalThis.hacked=1</script><svg onload=globalThis.hacked=1>"
)
LINK = "[x](javascript:globalThis.hacked=1) <a href='javascript:globalThis.hacked=1'>x</a>"
SCHEMA = (
    '{"type": "object", "properties": {"city": {"type": "string", "description": '
    + repr(ATTACK).replace("'", '"')
    + "}}}"
)
NAME = "<img src=x onerror=globalThis.hacked=1>"
ADDRESSES = (
    f"/exchanges/{quote(NAME, safe='')}",
    f"/context/{quote(NAME, safe='')}",
    f"/?search={quote(ATTACK)}&model={quote(NAME)}&agent={quote(NAME)}&outcome={quote(NAME)}",
    f"/reports?by={quote(NAME)}&days={quote(NAME)}",
    f"/{quote(NAME, safe='')}",
    "/exchanges/%",
    "/exchanges/%E0%A4%A",
)


async def check(page: Tab, place: str) -> None:
    assert await page.page.evaluate("() => globalThis.hacked === undefined"), place
    strange = "img[src=x], main script, svg[onload], a[href^='javascript:'], iframe, object, embed"
    assert await page.page.locator(strange).count() == 0, place


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
        await check(page, "live list")
        for id in ids:
            for path in (f"/exchanges/{id}", f"/context/{id}"):
                await page.open(path)
                await page.page.locator("main").get_by_text("globalThis.hacked").first.wait_for()
                for span in await page.page.locator("[data-place]").all():
                    await span.dispatch_event("click")
                await check(page, path)
        for path in ("/", "/reports", "/upstreams", "/models", "/settings", "/playground", *ADDRESSES):
            await page.open(path)
            await page.page.wait_for_load_state("networkidle") if path != "/" else None
            await check(page, path)
        await expect(page.page.locator("main")).to_be_visible()


async def test_hostile_model_in_the_playground(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    before = console.script.pieces["plain"]
    console.script.pieces["plain"] = ({"reasoning_content": ATTACK}, ATTACK, LINK)
    async with tab(chromium, console.url) as page:
        await page.open("/playground")
        await page.page.get_by_role("combobox", name="Model").select_option("plain")
        await page.page.get_by_role("textbox", name="Message").fill(ATTACK)
        await page.page.keyboard.press("Enter")
        await expect(page.page.get_by_label("Conversation")).to_contain_text("javascript:globalThis.hacked=1")
        await expect(page.page.locator("[data-lane=reply]")).to_contain_text("hacked")
        await check(page, "playground")
    console.script.pieces["plain"] = before
