"""Plug-ins in a gateway, over HTTP: a format of a package and of the settings, a backend, hooks, and broken ones."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dragoman import compose
from dragoman import config as settings
from dragoman.compose.reload import rebuild_gateway
from dragoman.core.errors import ConfigError
from dragoman.core.events import TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from dragoman.core.messages import Request, ToolCall, ToolResult, part_text
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.hooks.hook import Hook
from dragoman.gateway.hooks.hook_runner import HookRunner
from dragoman.gateway.hooks.hooked_gateway import HookedGateway
from dragoman.gateway.vendor_tools.loop import VendorToolRunner
from dragoman.vendor_tools.executor import ToolExecutor
from dragoman.vendor_tools.tool import ToolRunResult, VendorToolCall
from support import vendor_tools
from support.fake_upstream import Server, server
from support.http_client import http_client
from support.plugin_package import installed_at, write_package
from support.scripted_backend import Scripted, serving
from support.text_upstream import ASKED, FRONTS, Answer, ask, writes

FORMAT = """
    from dragoman.parsing.tag_format import tag_format
    from dragoman.parsing.tag_format_config import TagFormatConfig

    FORMAT = tag_format("acme", TagFormatConfig("<acme>", "</acme>"), "acme")
"""
BACKEND = """
    from dragoman.core.backend import Backend, ServedModel
    from dragoman.core.errors import ConfigError
    from dragoman.core.events import Finish, Start, TextDelta, ToolCallDelta, ToolCallEnd, ToolCallStart

    class Fixed(Backend):
        def __init__(self, text, calls):
            self._text, self._calls = text, calls

        def models(self):
            return [ServedModel("fixed")]

        def health(self):
            return {"backend": "another name", "ready": True, "asked": 1}

        async def generate(self, request, context):
            yield [Start(context.id, request.model, context.created)]
            if self._calls and request.messages[-1].role == "user":
                for number, (name, arguments) in enumerate(self._calls):
                    yield [ToolCallStart(number, f"call{number}", name), ToolCallDelta(number, arguments),
                           ToolCallEnd(number)]
                yield [Finish("tool_calls")]
            else:
                yield [TextDelta(self._text), Finish("stop")]

    class Failing(Fixed):
        async def generate(self, request, context):
            if self._text == "early":
                raise KeyError("a secret prompt")
            yield [Start(context.id, request.model, context.created), TextDelta("be")]
            raise KeyError("a secret prompt")

    class Unordered(Fixed):
        async def generate(self, request, context):
            if self._text != "early":
                yield [Start(context.id, request.model, context.created)]
            yield [] if self._text == "empty" else ["text"] if self._text == "text" else [ToolCallEnd(0)]
            yield [TextDelta("x"), Finish("stop")]

    def unordered(name, settings, environ):
        return Unordered(settings["text"], [])

    def fixed(name, settings, environ):
        if "text" not in settings:
            raise ConfigError("expected a text")
        return Fixed(settings["text"], settings.get("calls", []))

    def failing(name, settings, environ):
        return Failing(settings["text"], [])

    def raising(name, settings, environ):
        return 1 / 0

    def wrong(name, settings, environ):
        return "no backend"
"""
BACKENDS = {name: name for name in ("fixed", "failing", "unordered", "raising", "wrong")}
HOOKS = """
    import asyncio, dataclasses, threading, time
    import msgspec
    from dragoman.core.errors import ForbiddenError
    from dragoman.core.messages import Message, Text

    SEEN = []
    release = threading.Event()
    done = threading.Event()

    class NoParis:
        def __init__(self, settings):
            self._city = settings.get("city", "Paris")

        def on_tool_call(self, call, request):
            SEEN.append((call.name, call.arguments))
            return f"{self._city} is not allowed." if self._city in call.arguments else None

    class NoPing:
        def __init__(self, settings): pass

        async def on_tool_call(self, call, request):
            await asyncio.sleep(0)
            return "ping is off" if call.name == "ping" else ""

    class Hanging:
        def __init__(self, settings): pass
        def on_tool_call(self, call, request):
            release.wait()

    class Raising:
        def __init__(self, settings): pass
        def on_tool_call(self, call, request):
            raise ValueError(call.arguments)

    class RaisingRequest:
        def __init__(self, settings): pass
        async def on_request(self, request):
            raise ValueError("a secret prompt")

    class Requests:
        def __init__(self, settings): pass
        def on_request(self, request):
            if request.messages[-1].parts[0].text == "forbidden":
                raise ForbiddenError("this word is not allowed")
            added = Message("system", (Text("added by a hook"),))
            return msgspec.structs.replace(request, messages=(added, *request.messages), stream=not request.stream)

    class Observer:
        def __init__(self, settings): pass
        def on_response(self, reply, request):
            SEEN.append([part.text for part in reply.parts])
            done.set()
        def on_error(self, error, exchange_id):
            SEEN.append((type(error).__name__, len(exchange_id) > 8))
            done.set()

    class Broken:
        def __init__(self, settings):
            raise RuntimeError("no database")

    class Empty:
        def __init__(self, settings): pass
