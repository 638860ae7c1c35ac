"""With captures off, no text of a request is ever on the page, in its memory or in what it was sent."""

import pytest
from playwright.async_api import Browser, Response, expect

from dragoman.core.messages import Tool
from support.browser.pages import tab
from support.scripted_gateway import ScriptedGateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
PROMPT, DESCRIPTION, OUTPUT, ARGUMENT, ERROR = (
    f"pomegranate-{word}" for word in ("asked", "tool", "said", "city", "failed")
)
TOOL = Tool("get_weather", DESCRIPTION, '{"type": "object", "properties": {"city": {"type": "string"}}}')
PAGES = ("/", "/exchanges/{id}", "/context/{id}", "/reports", "/upstreams", "/settings", "/")


async def ask_all(console: ScriptedGateway) -> str:
    """Sends requests whose every text has a marker."""
    call = {"name": "get_weather", "arguments": f'{{"city": "{ARGUMENT}"}}'}
    leaked = f'<tool_call>\n{{"name": "get_weather", "arguments": {{"city": "{ARGUMENT}"}}}}\n</tool_call>'
    console.script.pieces["thinker"] = ({"reasoning_content": OUTPUT}, OUTPUT)
    console.script.pieces["leaky"] = (OUTPUT, leaked)
    console.script.pieces["broken"] = (OUTPUT, leaked[:-20])
    console.script.pieces["caller"] = ({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": call}]},)
    console.script.errors["plain"] = f"{ERROR}: cannot read {PROMPT}"
    for model in ("plain", "thinker", "leaky", "broken", "caller"):
        id = (await console.ask(model, PROMPT, tools=[TOOL])).id
    return id


async def test_no_text_without_a_capture(chromium: Browser, console: ScriptedGateway) -> None:
    await console.capture(False)
    pieces, errors = dict(console.script.pieces), dict(console.script.errors)
    bodies = list[bytes]()

    async def keep(response: Response) -> None:
        if "stream" not in response.url:
            bodies.append(await response.body())

    try:
        async with tab(chromium, console.url, expected=("status of 404",)) as page:
            await page.open()
            await page.page.get_by_text("live").wait_for()
            page.page.on("response", keep)
            id = await ask_all(console)
            await page.page.locator(f"[data-id='{id}'][data-state=done]").wait_for()
            heaps = [await page.heap()]
            for path in PAGES:
                await page.go(path.format(id=id))
                await expect(page.page.locator(".loading")).to_have_count(0)
                assert "pomegranate" not in await page.page.content(), path
            heaps.append(await page.heap())
            assert all("get_weather" in heap for heap in heaps)
            assert not [heap for heap in heaps if "pomegranate" in heap]
            assert not [body for body in bodies if b"pomegranate" in body]
            # The same search finds the text once it is captured.
            await console.capture(True)
            id = await ask_all(console)
            await page.open(f"/exchanges/{id}")
            await page.page.get_by_text(ARGUMENT).first.wait_for()
            assert "pomegranate" in await page.heap()
            await page.page.goto("about:blank")
    finally:
        console.script.pieces, console.script.errors = pieces, errors
        await console.capture(False)
