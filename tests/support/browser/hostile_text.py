"""Text that runs a script where a page does not treat it as text."""

from support.browser.pages import Tab

NAME = "<img src=x onerror=globalThis.hacked=1>"
ATTACK = f"\"'>{NAME}<script>globalThis.hacked=1</script><svg onload=globalThis.hacked=1>"
LINK = "[x](javascript:globalThis.hacked=1) <a href='javascript:globalThis.hacked=1'>x</a>"
STRANGE = "img[src=x], main script, svg[onload], a[href^='javascript:'], iframe, object, embed"
"""Elements that only such text would make."""


async def check_unhurt(page: Tab, place: str) -> None:
    """Asserts that nothing of it became an element, and no script ran."""
    assert await page.page.evaluate("() => globalThis.hacked === undefined"), place
    assert await page.page.locator(STRANGE).count() == 0, place
