"""`dragoman parse`: reads the raw text of a model, and prints its tool calls, text and reasoning."""

import argparse
import codecs
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill, indent, wrap
from typing import Any

import msgspec

from dragoman.api.advice import ReadContext, advice
from dragoman.api.inputs import parse_tools_json
from dragoman.api.parse import ToolCallReader, explain
from dragoman.backends.embedded import gguf
from dragoman.cli._common import EXPLAIN_HELP, TOOLS_FILE
from dragoman.cli._terminal import one_line
from dragoman.cli.completion import complete_with, format_names
from dragoman.cli.formats.find import find_format
from dragoman.core.collect import Collector
from dragoman.core.errors import ConfigError, RequestError
from dragoman.core.events import AnyEvent, Finish, Start
from dragoman.core.messages import Part, Reasoning, Text, Tool, ToolCall
from dragoman.identify import FormatMatch, detect_format
from dragoman.parsing.format import Format
from dragoman.parsing.trace import Span

ROW_CHARS = 31
"""Width of the columns before the text in a line of `--explain`."""
EXAMPLE = """
    examples:
      echo '<tool_call>{"name":"f","arguments":{}}</tool_call>' | dragoman parse
      dragoman parse reply.txt --model Qwen/Qwen3-8B --tools tools.json
      dragoman parse reply.txt --explain   why text is a call or not

    exit status:
      0  the text was parsed; text without a call is not an error
      2  the format, the file or the tools are invalid
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "parse",
        help="parse tool calls from a model's raw text",
        description="Parse the raw text that a model wrote, and print its text, reasoning and tool calls as JSON. With "
        "--stream, print each piece as soon as it is parsed. With --explain, print how each part was parsed, and why.",
        epilog=EXAMPLE,
    )
    command.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="file with the raw text (default: standard input)"
    )
    named = command.add_argument(
        "--format",
        metavar="NAME",
        help="format of the tool calls: a name from `dragoman formats`, or a module `x.py` (default: detected from "
        "--model or --template, else from the text); cannot be combined with --model or --template",
    )
    complete_with(named, format_names)
    command.add_argument(
        "-m",
        "--model",
        default="",
        metavar="NAME",
        help="detect the format from the name of the model that wrote the text, such as Qwen/Qwen3-8B; nothing is "
        "downloaded",
    )
    command.add_argument(
        "--template",
        type=Path,
        metavar="FILE",
        help="detect the format from the model's chat template: a Jinja file, tokenizer_config.json, or a .gguf file",
    )
    command.add_argument(
        "--stream",
        action="store_true",
        help="print one JSON line for each event: a piece of text, reasoning or a call (with --explain: each part)",
    )
    command.add_argument("--explain", action="store_true", help=EXPLAIN_HELP)
    command.add_argument("--tools", metavar="FILE", type=Path, help=f"tools that the model was offered: {TOOLS_FILE}")
    command.add_argument(
        "--prompt-suffix",
        metavar="TEXT",
        help="end of the prompt, if the model continues it: for example '<think>' if the chat template already opened "
        "the reasoning",
    )
    command.add_argument(
        "--lenient",
        action="store_true",
        help="also accept calls without the format's markers, such as plain JSON, if they name a tool of --tools",
    )
    command.add_argument(
        "--truncated",
        action="store_true",
        help='treat the text as cut off by a token limit: report finish "length", and complete no unfinished call',
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Reads the text and prints the result.

    Raises: ConfigError: the format is unknown, or the file with the text or the tools is invalid.
    """
    tools = _tools(args.tools) if args.tools else None
    if args.lenient and tools is None:
        raise ConfigError("--lenient needs --tools FILE: without tags only an offered name makes a call")
    detected = _identify_format(args.format, args.model, args.template)
    tail = detected.prompt_suffix if args.prompt_suffix is None else args.prompt_suffix
    if args.explain:
        return _explain(args, detected.format, tail, tools)
    reader = ToolCallReader(detected.format, tools, prompt_suffix=tail, lenient=args.lenient)
    collector = Collector(late_ids=not args.stream)
    collector.feed(Start("parse", "-", 0))
    with _open_source(args.file) as source:
        for event in _events(source, reader, "length" if args.truncated else "stop"):
            collector.feed(event)
            if args.stream:
                print(
                    _line(Finish(collector.reply().finish_reason) if isinstance(event, Finish) else event), flush=True
                )
    if not args.stream:
        print(json.dumps(_reply_json(collector), ensure_ascii=False, indent=2))
    return 0


def _identify_format(named: str | None, model: str, template: Path | None) -> FormatMatch:
    """Returns the format that is named, or that the model's name and template suggest; prints to standard error how."""
    if named and (model or template):
        raise ConfigError(
            "--format cannot be combined with --model or --template, which detect the format: leave out one"
        )
    if not model and not template:
        return FormatMatch(find_format(named or "auto").format, "nothing", "")
    stated = _tokenizer(template) if template else _Tokenizer()
    detected = detect_format(model, chat_template=stated.templates(), response_template=stated.response_template)
    tail = f", the prompt ends in {detected.prompt_suffix!r}" if detected.prompt_suffix else ""
    print(f"dragoman: format {detected.format.name}{tail}: {detected.why}", file=sys.stderr)
    return detected


class _Named(msgspec.Struct):
    name: str
    template: str


