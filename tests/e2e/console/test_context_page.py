"""The page of what fills the context, in a real browser."""

import pytest
from playwright.async_api import Browser, expect

from support.browser.pages import tab
from support.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_context_lists_turns_and_parts(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    async with tab(chromium, console.url) as page:
        await page.open("/playground")
        await page.page.get_by_role("combobox", name="Model").select_option("plain")
        for count, text in enumerate(("Weather?", "Sure?"), 1):
            await page.page.get_by_role("textbox", name="Message").fill(text)
            await page.page.keyboard.press("Enter")
            await expect(page.page.get_by_text("stop · 1,200 tokens in")).to_have_count(count)
        await page.page.get_by_role("link", name="Context").click()
        await expect(page.page.get_by_role("region", name="Turns of the conversation")).to_contain_text("1.2k")
        await expect(page.page.get_by_role("region", name="Largest parts")).to_contain_text("user message 2")
        assert await page.violations() == []
        await page.page.get_by_role("link", name="Turn 1").press("Enter")
        await expect(page.page.get_by_role("region", name="Largest parts")).not_to_contain_text("user message 2")
