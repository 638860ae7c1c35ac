"""`dragoman ask`: asks one question with a tool, and shows the model's text next to what the client receives."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace

from dragoman import compose
from dragoman import config as settings
from dragoman.api.demo_tools import SUNNY, WEATHER, signature
from dragoman.cli._common import (
    BASE_URL,
    EMBEDDED_MODEL,
    TOOLS_FILE,
    add_claude_flag,
    add_config_flag,
    add_gateway_flag,
    add_upstream_details,
    add_upstream_flag,
    check_claude_login,
    get_weights,
    require_extras,
    upstream_flags,
)
from dragoman.cli._terminal import ProgressLine
from dragoman.cli.ask import demo_tools as demo
from dragoman.cli.ask.plain_view import Head, PlainView, RawView, View
from dragoman.cli.ask.select_backend import select_backend
from dragoman.cli.completion import all_model_names, complete_with
from dragoman.compose import embedded_weights
from dragoman.core.backend import Backend
from dragoman.core.errors import BackendUnavailableError, ConfigError
from dragoman.core.messages import Message, Request, Text, Tool, ToolChoice
from dragoman.gateway.gateway import Gateway
from dragoman.gateway.routing.router import alias_targets

_CHOICES: Final = {"auto": ToolChoice(), "required": ToolChoice("required"), "none": ToolChoice("none")}
_EXAMPLES: Final = """
    examples:
      dragoman ask                                     the default model
      dragoman ask "And in Rome?" --claude-cli         the installed Claude Code
      dragoman ask --upstream http://127.0.0.1:1234/v1 --model qwen3-8b
      dragoman ask "What is 2 + 3?" --tool "add(a: int, b: int)" --tool-result 5
      dragoman ask "Why is the sky blue?" --no-tools   without tools
      dragoman ask --raw-output | dragoman parse       parse the raw text

    exit status:
      0  the model answered
      1  the model ignored the tool result, its answer was empty, or the request failed
      2  the command or its settings are invalid
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "ask",
        help="ask a model a question, and show its raw text next to the parsed tool calls",
        description="Ask a model a question, offer it a tool, and answer its tool call with a fixed result. Show the "
        "model's raw text next to what a client of the gateway would receive, as it streams. No tool is run, and no "
        "gateway has to run.\n\n"
        "Without options, ask the first model that `dragoman serve` would serve. If an upstream server parses the tool "
        "calls itself, it does not send the raw text; then its JSON is shown instead.",
        epilog=_EXAMPLES,
    )
    command.add_argument("prompt", nargs="?", metavar="PROMPT", help=f"the question (default: {demo.QUESTION})")
    model_options = command.add_argument_group("model")
    model = model_options.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help="model to ask: a model of the server, an alias (setting model_aliases), or, if neither settings nor "
        f"options name a server, an embedded model, which Dragoman runs itself ({EMBEDDED_MODEL}; missing weights are "
        "downloaded). Default: the first model that the server lists, or the embedded model of `dragoman serve`",
    )
    complete_with(model, all_model_names)
    one = model_options.add_mutually_exclusive_group()
    add_upstream_flag(one, f"use only the server {BASE_URL}")
    add_claude_flag(one, "use only the models of the installed Claude Code (`claude`), with its existing login")
    add_gateway_flag(one)
    add_upstream_details(model_options)
    add_config_flag(model_options)
    what = command.add_argument_group("tools")
    what.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="TOOL",
        help=f"{TOOLS_FILE}, or a signature such as 'add(a: int, b: int)'; can be given several times "
        "(default: get_weather, which takes a city)",
    )
    what.add_argument("--no-tools", action="store_true", help="offer no tools")
    what.add_argument(
        "--tool-result",
        metavar="TEXT",
        help=f"fixed result of each tool call (default: '{SUNNY}' for get_weather, '{demo.DONE}' for other tools)",
    )
    what.add_argument(
        "--tool-choice",
        metavar="CHOICE",
        help="auto, required, none or a tool's name (default: required without PROMPT, otherwise auto)",
    )
    group = command.add_argument_group("output")
    group.add_argument(
        "--raw-output", action="store_true", help="print only the raw text of the model's first response"
    )
    group.add_argument("--no-columns", action="store_true", help="do not print two columns, even on a wide terminal")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Asks the model, and shows the exchange; returns 1 if the response has a fault.

    Raises:
        ConfigError: the settings, a tool or the tool choice is wrong.
        DragomanError: there is no response.
    """
    tools = _tools(args)
    choice = _choice(args.tool_choice or ("required" if tools and not args.prompt else "auto"), tools)
    config, embedded = _set_up(args)
    model = embedded_weights.embedded_model_name(config.embedded) if embedded else args.model or ""
    require_extras("server", *(("embedded",) if embedded else ()), doing="asking")
    logging.getLogger("dragoman").addHandler(logging.NullHandler())  # failures are shown with the exchange
    line = ProgressLine(sys.stderr)
    messages = (Message("user", (Text(args.prompt or demo.QUESTION),)),)
    request = Request(model, messages, tools, choice, stream=True, stream_usage=True)
    asyncio.run(check_claude_login(config, line.print))
    with line.showing("starting"):
        backends = compose.build_backends(
            config, embedded=embedded, probe=False, report=line.update, get_weights=get_weights
        )
        fault = asyncio.run(_ask(request, args, config, Gateway(backends, policy=config.guard), line))
    if fault:
        print(f"dragoman: {fault}", file=sys.stderr)
    return 1 if fault else 0


def _tools(args: argparse.Namespace) -> tuple[Tool, ...]:
    """Returns the tools. Raises: ConfigError: `--no-tools` contradicts another option."""
    if not args.no_tools:
        return tuple(tool for text in args.tool for tool in demo.parse_tool(text)) or (WEATHER,)
    if args.tool or args.tool_result is not None or args.tool_choice not in (None, "auto", "none"):
        raise ConfigError("--no-tools offers no tool; remove it, or remove --tool, --tool-result and --tool-choice")
    return ()


def _choice(text: str, tools: tuple[Tool, ...]) -> ToolChoice:
    if text in _CHOICES:
        return _CHOICES[text]
    names = [tool.name for tool in tools]
    if text not in names:
        expected = f"{', '.join(_CHOICES)} or a tool ({', '.join(names)})"
        raise ConfigError(f"--tool-choice: expected {expected}, got {text!r}")
    return ToolChoice("named", text)


def _set_up(args: argparse.Namespace) -> tuple[settings.Config, bool]:
    """Returns the settings with only the backend that is asked, and whether that is the embedded model."""
    config, origin = settings.load(compose.settings_path(args.config), os.environ, upstream_flags(args))
    model = alias_targets(config.model_aliases.get(args.model, args.model or ""))[0]
    return select_backend(config, origin, args, model)


async def _ask(
    request: Request, args: argparse.Namespace, config: settings.Config, gateway: Gateway, line: ProgressLine
) -> str:
    """Returns the fault of the model's response, or ""."""
    from dragoman.cli.ask.dialogue import Dialogue

    page, run_tool = _page(args), partial(demo.tool_result, output=args.tool_result)
    with line.counting_seconds():
        line.print("starting")
        try:
            await gateway.start()
            request = replace(request, model=_model(request.model, config, gateway))
            backend, planned = gateway.routes(request)[0]
            line.clear()
            page.begin(_head(request, _where(backend, planned.model)))
            return await Dialogue(gateway, page, line, run_tool, **({"turns": 1} if args.raw_output else {})).run(
                request
            )
        finally:
            line.clear()
            await gateway.close()