class _Tokenizer(msgspec.Struct):
    """The fields that are read of a tokenizer's settings in the format of transformers."""

    chat_template: str | list[_Named] = ""
    response_template: dict[str, Any] | None = None

    def templates(self) -> str | dict[str, str]:
        """Returns the chat template, or several by name."""
        match self.chat_template:
            case str(text):
                return text
            case several:
                return {one.name: one.template for one in several}


def _tokenizer(path: Path) -> _Tokenizer:
    """Returns the templates in a file: Jinja, a tokenizer's settings, or a model's weights."""
    if path.suffix == ".gguf":
        return _Tokenizer(gguf.metadata(path).chat_template)
    try:
        data = path.read_bytes()
        return msgspec.json.decode(data, type=_Tokenizer) if path.suffix == ".json" else _Tokenizer(data.decode())
    except OSError as e:
        raise ConfigError(f"--template: cannot read {path}: {e.strerror}") from None
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as e:
        raise ConfigError(f"--template: cannot read {path}: {e}") from None


@contextmanager
def _open_source(file: Path | None) -> Iterator[int]:
    """Yields the file descriptor of the input, so that text of a pipe is read as it arrives."""
    if file is None:
        if sys.stdin.isatty():
            print("reading from standard input; end with Ctrl-D", file=sys.stderr)
        yield sys.stdin.fileno()
        return
    try:
        opened = file.open("rb")
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}") from None
    with opened:
        yield opened.fileno()


def _events(source: int, reader: ToolCallReader, reason: str) -> Iterator[AnyEvent]:
    for piece in _pieces(source):
        yield from reader.feed(piece)
    yield from reader.close("length" if reason == "length" else "stop")
    yield Finish("length" if reason == "length" else "stop")


def _pieces(source: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while piece := os.read(source, 65536):
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


def _explain(args: argparse.Namespace, format: Format, tail: str, tools: tuple[Tool, ...] | None) -> int:
    with _open_source(args.file) as source:
        text = "".join(_pieces(source))
    spans = explain(
        text,
        format,
        tools,
        finish_reason="length" if args.truncated else "stop",
        prompt_suffix=tail,
        lenient=args.lenient,
    )
    if args.stream:
        for span in spans:
            print(json.dumps(msgspec.to_builtins(span), ensure_ascii=False))
        return 0
    context = ReadContext("parse", offered=tools is not None, cut=args.truncated, prompt_suffix=tail)
    print("\n".join([*format_spans(spans), wrap_advice(advice(spans, context))]))
    return 0


def wrap_advice(line: str) -> str:
    """Returns the line, wrapped at the width of the terminal."""
    columns = get_terminal_size((0, 0)).columns
    return fill(line, columns, break_on_hyphens=False, break_long_words=False) if columns else line


def format_spans(spans: Iterable[Span]) -> list[str]:
    """Returns the lines of `--explain`: what each piece of a text was read as."""
    columns = get_terminal_size((0, 0)).columns  # 0 without a terminal, as in a pipe
    listed, lines = list(spans), list[str]()
    for span in listed:
        lines.append(_row(span, max(20, (columns or 120) - ROW_CHARS)))
        if span.kind == "call":
            lines.append(_note(f"= {one_line(span.name)} as {one_line(span.id)}, read by {span.format}", columns))
        lines += [_note(f"! {note.code} at {note.at}: {one_line(note.message)}", columns) for note in span.notes]
    complete, broken = (sum(span.kind == kind for span in listed) for kind in ("end", "incomplete"))
    summary = f"{complete or 'no'} whole call{'s' * (complete > 1)}{f', {broken} broken' * (broken > 0)}"
    return [*lines, "", summary]


def _row(span: Span, width: int) -> str:
    """Returns the position, the kind and the text of a piece; a long text is shortened in the middle."""
    what = span.kind + " + text" * span.also_text
    text = one_line(span.raw)
    if len(text) > width:
        text = f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"
    return f"{f'{span.start}-{span.end}':<12}{what:<{ROW_CHARS - 12}}{text}".rstrip()


def _note(text: str, columns: int) -> str:
    """Returns a note about the line above, wrapped at the width of the terminal."""
    if columns:
        text = "\n".join(wrap(text, max(20, columns - ROW_CHARS), subsequent_indent="  ", break_on_hyphens=False))
    return indent(text, " " * ROW_CHARS)


def _line(event: AnyEvent) -> str:
    return json.dumps({"event": type(event).__name__, **msgspec.to_builtins(event)}, ensure_ascii=False)


def _reply_json(collector: Collector) -> dict[str, object]:
    reply = collector.reply()
    return {
        "parts": [_part(p) for p in reply.parts],
        "finish": reply.finish_reason,
        "warnings": [{"code": w.code, "message": w.message, "raw": w.raw} for w in collector.warnings],
    }


def _part(part: Part) -> dict[str, object]:
    match part:
        case ToolCall(id, name, arguments):
            return {"type": "tool_call", "id": id, "name": name, "arguments": arguments}
        case Reasoning(text):
            return {"type": "reasoning", "text": text}
        case Text(text):
            return {"type": "text", "text": text}
        case _:
            return {"type": type(part).__name__}


def _tools(path: Path) -> tuple[Tool, ...]:
    """Returns the tools in a file."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise ConfigError(f"--tools: cannot read {path}: {e.strerror}") from None
    if not data.strip():
        raise ConfigError(f"--tools: {path} is empty; expected a list of tools")
    try:
        return parse_tools_json(data)
    except RequestError as e:
        raise ConfigError(f"--tools: {e} in {path}") from None
