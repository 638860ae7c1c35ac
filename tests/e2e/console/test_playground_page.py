"""The playground in a real browser: a chat with a tool call, in each API; streaming, and its end."""

import pytest
from playwright.async_api import Browser, expect

from support.browser.hostile_text import ATTACK, LINK, check_unhurt
from support.browser.pages import tab
from support.scripted_gateway import DIALECTS, ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_chat_with_a_tool_call_in_each_api(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    async with tab(chromium, console.url) as page:
        await page.open("/playground")
        await page.page.get_by_role("combobox", name="Model").select_option("caller")
        await page.page.get_by_text("Tools (0 offered)").click()
        await page.page.get_by_label("get_weather").check()
        for dialect in DIALECTS:
            await page.page.get_by_role("combobox", name="API").select_option(dialect)
            await page.page.get_by_role("textbox", name="Message").fill("Weather in Paris?")
            await page.page.keyboard.press("Enter")
            await page.page.get_by_role("button", name="Run get_weather").click()
            await expect(page.page.get_by_label("Result of get_weather")).to_be_visible()
            await expect(page.page.get_by_label("Conversation")).to_contain_text("It is ")
            await expect(page.page.locator("[data-lane=model]")).to_contain_text("It is ")
            assert console.upstream.asked[-1][2].count(b"get_weather") > 1
            await page.page.get_by_role("button", name="New conversation").click()
        assert await page.violations() == []


async def test_hostile_text_of_a_model_stays_text(chromium: Browser, console: ScriptedGateway) -> None:
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
        await check_unhurt(page, "playground")
    console.script.pieces["plain"] = before


async def test_answer_is_shown_while_it_streams_and_can_be_stopped(chromium: Browser, console: ScriptedGateway) -> None:
    console.script.slow.clear()
    async with tab(chromium, console.url) as page:
        await page.open("/playground")
        await page.page.get_by_role("combobox", name="Model").select_option("slow")
        await page.page.get_by_role("textbox", name="Message").fill("Weather?")
        await page.page.keyboard.press("Enter")
        answer = page.page.get_by_role("article", name="Model")
        await expect(answer).to_contain_text("It is ")
        await page.page.get_by_role("button", name="Stop").click()
        await expect(answer).to_contain_text("Stopped.")
        await page.page.get_by_role("link", name="Traffic").click()
        await page.page.get_by_role("link", name="Playground").click()
        await expect(answer).to_contain_text("It is ")
    console.script.slow.set()
