"""The playground in a real browser: streaming, tools, and the lanes of an answer."""

import pytest
from playwright.async_api import Browser, Page, expect

from support.browser.pages import tab
from support.scripted_gateway import DIALECTS, ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def choose(page: Page, model: str, dialect: str = "openai_chat") -> None:
    """Chooses what is asked, and by which API."""
    await page.get_by_role("combobox", name="Model").select_option(model)
    await page.get_by_role("combobox", name="API").select_option(dialect)


async def send(page: Page, text: str) -> None:
    """Sends a message by the keyboard."""
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.keyboard.press("Enter")


async def test_answer_is_shown_while_it_streams_and_can_be_stopped(chromium: Browser, console: ScriptedGateway) -> None:
    console.script.slow.clear()
    async with tab(chromium, console.url) as page:
        await page.open("/playground")
        await choose(page.page, "slow")
        await send(page.page, "Weather?")
        answer = page.page.get_by_role("article", name="Model")
        await expect(answer).to_contain_text("It is ")
        await page.page.get_by_role("button", name="Stop").click()
        await expect(answer).to_contain_text("Stopped.")
        await page.page.get_by_role("link", name="Traffic").click()
        await page.page.get_by_role("link", name="Playground").click()
        await expect(answer).to_contain_text("It is ")
    console.script.slow.set()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_calls_run_on_a_click_and_lanes_are_shown(
    dialect: str, chromium: Browser, console: ScriptedGateway
) -> None:
    await console.capture(True)
    async with tab(chromium, console.url) as page:
        await page.open("/playground")
        await choose(page.page, "caller", dialect)
        await page.page.get_by_text("Tools (0 offered)").click()
        await page.page.get_by_label("get_weather").check()
        await send(page.page, "Weather in Paris?")
        await page.page.get_by_role("button", name="Run get_weather").click()
        answers = page.page.get_by_role("article", name="Model")
        await expect(answers.nth(1)).to_contain_text("It is sunny")
        await expect(answers.nth(1)).to_contain_text("1,200 tokens in, 1,000 cached, 7 out")
        beside = page.page.get_by_role("region", name="Exchange of the answer")
        await expect(beside).to_contain_text("Model wrote")
        await page.keep(f"playground-answer-{dialect}")


async def test_context_lists_turns_and_parts(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    async with tab(chromium, console.url) as page:
        await page.open("/playground")
        await choose(page.page, "plain")
        for count, text in enumerate(("Weather?", "Sure?"), 1):
            await send(page.page, text)
            await expect(page.page.get_by_text("stop · 1,200 tokens in")).to_have_count(count)
        await page.page.get_by_role("link", name="Context").click()
        await expect(page.page.get_by_role("region", name="Turns of the conversation")).to_contain_text("1.2k")
        await expect(page.page.get_by_role("region", name="Largest parts")).to_contain_text("user message 2")
        assert await page.violations() == []
        await page.page.get_by_role("link", name="Turn 1").press("Enter")
        await expect(page.page.get_by_role("region", name="Largest parts")).not_to_contain_text("user message 2")
