"""The commands of a chat: lines such as `/model NAME`, which are not sent to the model."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dragoman.cli._terminal import one_line
from dragoman.cli.chat.approval import Approval
from dragoman.cli.chat.conversation import ChatConversation
from dragoman.cli.chat.images import load_image
from dragoman.cli.chat.model_session import ModelSession
from dragoman.cli.chat.reply_view import ReplyView
from dragoman.cli.chat.toolbox import Toolbox
from dragoman.core.errors import ConfigError, nearest, quote

_COMMAND: Final = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?", re.DOTALL)
_NONE: Final = "none"
"""`/system none` removes the system prompt."""
_DESCRIPTION_CHARS: Final = 80


class Command(NamedTuple):
    """What a line such as `/model NAME` does."""

    argument: str
    """Its argument, for the help; empty: it has none."""
    help: str
    run: Callable[[str], None]


class Commands:
    """The commands, and what they change."""

    def __init__(
        self,
        session: ModelSession,
        conversation: ChatConversation,
        view: ReplyView,
        approval: Approval,
        toolbox: Toolbox | None,
    ) -> None:
        self._session, self._conversation, self._view = session, conversation, view
        self._approval, self._toolbox = approval, toolbox
        self.by_name: Mapping[str, Command] = {
            "model": Command("[NAME]", "list the models, or continue with another one", self._model),
            "tools": Command("", "list the tools that the model is offered (--mcp)", self._tools),
            "system": Command("[TEXT]", "show the system prompt, or set it; `none` removes it", self._system),
            "image": Command("PATH", "send an image with the next message", self._image),
            "clear": Command("", "start a new conversation; the system prompt stays", self._clear),
            "undo": Command("", "remove the last message and its reply", self._undo),
            "save": Command("FILE", "write the conversation as the JSON of a Chat Completions request", self._save),
            "help": Command("", "list the commands", self._help),
        }

    def run(self, line: str) -> bool:
        """Runs the command of this line; returns False if the line is a message for the model.

        Raises:
            DragomanError: The command is unknown or failed.
        """
        found = _COMMAND.fullmatch(line.strip())
        if found is None:
            return False
        name, argument = found[1].lower(), (found[2] or "").strip()
        command = self.by_name.get(name)
        if command is None:
            hint = nearest(f"/{name}", [f"/{each}" for each in self.by_name])
            raise ConfigError(f"unknown command {quote(f'/{name}')}{hint or '; /help lists the commands'}")
        if argument and not command.argument:
            raise ConfigError(f"expected /{name} alone, got {quote(argument)}")
        if command.argument and not argument and not command.argument.startswith("["):
            raise ConfigError(f"expected /{name} {command.argument}, got no {command.argument}")
        command.run(argument)
        return True

    def completions(self, line: str) -> list[str]:
        """Returns the lines that this line may become."""
        if not line.startswith("/"):
            return []
        name, blank, argument = line.partition(" ")
        if not blank:
            commands = [f"/{each}{' ' if command.argument else ''}" for each, command in self.by_name.items()]
            return [command for command in commands if command.startswith(name)]
        if name == "/model":
            return [f"/model {model}" for model in self._session.models() if model.startswith(argument)]
        if name in ("/image", "/save"):
            return [f"{name} {path}" for path in _paths(argument)]
        return []

    def _model(self, name: str) -> None:
        if not name:
            current = self._session.model
            lines = [f"{'*' if each == current else ' '} {each}" for each in self._session.models()]
            self._view.show("\n".join([*lines, "/model NAME continues with another one"]))
            return
        self._session.switch(name)
        self._view.show(f"continuing with {self._session.model} ({self._session.title})")

    def _tools(self, argument: str) -> None:
        offered = self._toolbox.offered if self._toolbox else []
        lines = []
        for tool, server, _ in offered:
            asks = ", runs without asking" if self._approval.is_automatic(tool.name) else ""
            about = one_line(tool.description.strip().partition("\n")[0])[:_DESCRIPTION_CHARS]
            lines.append(f"  {one_line(tool.name)} ({server.name}{asks})  {about}")
        none = "no tools are offered; start with --mcp NAME, --mcp 'COMMAND …' or --mcp URL"
        self._view.show("\n".join(lines) or none)

    def _system(self, text: str) -> None:
        if text:
            self._conversation.system = "" if text == _NONE else text
        self._view.show(f"system prompt: {self._conversation.system or _NONE}")

    def _image(self, path: str) -> None:
        self._conversation.images.append(load_image(_unquoted(path)))
        count = len(self._conversation.images)
        self._view.show(f"{count} image{'s' * (count > 1)} will be sent with the next message")

    def _clear(self, argument: str) -> None:
        self._conversation.clear()
        self._view.show("new conversation")

    def _undo(self, argument: str) -> None:
        text = self._conversation.undo()
        shortened = one_line(text or "")[:_DESCRIPTION_CHARS]
        self._view.show("the conversation has no message to remove" if text is None else f"removed: {shortened}")

    def _save(self, name: str) -> None:
        path = Path(_unquoted(name)).expanduser()
        content = self._conversation.to_json(self._session.model)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
        except FileExistsError:
            raise ConfigError(f"{path} exists; choose another name") from None
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}") from None
        self._view.show(f"saved as {path}")

    def _help(self, argument: str) -> None:
        heads = {name: f"/{name} {command.argument}".strip() for name, command in self.by_name.items()}
        lines = [f"  {heads[name]:16}{command.help}" for name, command in self.by_name.items()]
        lines += [
            "  Ctrl-C          stop the reply; the conversation stays",
            "  Ctrl-D          end the chat",
            "A line that ends with \\ continues in the next one. Pasted text is one message.",
        ]
        self._view.show("\n".join(lines))


def _unquoted(path: str) -> str:
    """Returns a path without the quotes that a file manager or a user puts around it."""
    return path[1:-1] if len(path) > 1 and path[0] == path[-1] and path[0] in "'\"" else path


def _paths(start: str) -> list[str]:
    """Returns the files and folders whose path begins so."""
    folder, slash, name = start.rpartition("/")
    try:
        entries = sorted(Path(f"{folder}{slash}" or ".").expanduser().iterdir())
    except (OSError, RuntimeError):
        return []
    found = [entry for entry in entries if entry.name.startswith(name) and (name or not entry.name.startswith("."))]
    return [f"{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}" for entry in found]
