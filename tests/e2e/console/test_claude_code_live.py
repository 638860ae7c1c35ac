"""The real Claude Code while the page is open: its rows appear at once, and its leaked call is explained."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from bench import claude_code
from bench.claude_code import FLAGS
from playwright.async_api import Browser, expect

from support import agents
from support.agents import NOTES
from support.browser.pages import tab
from support.gateway import link_weights, running
from support.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
EMBEDDED = "qwen2.5-coder-1.5b"
ROW_S = 0.2
ROW_TIMES = """
globalThis.rowTimes = {};
addEventListener("DOMContentLoaded", () => new MutationObserver(() => {
  for (const row of document.querySelectorAll("[data-testid=row]")) rowTimes[row.dataset.id] ??= Date.now() / 1000;
}).observe(document.body, {subtree: true, childList: true}));
"""
"""Notes when each row appears."""
SINCE_BEGIN = """
async id => {
  while (true) {
    const {rows} = await (await fetch("/console/api/traffic")).json();
    const row = rows.find(each => each.id === id);
    if (row) return [row.began_s, rowTimes[id]];
    await new Promise(resolve => setTimeout(resolve, 500));
  }
}
"""
"""When an exchange began by its record, and when its row appeared."""


async def test_leaked_call_of_claude_code_is_explained(
    chromium: Browser, console: ScriptedGateway, tmp_path: Path
) -> None:
    folder = agents.folder_of(tmp_path)
    call = f'{{"name": "Read", "arguments": {{"file_path": "{folder}/notes.txt"}}}}'
    console.script.pieces["sloppy"] = ("I will read it. ", f"<tool_call>\n{call}\n</tool_call>")
    await console.capture(True)
    async with tab(chromium, console.url) as page:
        await page.open("/?agent=claude-code")
        await page.page.get_by_text("live").wait_for()
        said = await agents.claude_code(console.url, tmp_path, folder, *FLAGS, "--model", "sloppy")
        assert NOTES.strip() in said[-1]["result"]
        recovered = page.page.get_by_test_id("row").filter(has_text="recovered")
        await expect(recovered).to_contain_text("Read")
        await expect(recovered).to_contain_text("claude-code")
        await recovered.get_by_role("link").click()
        await expect(page.page.get_by_test_id("rule")).to_contain_text('Set tool_mode = "parse" of the server')
        await expect(page.page.locator("[data-lane=reply]")).to_contain_text("notes.txt")
        await page.keep("claude-code")
        assert await page.violations() == []


@pytest.mark.model
@pytest.mark.every
async def test_claude_code_on_the_embedded_model_is_seen_live(chromium: Browser) -> None:
    """Minutes: the model reads the agent's prompt on a CPU. Needs `make weights-1.5b`."""
    with tempfile.TemporaryDirectory() as short:
        home = Path(short)
        folder = agents.folder_of(home)
        link_weights(home / "cache", EMBEDDED)
        settings = {"home": home / "cache", "embedded.model": EMBEDDED, "embedded.context_window": 8192}
        with running(home, settings={**settings, "embedded.threads": 2}, new_process=True) as gateway:
            async with tab(chromium, gateway.url) as page:
                await page.page.add_init_script(ROW_TIMES)
                await page.open()
                await page.page.get_by_role("switch", name="Capture off").click()
                more = ("--model", EMBEDDED, *FLAGS)
                session = asyncio.create_task(
                    agents.claude_code(gateway.url, home, folder, *more, deadline_s=claude_code.DEADLINE_S)
                )
                row = page.page.get_by_test_id("row").last
                await row.wait_for(timeout=claude_code.DEADLINE_S * 1000)
                id = await row.get_attribute("data-id")
                began_s, appeared_s = await page.page.evaluate(SINCE_BEGIN, id)
                print(f"row of the first request after {(appeared_s - began_s) * 1000:.0f} ms")
                assert appeared_s - began_s <= ROW_S
                await page.open(f"/exchanges/{id}")
                written = page.page.locator("[data-lane=model]")
                await written.get_by_text("Read").first.wait_for(timeout=claude_code.DEADLINE_S * 1000)
                await page.keep("claude-code-embedded")
                said = await session
                print(json.dumps(said[-1]))
                await page.open()
                await page.page.get_by_test_id("row").first.wait_for()
                await page.keep("claude-code-embedded-list")
