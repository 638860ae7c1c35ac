"""With API keys, the page asks for one of an administrator, and shows nothing without it."""

import pytest
from playwright.async_api import Browser, expect

from support.browser.pages import tab
from support.scripted_gateway import scripted_gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
ADMIN, USER = "secret-of-the-boss", "secret-of-a-user"
KEYS = f"""
[keys.boss]
secret = "{ADMIN}"
admin = true
[keys.user]
secret = "{USER}"
"""
EXPECTED = ("status of 401", "status of 403")


async def test_sign_in_and_out(chromium: Browser) -> None:
    async with scripted_gateway(KEYS) as gateway, tab(chromium, gateway.url, expected=EXPECTED) as page:
        asked = await gateway.ask("plain", headers={"authorization": f"Bearer {USER}"})
        key, row = page.page.get_by_label("API key"), page.page.locator(f"[data-id='{asked.id}']")
        await page.open("/settings")
        await expect(key).to_be_visible()
        assert page.page.url.endswith("/console/login?next=%2Fconsole%2Fsettings")
        assert asked.id not in await page.page.content()
        await page.keep("sign-in")
        assert await page.violations() == []
        for secret in ("wrong-key", USER):
            await key.fill(secret)
            await page.page.keyboard.press("Enter")
            await expect(page.page.get_by_role("alert")).to_contain_text("expected an API key")
            await expect(page.page.get_by_role("alert")).not_to_contain_text(secret)
            assert await page.page.context.cookies() == []
        await key.fill(ADMIN)
        await page.page.keyboard.press("Enter")
        await expect(key).to_have_count(0)
        await expect(page.page).to_have_url(f"{gateway.url}/console/settings")
        await page.open("/login?next=/console/models")
        await expect(page.page).to_have_url(f"{gateway.url}/console/models")
        await page.open()
        await expect(row).to_be_visible()
        (cookie,) = await page.page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/console")
        assert ADMIN not in str(cookie)
        assert (
            await page.page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})") == "{}"
        )
        assert ADMIN not in await page.heap()
        await page.page.get_by_role("button", name="Sign out").click()
        await expect(key).to_be_visible()
        await expect(row).to_have_count(0)
        assert await page.page.context.cookies() == []
        await page.page.reload()
        await expect(key).to_be_visible()


async def test_end_of_the_session_clears_all_tabs(chromium: Browser) -> None:
    async with scripted_gateway(KEYS) as gateway, tab(chromium, gateway.url, expected=EXPECTED) as page:
        key = page.page.get_by_label("API key")

        async def sign_in() -> None:
            await page.page.goto(f"{gateway.url}/console/login")
            await key.fill(ADMIN)
            await page.page.keyboard.press("Enter")
            await expect(key).to_have_count(0)
            await page.page.evaluate("globalThis.shown = 'secret'")

        await sign_in()
        await page.page.context.clear_cookies()
        await page.page.get_by_role("link", name="Reports").click()
        await page.page.wait_for_url("**/console/login*")
        await expect(key).to_be_visible()
        assert await page.page.evaluate("globalThis.shown") is None
        await sign_in()
        other = await page.page.context.new_page()
        await other.goto(f"{gateway.url}/console")
        await other.get_by_role("button", name="Sign out").click()
        await page.page.wait_for_url("**/console/login*")
        await expect(key).to_be_visible()
        assert await page.page.evaluate("globalThis.shown") is None


async def test_captures_deleted_in_one_tab_are_forgotten_by_the_others(chromium: Browser) -> None:
    async with scripted_gateway() as gateway, tab(chromium, gateway.url) as page:
        await gateway.capture(True)
        id = (await gateway.ask("plain")).id
        await page.open(f"/exchanges/{id}")
        await expect(page.page.locator("main")).to_contain_text("Weather in Paris?")
        other = await page.page.context.new_page()
        await other.goto(f"{gateway.url}/console")
        await other.get_by_role("switch").click()
        await other.get_by_role("button", name="Switch off and delete").click()
        await expect(page.page.locator("main")).to_contain_text("not captured")
        await expect(page.page.get_by_role("switch")).to_have_text("Capture off")
        await expect(page.page.locator("main")).not_to_contain_text("Weather in Paris?")
