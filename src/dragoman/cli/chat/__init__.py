"""`dragoman chat`: talks with a model at the terminal, or answers one message in a pipe."""

import argparse
import logging
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Final

from dragoman import compose
from dragoman import config as settings
from dragoman.cli._common import (
    BASE_URL,
    EMBEDDED_MODEL,
    add_claude_flag,
    add_config_flag,
    add_gateway_flag,
    add_upstream_details,
    require_extras,
    upstream_flags,
)
from dragoman.cli.completion import all_model_names, complete_with
from dragoman.core.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.cli.chat.reply_view import Look

_EXAMPLES: Final = """
    examples:
      dragoman chat                                   on an automatically selected model
      dragoman chat --model qwen2.5-coder-1.5b
      dragoman chat --image cat.png "What is this?"   one answer
      git diff | dragoman chat "Review this"          text from a pipe
      dragoman chat --mcp "python server.py"          with the tools of an MCP server
      dragoman chat "Add 2 and 3" --mcp files --yes --json

    commands in the chat:
      /model [NAME]   list the models, or continue with another one
      /tools          list the tools that the model is offered
      /system [TEXT]  show or set the system prompt
      /image PATH     send an image with the next message
      /clear, /undo   start again; remove the last message and its reply
      /save FILE      write the conversation as JSON
      /help           list the commands
      Ctrl-C          stop the reply; the conversation stays
      Ctrl-D          end the chat

    exit status:
      0  the chat ended, or the model answered
      1  the answer is empty, or the model, a server or the network failed
      2  the command or its settings are invalid
    130  the answer was interrupted
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "chat",
        help="talk with a model at the terminal or in a pipe",
        description="Talk with a model at the terminal: replies stream, and the tools of MCP servers can be used. With "
        "PROMPT, or with text on standard input, print one answer and exit; progress and warnings go to standard "
        "error.\n\n"
        "Without options, use the first of these: the gateway that runs at the configured port (8484 by default), the "
        "servers of the settings, a model server that runs on this machine, the largest downloaded embedded model "
        "that suits agents, the default embedded model. An embedded model is one that Dragoman runs itself.\n\n"
        "Tool calls run only on MCP servers, and only after you accept them. Lines that end with a backslash continue, "
        "and pasted text is one message. What you type is kept in the file chat_history of $DRAGOMAN_HOME, else of "
        "~/.local/state/dragoman, which only you can read.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "prompt",
        nargs="?",
        metavar="PROMPT",
        help="message to answer; text on standard input follows it in a block of its own (default: start a chat)",
    )
    _add_model_flags(command)
    _add_message_flags(command)
    group = command.add_argument_group("output")
    group.add_argument(
        "--json",
        action="store_true",
        help="print one object with the text, the tool calls and their results, and the token counts",
    )
    group.add_argument(
        "--hide-reasoning", action="store_true", help="do not print the model's reasoning (setting chat.reasoning)"
    )
    group.add_argument(
        "--no-history",
        action="store_true",
        help="neither read nor write the file of typed lines (setting chat.history)",
    )
    command.set_defaults(run=run)


def _add_model_flags(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("model")
    model = group.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help="model to talk with: a model of the gateway or of a server, an alias (setting model_aliases), or an "
        f"embedded model ({EMBEDDED_MODEL}; missing weights are downloaded)",
    )
    complete_with(model, all_model_names)
    one = group.add_mutually_exclusive_group()
    one.add_argument("--upstream", "--server", metavar="URL", help=f"use only the server {BASE_URL}")
    add_claude_flag(one, "use only the models of the installed Claude Code (`claude`), with its existing login")
    add_gateway_flag(one)
    add_upstream_details(group)
    add_config_flag(group)


def _add_message_flags(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("messages and tools")
    group.add_argument("--system", metavar="TEXT", default="", help="system prompt")
    group.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="PATH",
        help="send this image (PNG, JPEG, GIF, WebP) with the first message; can be given several times",
    )
    mcp = group.add_argument(
        "--mcp",
        action="append",
        default=[],
        metavar="SERVER",
        help="offer the tools of this MCP server: a server of the settings ([mcp.NAME]), a URL, or a command with its "
        "arguments in quotes, which is started without a shell; can be given several times",
    )
    complete_with(mcp, _configured_servers)
    group.add_argument(
        "-y", "--yes", action="store_true", help="run all tool calls without asking; without a terminal, none run else"
    )


def _configured_servers() -> list[str]:
    """Returns the names of the MCP servers in the settings, for completion."""
    try:
        return list(settings.load(compose.settings_path(None), os.environ, {})[0].mcp)
    except ConfigError:
        return []


def run(args: argparse.Namespace) -> int:
    """Runs the chat, or prints one answer; returns the exit status.

    Raises:
        ConfigError: The settings or the arguments are wrong.
        DragomanError: There is no answer.
    """
    require_extras("server", doing="chatting")
    from dragoman.cli.chat.one_answer import read_message

    is_chat = not args.prompt and sys.stdin is not None and sys.stdin.isatty()
    if is_chat and args.json:
        raise ConfigError("--json is for one answer: add PROMPT, or text on standard input")
    if is_chat and not sys.stdout.isatty():
        raise ConfigError("expected PROMPT or a terminal for the output of a chat, got neither")
    message = "" if is_chat else read_message(args.prompt or "")
    logging.getLogger().addHandler(logging.NullHandler())  # failures are shown in the chat
    try:
        return _run(args, message, is_chat=is_chat)
    finally:
        sys.stdout.flush()


def _run(args: argparse.Namespace, message: str, *, is_chat: bool) -> int:
    from dragoman.cli.chat.background_loop import BackgroundLoop
    from dragoman.cli.chat.conversation import ChatConversation
    from dragoman.cli.chat.images import load_image
    from dragoman.cli.chat.interactive import Chat, exchange_for_one
    from dragoman.cli.chat.line_editor import without_echo
    from dragoman.cli.chat.model_session import ModelSession
    from dragoman.cli.chat.one_answer import answer_once
    from dragoman.cli.chat.reply_view import ReplyView
    from dragoman.cli.chat.toolbox import open_toolbox

    config, origin = settings.load(compose.settings_path(args.config), os.environ, _flags(args))
    view = ReplyView(sys.stdout, sys.stderr, _look(args, config, is_chat=is_chat))
    images = [load_image(path) for path in args.image]
    with (
        BackgroundLoop() as loop,
        closing(ModelSession(loop, args, config, origin, view.line)) as session,
        open_toolbox(args.mcp, config, loop, view.line) as toolbox,
    ):
        with without_echo():
            session.open(args.model or "")
        conversation = ChatConversation(args.system, [each.tool for each in toolbox.offered] if toolbox else [])
        conversation.images += images
        if is_chat:
            return Chat(loop, session, conversation, view, toolbox, accept_all=args.yes).run()
        exchange = exchange_for_one(loop, view, toolbox, accept_all=args.yes)
        conversation.add_question(message)
        return answer_once(exchange, conversation, session, view, as_json=args.json)


def _flags(args: argparse.Namespace) -> dict[str, object]:
    """Returns the settings that options set, by their keys."""
    chat = {
        "chat.history": False if args.no_history else None,
        "chat.reasoning": False if args.hide_reasoning else None,
    }
    return {**upstream_flags(args), **chat}


def _look(args: argparse.Namespace, config: settings.Config, *, is_chat: bool) -> "Look":
    from dragoman.cli.chat.reply_text import Palette
    from dragoman.cli.chat.reply_view import Look

    can_colour = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    is_terminal = sys.stdout.isatty()
    colours = can_colour and sys.stderr.isatty() and (is_terminal or not is_chat)
    return Look(
        Palette(colours),
        is_terminal=is_terminal,
        reasoning=config.chat.reasoning,
        is_chat=is_chat,
        silent=args.json,
    )
