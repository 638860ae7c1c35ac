"""`dragoman tokens`: counts the tokens of a request, part by part, and shows what trimming leaves of it."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dragoman import dialects
from dragoman.catalog import tokenizers
from dragoman.cli._common import print_status
from dragoman.cli._terminal import one_line
from dragoman.core.errors import ClientError, ConfigError, RequestError, quote
from dragoman.core.messages import SYSTEM_ROLES, Request, Text
from dragoman.core.token_estimate import GENERIC, TokenEstimator
from dragoman.prompting import trim

EXAMPLE: Final = """
    tiers:
      off         nothing is trimmed
      tools       keep the first sentence of each tool's description, and short descriptions of parameters
      aggressive  like tools, without descriptions of parameters; a shorter system prompt without examples
      max         like aggressive, with required parameters only; a system prompt of facts and project instructions

    examples:
      dragoman tokens request.json --model qwen3
      dragoman tokens request.json --prompt-trim max   print the trimmed text

    exit status:
      0  success
      2  the file cannot be read, or is not a request
"""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Registers the command."""
    command = commands.add_parser(
        "tokens",
        help="estimate the tokens of a request, before and after prompt trimming",
        description="Estimate the tokens of a request: of its tools, its system prompt and its conversation. Prompt "
        "trimming shortens the tools and the system prompt of an agent, so that a slow model can read them in time. "
        "The estimate is printed for each tier (amount of trimming).",
        epilog=EXAMPLE,
    )
    command.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="file with the request body (default: standard input)"
    )
    command.add_argument(
        "-m",
        "--model",
        metavar="NAME",
        help="estimate for the tokenizer of this model, such as qwen3; for an unknown model, the general estimate is "
        "used (default: the model of the request)",
    )
    command.add_argument(
        "--api",
        choices=dialects.names(),
        metavar="API",
        help="API of the request: %(choices)s (default: the first of these that accepts the request)",
    )
    command.add_argument(
        "--prompt-trim",
        choices=trim.NAMES,
        metavar="TIER",
        help="print the trimmed tools and system prompt of this tier, not the counts: %(choices)s",
    )
    command.add_argument(
        "--json", action="store_true", help="print the counts as JSON; cannot be combined with --prompt-trim"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Reads the request, and prints the counts.

    Raises: ConfigError: the file cannot be read, or options contradict. ClientError: it is not a request.
    """
    if args.json and args.prompt_trim:
        raise ConfigError("--json prints the counts, and --prompt-trim the trimmed text; leave out one of them")
    request = _read(_body(args.file), args.api)
    name = args.model or request.model
    vocabulary = tokenizers.find(name)
    if args.prompt_trim:
        print("\n\n".join(_trimmed_text(trim.trim_request(request, args.prompt_trim, vocabulary).request)))
        return 0
    is_known = vocabulary is not GENERIC
    if name and not is_known:
        print_status(f"the tokenizer of the model {quote(name)} is not known; this is the general estimate")
    tiers = [_counts(trim.trim_request(request, tier, vocabulary).request, vocabulary) for tier in trim.NAMES]
    if args.json:
        counts = dict(zip(trim.NAMES, tiers, strict=True))
        print(json.dumps({"model": name, "tokens": counts}, indent=2))
        return 0
    print(f"{'':14}" + "".join(f"{tier:>12}" for tier in trim.NAMES))
    for part in tiers[0]:
        print(f"{part:14}" + "".join(f"{counts[part]:>12,}" for counts in tiers))
    print(f"estimated for {one_line(name) if is_known else 'any model'}")
    return 0


def _body(file: Path | None) -> bytes:
    try:
        return file.read_bytes() if file else sys.stdin.buffer.read()
    except OSError as e:
        raise ConfigError(f"cannot read {file}: {e.strerror}") from None


def _read(body: bytes, api: str | None) -> Request:
    problems: list[str] = []
    for name in [api] if api else dialects.names():
        dialect = dialects.get(name)
        try:
            return (dialect.token_counting.read_request if dialect.token_counting else dialect.read_request)(body)
        except ClientError as e:
            problems.append(f"{name}: {e}")
    raise RequestError("expected a request of one of the APIs, got none - " + "; ".join(problems))


def _counts(request: Request, vocabulary: TokenEstimator) -> dict[str, int]:
    system = tuple(m for m in request.messages if m.role in SYSTEM_ROLES)
    messages = tuple(m for m in request.messages if m.role not in SYSTEM_ROLES)
    parts = {
        "tools": replace(request, messages=()),
        "system": replace(request, tools=(), messages=system, response_schema=""),
        "conversation": replace(request, tools=(), messages=messages, response_schema=""),
    }
    counts = {part: vocabulary.estimate_request(part_request) for part, part_request in parts.items()}
    return {**counts, "all": sum(counts.values())}


def _trimmed_text(request: Request) -> Iterator[str]:
    """Yields the tools and the system prompt after trimming."""
    for tool in request.tools:
        yield f"{tool.name}: {tool.description}\n{tool.parameters}"
    for message in request.messages:
        if message.role in SYSTEM_ROLES:
            yield from (part.text for part in message.parts if isinstance(part, Text))