"""
HOOK_NAMES = {
    "no_paris": "NoParis",
    "no_ping": "NoPing",
    "hanging": "Hanging",
    "raising": "Raising",
    "raising_request": "RaisingRequest",
    "requests": "Requests",
    "observer": "Observer",
    "broken": "Broken",
    "empty": "Empty",
}
HI = [{"role": "user", "content": "hi"}]
PARIS, ROME = ("get_weather", '{"city": "Paris"}'), ("get_weather", '{"city": "Rome"}')


@pytest.fixture(autouse=True)
def site(tmp_path: Path) -> Iterator[Path]:
    with installed_at(tmp_path):
        write_package(tmp_path, "acme_format", FORMAT, {"formats": {"acme": "FORMAT"}}, package="acme-format")
        write_package(tmp_path, "acme_backend", BACKEND, {"backends": BACKENDS}, package="acme-backend")
        write_package(tmp_path, "acme_hooks", HOOKS, {"hooks": HOOK_NAMES}, package="acme-hooks")
        yield tmp_path


def build(folder: Path, toml: str) -> Gateway:
    path = folder / "config.toml"
    path.write_text(toml)
    config, _ = settings.load(path, {}, {})
    return compose.build_gateway(config, embedded=False)


@asynccontextmanager
async def running(folder: Path, toml: str) -> AsyncIterator[str]:
    async with serving(build(folder, toml)) as (_, url):
        yield url


def hooked(*names: str, calls: object = (), text: str = "Done.", more: str = "") -> str:
    """Settings of a backend that makes these calls, and of these hooks."""
    made = json.dumps([list(call) for call in calls])  # type: ignore[attr-defined]
    return (
        f'[backends.mine]\nplugin = "fixed"\ntext = "{text}"\ncalls = {made}\n'
        f"[hooks]\nenabled = {json.dumps(names)}\n{more}\n"
    )


async def ask_mine(url: str, front: str = "openai_chat", **more: Any) -> Answer:
    return await ask(url, front, msgspec.structs.replace(ASKED, model="fixed", **more))


def seen() -> list[Any]:
    import acme_hooks  # type: ignore[import-not-found]

    return list(acme_hooks.SEEN)


async def upstream_answer(folder: Path, text: str, toml: str) -> tuple[Answer, Server]:
    """The response to the client of an upstream server that writes this text."""
    async with server(writes(text)) as far:
        table = f'[upstreams.far]\nurl = "{far.url}/v1"\nmodels = ["m"]\ntool_mode = "prompt"\n'
        async with running(folder, table + toml) as url:
            return await ask(url, "openai_chat"), far


async def test_format_of_package_reads_calls_of_upstream(site: Path) -> None:
    text = '<acme>{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}</acme>'
    answer, far = await upstream_answer(site, text, 'call_format = "acme"')
    assert answer.calls == [("get_weather", {"city": "Paris", "days": 3})]
    assert b"<acme>" in far.asked[0][2]


@pytest.mark.parametrize(
    "place", ['call_format = "mine"', '[upstreams.far.model_overrides."m*"]\ncall_format = "mine"']
)
async def test_format_of_settings_reads_calls_of_upstream(site: Path, place: str) -> None:
    table = '[formats.mine]\nopener = "@@tool "\nname_end = "\\n"\ncloser = "\\n@@end"\n'
    text = '@@tool get_weather\n{"city": "Paris", "days": "3"}\n@@end'
    answer, far = await upstream_answer(site, text, f"{place}\n{table}")
    assert answer.calls == [("get_weather", {"city": "Paris", "days": 3})]
    assert b"@@tool " in far.asked[0][2]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_backend_of_package_answers_every_api(site: Path, front: str, stream: bool) -> None:
    toml = hooked(calls=[PARIS]).partition("[hooks]")[0]
    async with running(site, toml) as url, http_client(url) as client:
        answer = await ask_mine(url, front, stream=stream)
        listed = (await client.get("/v1/models")).json()
        health = (await client.get("/health")).json()
    assert answer.calls == [("get_weather", {"city": "Paris"})]
    assert {model["id"] for model in listed["data"]} == {"fixed", "mine/fixed"}
    assert health["backends"] == [{"backend": "mine", "ready": True, "asked": 1}]


@pytest.mark.parametrize("text", ["early", "late"])
async def test_failing_backend_is_an_error_without_its_message(site: Path, text: str, caplog: Any) -> None:
    toml = f'[backends.mine]\nplugin = "failing"\ntext = "{text}"\n'
    body = {"model": "fixed", "messages": HI}
    async with running(site, toml) as url, http_client(url) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 503
    assert "the backend 'mine' failed: KeyError" in answer.json()["error"]["message"]
    logged = "\n".join(record.getMessage() for record in caplog.records)
    assert "acme_backend.py, line" in logged
    assert "secret" not in logged + answer.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("early", "the backend 'mine' failed: wrong order of events"),
        ("late", "the backend 'mine' failed: wrong order of events"),
        ("text", "the backend 'mine' failed: TypeError"),
        ("empty", ""),
    ],
)
async def test_events_in_wrong_order_are_an_error_of_the_backend(site: Path, text: str, message: str) -> None:
    toml = f'[backends.mine]\nplugin = "unordered"\ntext = "{text}"\n[hooks]\nenabled = ["no_paris"]\n'
    body = {"model": "fixed", "messages": HI}
    async with running(site, toml) as url, http_client(url) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == (503 if message else 200)
    assert message in answer.text


async def test_next_backend_is_asked_when_one_of_a_package_fails(site: Path) -> None:
    first = '[backends.first]\nplugin = "failing"\ntext = "early"\n'
    async with running(site, first + hooked(text="Hi.").partition("[hooks]")[0]) as url:
        answer = await ask_mine(url)
    assert answer.text == "Hi."
    assert "failed_over" in answer.warnings


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_vetoed_call_is_withheld_and_model_is_reasked(site: Path, front: str, stream: bool) -> None:
    async with running(site, hooked("no_paris", calls=[PARIS], text="I may not.")) as url:
        answer = await ask_mine(url, front, stream=stream)
    assert (answer.calls, answer.text) == ([], "I may not.")
    assert "reasked" in answer.warnings
    assert seen() == [PARIS]


@pytest.mark.parametrize("stream", [False, True])
async def test_other_calls_are_sent_and_the_vetoed_one_is_reported(site: Path, stream: bool) -> None:
    toml = hooked("no_paris", calls=[ROME, PARIS]) + "[guard]\nreask = false\n"
    async with running(site, toml) as url:
        answer = await ask_mine(url, stream=stream)
    assert answer.calls == [("get_weather", {"city": "Rome"})]
    assert answer.text == "[The call of get_weather was refused and not run: Paris is not allowed.]"
    assert "call_vetoed" in answer.warnings


async def test_hook_sees_the_repaired_call(site: Path) -> None:
    written = ("functions.get_weather", '{"city": "Rome", "days": "3"}')
    async with running(site, hooked("no_paris", calls=[written])) as url:
        answer = await ask_mine(url)
    assert answer.calls == [("get_weather", {"city": "Rome", "days": 3})]
    assert [(name, json.loads(arguments)) for name, arguments in seen()] == answer.calls


@pytest.mark.parametrize("setting", ['buffering = "off"', "enabled = false", "buffer_limit_chars = 1"])
async def test_veto_holds_whatever_the_guard_settings_are(site: Path, setting: str) -> None:
    toml = hooked("no_paris", calls=[PARIS]) + f"[guard]\nreask = false\n{setting}\n"
    async with running(site, toml) as url, http_client(url) as client:
        for headers in ({}, {"x-dragoman-buffering": "off"}):
            body = {
                "model": "fixed",
                "messages": HI,
                "stream": True,
                "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
            }
            answer = await client.post("/v1/chat/completions", json=body, headers=headers)
            assert "tool_calls" not in answer.text
            assert "Paris is not allowed" in answer.text


async def test_invalid_call_is_not_sent_unseen(site: Path) -> None:
    """A call that stays invalid is sent by default; with a veto hook, which sees only valid calls, it becomes text."""
    toml = hooked("no_paris", calls=[("get_weather", '{"days": {"a": 1}}')]) + "[guard]\nreask = false\n"
    async with running(site, toml) as url:
        answer = await ask_mine(url)
    assert (answer.calls, seen()) == ([], [])
    assert "invalid_call" in answer.warnings


async def test_call_of_second_response_needs_permission_too(site: Path) -> None:
    toml = hooked("no_paris", calls=[PARIS]).replace('plugin = "fixed"', 'plugin = "stubborn"')
    stubborn = BACKEND.replace('request.messages[-1].role == "user"', "True")
    write_package(site, "acme_stubborn", stubborn, {"backends": {"stubborn": "fixed"}}, package="acme-stubborn")
    async with running(site, toml) as url:
        answer = await ask_mine(url)
    assert answer.calls == []
    assert seen() == [PARIS, PARIS]
    assert {"reask_failed", "call_vetoed"} <= set(answer.warnings)


@pytest.mark.parametrize("calls", [[PARIS], [("ping", "{}")]])
async def test_one_of_several_hooks_is_enough(site: Path, calls: Any) -> None:
    toml = hooked("no_ping", "no_paris", calls=calls) + "[guard]\nreask = false\n"
    async with running(site, toml) as url:
        assert (await ask_mine(url)).calls == []


async def test_settings_reach_the_hook(site: Path) -> None:
    toml = hooked("no_paris", calls=[PARIS, ROME], more='[hooks.settings.no_paris]\ncity = "Rome"\n')
    async with running(site, toml + "[guard]\nreask = false\n") as url:
        assert (await ask_mine(url)).calls == [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("name", ["hanging", "raising"])
@pytest.mark.parametrize("fail_closed", [True, False])
async def test_failing_hook_refuses_the_call_unless_settings_allow_it(
    site: Path, name: str, fail_closed: bool, caplog: Any
) -> None:
    more = f"timeout_s = 0.05\nfail_closed = {json.dumps(fail_closed)}\n"
    toml = hooked(name, calls=[PARIS], more=more) + "[guard]\nreask = false\n"
    try:
        async with running(site, toml) as url:
            answer = await ask_mine(url)
    finally:
        import acme_hooks

        acme_hooks.release.set()
    assert answer.calls == ([] if fail_closed else [("get_weather", {"city": "Paris"})])
    logged = [record.getMessage() for record in caplog.records if record.name == "dragoman.hooks"]
    expected = "took more than 0.05 s" if name == "hanging" else "failed: ValueError at "
    assert expected in logged[0]
    assert "Paris" not in "".join(logged)


async def test_hook_changes_or_refuses_requests(site: Path) -> None:
    async with server(writes("Hello.")) as far:
        toml = f'[upstreams.far]\nurl = "{far.url}/v1"\nmodels = ["m"]\n[hooks]\nenabled = ["requests"]\n'
        async with running(site, toml) as url, http_client(url) as client:
            answer = await ask(url, "openai_chat")
            body = {"model": "m", "messages": [{"role": "user", "content": "forbidden"}]}
            refused = await client.post("/v1/chat/completions", json=body)
    assert answer.text == "Hello."
    assert json.loads(far.asked[0][2])["messages"][0]["content"] == "added by a hook"
    assert (refused.status_code, refused.json()["error"]["message"]) == (403, "this word is not allowed")


async def test_failing_request_hook_is_an_error(site: Path, caplog: Any) -> None:
    async with running(site, hooked("raising_request")) as url, http_client(url) as client:
        body = {"model": "fixed", "messages": HI}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"] == "the hook 'raising_request' failed, so the request was not sent"
    assert "secret" not in "".join(record.getMessage() for record in caplog.records)


async def test_observer_gets_responses_and_errors(site: Path) -> None:
    async with running(site, hooked("observer", text="Hi.")) as url, http_client(url) as client:
        await ask_mine(url, stream=True)
        assert await in_thread_wait()
        await client.post("/v1/chat/completions", json={"model": "other", "messages": HI})
        assert await in_thread_wait()
    assert seen() == [["Hi."], ("UnknownModelError", True)]


async def in_thread_wait() -> bool:
    import acme_hooks

    done: threading.Event = acme_hooks.done
    waited = await asyncio.to_thread(done.wait, 30)
    done.clear()
    return waited


async def test_installed_hook_that_is_not_enabled_does_not_act(site: Path) -> None:
    gateway = build(site, hooked(calls=[PARIS]))
    assert type(gateway) is Gateway
    await gateway.close()


ERRORS: Mapping[str, tuple[str, str]] = {
    "unknown hook": (hooked("no_pariss"), "no installed package offers the hook 'no_pariss'; did you mean 'no_paris'?"),
    "broken hook": (
        hooked("broken"),
        "plug-in 'broken' of package acme-hooks 1.2 could not be started: RuntimeError: ",
    ),
    "empty hook": (hooked("empty"), "has no function to call; expected one of on_request, on_tool_call, on_response"),
    "hook settings": (hooked(more="[hooks.settings.x]\na = 1\n"), "settings of enabled hooks only, got those of 'x'"),
    "unknown backend": (
        '[backends.a]\nplugin = "fixd"\n',
        "no installed package offers the backend 'fixd'; did you mean",
    ),
    "no plugin": (
        '[backends.a]\ntext = "x"\n',
        "expected the name of an entry point of dragoman.backends - at backends.a",
    ),
    "own error": ('[backends.a]\nplugin = "fixed"\n', "expected a text - at backends.a"),
    "raising": (
        '[backends.a]\nplugin = "raising"\n',
        "could not build a backend: ZeroDivisionError: division by zero (",
    ),
    "wrong": ('[backends.a]\nplugin = "wrong"\n', "returned no Backend, but str - at backends.a.plugin"),
    "no table": ("[backends]\na = 1\n", "expected a table, [backends.a], with its plugin - at backends.a, from"),
    "format": (
        '[formats.a]\nopener = "x"\n',
        "one of them no letter or digit, such as '<call>', got 'x' - at formats.a",
    ),
    "format key": ('[formats.a]\nopenr = "<x>"\n', "unknown setting 'formats.a.openr'; did you mean 'opener'?"),
    "built-in format": ('[formats.qwen]\nopener = "<x>"\n', "'qwen' is a built-in format; choose another name"),
    "unknown format": (
        '[upstreams.a]\nurl = "http://127.0.0.1:9/v1"\ncall_format = "acmee"\n',
        "unknown format 'acmee'; did you mean 'acme'?",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
async def test_broken_settings_of_plugins_are_one_line(site: Path, name: str) -> None:
    toml, message = ERRORS[name]
    with pytest.raises(ConfigError) as raised:
        build(site, toml)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


class NeverRuns(ToolExecutor):
    async def run(self, call: VendorToolCall) -> ToolRunResult:
        raise AssertionError("a vetoed call was run")


@pytest.mark.parametrize("stream", [False, True])
async def test_call_that_gateway_would_run_needs_permission(stream: bool) -> None:
    asked: list[Request] = []
    call = [ToolCallStart(0, "c1", "web_search"), ToolCallDelta(0, '{"query": "x"}'), ToolCallEnd(0)]
    script = vendor_tools.scripted(call, [TextDelta("I may not search.")], asked=asked)

    def veto(call: ToolCall, request: Request) -> str:
        return f"{call.name} is off" if request.model == "m" else ""

    hooks = HookRunner([Hook("audit", {"on_tool_call": veto})], 5, fail_closed=True)
    gateway = HookedGateway(hooks, [Scripted(script)], vendor_tools=VendorToolRunner({"web_search": NeverRuns()}))
    async with serving(gateway) as (_, url), http_client(url) as http:
        fields = vendor_tools.ONLY["anthropic_messages"]
        blocks, _ = await vendor_tools.messages(http, stream, **fields)
    assert blocks[-1]["text"] == "I may not search."
    (result,) = asked[1].messages[-1].parts
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert part_text(result.parts[0]).startswith("The call of web_search was refused and not run: web_search is off.")


UPSTREAMS = {"first": 'call_format = "mine"', "second": 'call_format = "hermes"'}


async def test_reload_replaces_servers_whose_format_changed(tmp_path: Path) -> None:
    def load(closer: str) -> settings.Config:
        servers = (f'[upstreams.{name}]\nurl = "http://127.0.0.1:9/v1"\n{more}\n' for name, more in UPSTREAMS.items())
        path = tmp_path / "reloaded.toml"
        path.write_text(f'[formats.mine]\nopener = "<mine>"\ncloser = "{closer}"\n{"".join(servers)}')
        return settings.load(path, {}, {})[0]

    before, after = load("</mine>"), load("</other>")
    running = compose.build_gateway(before, embedded=False)
    same, changed = rebuild_gateway(before, running, before), rebuild_gateway(after, running, before)
    assert list(same.backends) == list(running.backends)
    assert [new is old for new, old in zip(changed.backends, running.backends, strict=True)] == [False, True]
    await running.close()
