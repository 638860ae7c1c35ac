"""Takes the picture of the console's exchange page: a real gateway, a scripted server that leaks a call, and chromium.

python docs/console_picture.py   writes docs/images/console.png
"""

import asyncio
import sys
from pathlib import Path

from playwright.async_api import async_playwright

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.browser.pages import command  # noqa: E402
from support.scripted_gateway import scripted_gateway  # noqa: E402

PICTURE = ROOT / "docs" / "images" / "console.png"


async def main() -> None:
    """Writes the picture.

    Raises:
        SystemExit: Chromium is not installed.
    """
    if (chromium := command()) is None:
        sys.exit("expected chromium on PATH, got none: `make chromium` installs it")
    async with scripted_gateway() as gateway, async_playwright() as playwright:
        await gateway.capture(True)
        id = (await gateway.ask("leaking")).id
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 760})
        await page.goto(f"{gateway.url}/console/exchanges/{id}")
        await page.locator("[data-lane=model] [data-link='call:0'].kind-name").click()
        await page.wait_for_timeout(500)
        await page.screenshot(path=PICTURE)
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
