"""The chat at the terminal: reads messages and commands in turn, and shows the replies."""

import sys

from dragoman.cli.chat.approval import Approval
from dragoman.cli.chat.background_loop import BackgroundLoop
from dragoman.cli.chat.commands import Commands
from dragoman.cli.chat.conversation import ChatConversation
from dragoman.cli.chat.exchange import ChatExchange
from dragoman.cli.chat.history_file import HistoryFile, state_folder
from dragoman.cli.chat.line_editor import LineEditor, without_echo
from dragoman.cli.chat.model_session import ModelSession
from dragoman.cli.chat.reply_view import ReplyView
from dragoman.cli.chat.toolbox import Toolbox
from dragoman.core.errors import ContextOverflowError, DragomanError

_HISTORY = "chat_history"


class Chat:
    """A chat with its state."""

    def __init__(
        self,
        loop: BackgroundLoop,
        session: ModelSession,
        conversation: ChatConversation,
        view: ReplyView,
        toolbox: Toolbox | None,
        *,
        accept_all: bool,
    ) -> None:
        self._session, self._conversation, self._view = session, conversation, view
        history = HistoryFile(state_folder() / _HISTORY) if session.config.chat.history else None
        self._editor = LineEditor(history, lambda line: self._commands.completions(line), colour=view.has_colour)
        approval = Approval(self._editor.ask, view.show, accept_all=accept_all)
        self._exchange = ChatExchange(loop, view, approval, toolbox)
        self._commands = Commands(session, conversation, view, approval, toolbox)

    def run(self) -> int:
        """Runs until Ctrl-D, and returns the exit status."""
        session, view = self._session, self._view
        view.remark(f"{session.model} ({session.title})")
        view.remark("/help lists the commands, Ctrl-D ends the chat")
        while True:
            view.space()
            try:
                line = self._editor.read(self._prompt())
            except EOFError:
                print(file=sys.stdout)
                return 0
            except KeyboardInterrupt:
                print(file=sys.stdout)
                view.remark("Ctrl-D ends the chat")
                continue
            try:
                with without_echo():
                    is_message = line.strip() and not self._commands.run(line)
                if is_message:
                    self._answer(line)
            except KeyboardInterrupt:
                view.error("stopped")
            except ContextOverflowError as error:
                view.error(f"{error}; /undo shortens the conversation, /clear starts a new one")
            except DragomanError as error:
                view.error(str(error))

    def _prompt(self) -> str:
        images = len(self._conversation.images)
        return f"[{images} image{'s' * (images > 1)}] > " if images else "> "

    def _answer(self, line: str) -> None:
        conversation, view = self._conversation, self._view
        conversation.add_question(line)
        answer = self._exchange.answer(conversation, self._session.gateway, self._session.model)
        if answer.stopped:
            view.remark("stopped")
        elif not answer.parts:
            view.error("the reply is empty; your message was removed from the conversation")
        elif answer.finish_reason == "length":
            view.remark("the reply was cut at the limit of its length; to continue, ask for the rest")


def exchange_for_one(
    loop: BackgroundLoop, view: ReplyView, toolbox: Toolbox | None, *, accept_all: bool
) -> ChatExchange:
    """Returns what answers one message.

    Args:
        loop: Runs the gateway and the tools.
        view: Shows the response.
        toolbox: The tools; None: no tools are offered.
        accept_all: Whether all calls are run; otherwise each is asked about, which needs a terminal.
    """
    can_ask = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    return ChatExchange(loop, view, Approval(_ask if can_ask else None, view.show, accept_all=accept_all), toolbox)


def _ask(question: str) -> str:
    """Asks on standard error, since standard output may be a file. Raises: EOFError: the user pressed Ctrl-D."""
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.strip()