def _head(request: Request, where: str) -> Head:
    question = "".join(part.text for part in request.messages[0].parts if isinstance(part, Text))
    choice = request.tool_choice.name or request.tool_choice.mode
    return Head(request.model, where, question, tuple(map(signature, request.tools)), choice)


def _model(named: str, config: settings.Config, gateway: Gateway) -> str:
    """Returns the model that is named, else the first."""
    if named:
        return alias_targets(config.model_aliases[named])[0] if named in config.model_aliases else named
    models = gateway.models()
    if not models:
        urls = [str(state["url"]) for state in gateway.health() if "url" in state]
        raise BackendUnavailableError(
            f"nothing answers at {' and '.join(urls)}, or no model is loaded there; "
            f"run: dragoman doctor{f' --upstream {urls[0]}' if len(urls) == 1 else ''}"
        )
    return models[0].id


def _where(backend: Backend, model: str) -> str:
    """Returns the backend and its tool mode, as a phrase."""
    state = backend.health()
    facts = backend.describe(model)
    model_mode = facts.get("model_mode")
    mode = model_mode.get("tool_mode") if isinstance(model_mode, Mapping) else facts.get("mode")
    at = f" at {state['url']}" if "url" in state else ""
    return f"{state['backend']}{at}" + (f", tool mode {mode}" if mode else "")


def _page(args: argparse.Namespace) -> View:
    """Returns the view: two columns if the terminal is wide enough."""
    if args.raw_output:
        return RawView(sys.stdout)
    if args.no_columns or not sys.stdout.isatty():
        return PlainView(sys.stdout)
    from rich.console import Console

    from dragoman.cli.ask.columns import NARROWEST, ColumnsView

    console = Console(highlight=False)
    return ColumnsView(console) if console.width >= NARROWEST else PlainView(sys.stdout)
