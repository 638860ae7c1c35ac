"""One exchange in a real browser: where a call was recovered, replay, and sending it again in all APIs."""

import json
import re

import pytest
from playwright.async_api import Browser, expect

from support.browser.pages import Tab, tab
from support.scripted_gateway import DIALECTS, ScriptedGateway

LARGE_NUMBER = 12345678901234567890
"""JavaScript would round it."""
pytestmark = pytest.mark.asyncio(loop_scope="session")


async def open_from_list(page: Tab, id: str) -> None:
    """Opens an exchange from the list by keys alone."""
    await page.open()
    row = page.page.locator(f"[data-testid=row][data-id='{id}']")
    await row.wait_for()
    await page.focus("[role=grid]")
    while await row.get_attribute("aria-selected") != "true":
        await page.page.keyboard.press("ArrowDown")
    await page.page.keyboard.press("Enter")
    await page.page.wait_for_url(f"**/console/exchanges/{id}")


async def test_leaked_call_shows_where_it_was_recovered_by_keys_alone(
    chromium: Browser, console: ScriptedGateway
) -> None:
    await console.capture(True)
    id = (await console.ask("leaking")).id
    async with tab(chromium, console.url) as page:
        await open_from_list(page, id)
        lanes = page.page.locator("[data-lane]")
        await expect(lanes).to_have_count(4)
        await page.focus("[data-lane=model] .lane-scroller")
        call = page.page.locator("[data-lane=model] [data-link='call:0'].kind-name")
        while await call.get_attribute("aria-pressed") != "true":
            await page.page.keyboard.press("ArrowDown")
        rule = page.page.get_by_test_id("rule")
        await expect(rule).to_contain_text("left a call in its text")
        await expect(rule).to_contain_text('tool_mode = "parse"')
        counterpart = page.page.locator("[data-lane=reply] [data-link='call:0'].is-linked")
        await expect(counterpart.first).to_contain_text("get_weather")
        await page.page.keyboard.press("ArrowRight")
        focused = "() => document.activeElement.closest('[data-lane]').dataset.lane"
        assert await page.page.evaluate(focused) == "reply"
        await expect(page.page.locator("[data-lane=reply] [aria-pressed=true]")).to_have_attribute(
            "data-link", "call:0"
        )
        await page.page.keyboard.press("Escape")
        await expect(page.page.locator("[data-place][aria-pressed=true]")).to_have_count(0)
        await expect(rule).to_contain_text("leaked_call_recovered")


async def test_replay_reproduces_a_failing_parse(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    id = (await console.ask("unfinished")).id
    async with tab(chromium, console.url) as page:
        await page.open(f"/exchanges/{id}")
        await expect(page.page.get_by_test_id("rule")).to_contain_text("malformed_arguments")
        for chunking in ("as recorded", "each character alone"):
            await page.page.get_by_role("button", name="Replay", exact=True).click()
            await page.page.get_by_label(chunking).check()
            await page.page.get_by_role("dialog").get_by_role("button", name="Replay").click()
            result = page.page.get_by_role("region", name="Replay", exact=True)
            await expect(result).to_contain_text("same")
            await expect(page.page.locator("main")).to_contain_text("Replayed")
            if chunking == "as recorded":
                await expect(result).to_contain_text("The replay is the same")
            await result.get_by_role("button", name="Close").click()


async def test_edited_request_is_sent_again_in_each_api(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    async with tab(chromium, console.url) as page:
        for dialect in DIALECTS:
            id = (await console.ask("plain", dialect=dialect, x_number=LARGE_NUMBER)).id
            await page.open(f"/exchanges/{id}")
            await page.page.get_by_role("button", name="Edit and resend").click()
            body = page.page.get_by_label("Body")
            await expect(body).to_have_value(re.compile("Weather in Paris"))
            await body.fill((await body.input_value()).replace("Paris", "Rome"))
            dialog = page.page.get_by_role("dialog")
            await dialog.get_by_label("Model").fill("leaky")
            await dialog.get_by_role("button", name="Send").click()
            await page.page.wait_for_url(f"**/exchanges/{id}?with=req_*")
            await page.page.get_by_role("button", name="Client sent").click()
            await expect(page.page.locator("main")).to_contain_text("Weather in Rome?")
            sent = json.loads(console.upstream.asked[-1][2])
            assert (sent["model"], "Rome" in json.dumps(sent["messages"])) == ("leaky", True)
            resent = page.page.url.partition("with=")[2]
            body_sent = (await console.api("GET", f"/exchanges/{resent}/body")).json()
            assert body_sent["x_number"] == LARGE_NUMBER
        assert await page.violations() == []


async def test_exchange_is_shown_while_it_runs(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    console.script.slow.clear()
    async with tab(chromium, console.url) as page, console.begun("slow") as running:
        await page.open(f"/exchanges/{running.id}")
        written = page.page.locator("[data-lane=model]")
        await expect(written).to_contain_text("It is")
        await expect(written).not_to_contain_text("Done.")
        console.script.slow.set()
        await expect(written).to_contain_text("Done.")
        await expect(page.page.locator("[data-lane=reply]")).to_contain_text("Done.")


async def test_case_code_and_bundle_are_made(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    id = (await console.ask("leaky")).id
    async with tab(chromium, console.url) as page:
        await page.open(f"/exchanges/{id}")
        async with page.page.expect_download() as case:
            await page.page.get_by_role("button", name="Save as test case").click()
        assert "get_weather" in (await (await case.value).path()).read_text()
        async with page.page.expect_download() as bundle:
            await page.page.get_by_role("link", name="Download bundle").click()
        assert (await bundle.value).suggested_filename == f"{id}.zip"
        assert (await (await bundle.value).path()).read_bytes().startswith(b"PK")
        await page.page.get_by_role("button", name="Copy as code").click()
        await expect(page.page.locator("dialog pre.code")).to_contain_text("curl")


async def test_part_of_a_lane_is_unfolded(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(True)
    id = (await console.ask("plain", headers={"user-agent": "x" * 300})).id
    async with tab(chromium, console.url) as page:
        await page.open(f"/exchanges/{id}")
        block = page.page.locator("[data-lane=client] .block", has=page.page.locator(".fold")).first
        await expect(block.locator("pre")).to_have_count(0)
        await block.locator(".fold").click()
        await expect(block.locator(".fold")).to_have_attribute("aria-expanded", "true")
        await expect(block.locator("pre")).to_be_visible()


async def test_exchange_without_capture_is_followed_to_its_end(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(False)
    console.script.slow.clear()
    async with tab(chromium, console.url) as page, console.begun("slow") as running:
        await page.open(f"/exchanges/{running.id}")
        summary = page.page.locator(".summary")
        await expect(summary).to_contain_text("running")
        console.script.slow.set()
        await expect(summary).to_contain_text("stop")
        await expect(summary).not_to_contain_text("running")
