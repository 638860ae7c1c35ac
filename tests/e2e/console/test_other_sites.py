"""Pages of other sites, and of other ports of this machine, in the browser of an administrator who is signed in."""

import json

import pytest
from playwright.async_api import Browser

from support.browser.pages import tab
from support.fake_upstream import server, whole
from support.scripted_gateway import ScriptedGateway, scripted_gateway

pytestmark = pytest.mark.asyncio(loop_scope="session")
ADMIN = "secret-of-the-boss"
KEYS = f'[keys.boss]\nsecret = "{ADMIN}"\nadmin = true\n'
ATTACKS = """
async ([gateway]) => {
  const api = `${gateway}/console/api`, change = {"content-type": "application/json", "x-dragoman-console": "1"};
  const body = JSON.stringify({on: true}), results = {};
  const attempt = async (name, run) => {
    try { results[name] = await run(); } catch { results[name] = "refused"; }
  };
  const sent = (path, more) => async () => {
    const response = await fetch(api + path, {credentials: "include", ...more});
    return response.type === "opaque" ? "opaque" : await response.text();
  };
  const loaded = (tag, path) => () => new Promise(resolve => {
    const element = document.createElement(tag);
    element.onload = () => resolve("loaded");
    element.onerror = () => resolve("refused");
    element[tag === "link" ? "href" : "src"] = gateway + path;
    if (tag === "link") element.rel = "stylesheet";
    document.body.append(element);
  });
  await attempt("read", sent("/state"));
  await attempt("read opaque", sent("/state", {mode: "no-cors"}));
  await attempt("change", sent("/capture", {method: "PUT", headers: change, body}));
  const text = {method: "POST", headers: {"content-type": "text/plain"}, body, mode: "no-cors"};
  await attempt("change as text", sent("/capture", text));
  await attempt("script", loaded("script", "/console/api/state"));
  await attempt("style", loaded("link", "/console/api/state"));
  await attempt("image", loaded("img", "/console/api/state"));
  await attempt("events", () => new Promise(resolve => {
    const events = new EventSource(`${api}/traffic/stream`, {withCredentials: true});
    events.onerror = () => { events.close(); resolve("refused"); };
    events.addEventListener("rows", () => resolve("read"));
  }));
  await attempt("frame", () => new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.name = "framed";
    frame.onload = () => resolve("blocked or not: see the frames");
    frame.src = `${gateway}/console`;
    document.body.append(frame);
  }));
  for (const kind of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
    const form = document.createElement("form"), field = document.createElement("input");
    Object.assign(form, {method: "POST", action: `${api}/capture`, enctype: kind, target: "framed"});
    Object.assign(field, {name: '{"on": true, "x": "', value: '"}'});
    form.append(field);
    document.body.append(form);
    form.submit();
  }
  return results;
}
"""


async def test_pages_of_other_origins_read_and_change_nothing(chromium: Browser) -> None:
    page_of_attacker = whole(200, "<!doctype html><title>Attack</title><body></body>", "text/html")
    async with (
        scripted_gateway(KEYS) as gateway,
        server(page_of_attacker) as site,
        tab(chromium, gateway.url) as own,
    ):
        signed_in = await own.page.context.request.post(
            f"{gateway.url}/console/login",
            data=json.dumps({"key": ADMIN}),
            headers={"content-type": "application/json", "x-dragoman-console": "1"},
        )
        assert signed_in.status == 200
        await own.open()
        await own.page.get_by_text("live").wait_for()
        for host in ("evil.test", "127.0.0.1"):
            attack = await own.page.context.new_page()
            await attack.goto(f"http://{host}:{site.url.rpartition(':')[2]}/")
            results = await attack.evaluate(ATTACKS, [gateway.url])
            await attack.wait_for_load_state("networkidle")
            assert results.pop("frame").startswith("blocked")
            assert results.pop("read opaque") in ("opaque", "refused")
            assert results.pop("change as text") in ("opaque", "refused")
            assert set(results.values()) == {"refused"}, results
            for frame in attack.frames[1:]:
                assert "Dragoman" not in await frame.content()
            async with attack.expect_popup() as popup:
                await attack.evaluate("url => { globalThis.opened = open(url) }", f"{gateway.url}/console")
            await (await popup.value).wait_for_load_state()
            assert await (await popup.value).evaluate("() => opener") is None
            assert await attack.evaluate("() => { try { return opened.document.title } catch { return '' } }") == ""
            state = "async () => (await (await fetch('/console/api/state')).json()).capture.mode"
            assert await own.page.evaluate(state) == "off"


async def test_rebound_name_reaches_nothing(chromium: Browser, console: ScriptedGateway) -> None:
    async with tab(chromium, console.url) as own:
        attack = await own.page.context.new_page()
        port = console.url.rpartition(":")[2]
        for path in ("/console", "/console/api/state", "/console/assets/x.js"):
            response = await attack.goto(f"http://rebound.test:{port}{path}")
            assert response is not None
            assert response.status == 403, path
            assert "Dragoman" not in await attack.title()
