"""Renders chat templates (Jinja) as the transformers library does, in a sandbox.

Source: https://huggingface.co/docs/transformers/chat_templating and `transformers/utils/chat_template_utils.py`
(5.23, 2026-11): the environment, `tojson`, `raise_exception`, `strftime_now`, and the tag `generation`, which marks the
model's own text for training.
"""

import json
from datetime import date
from typing import Any, Final, NoReturn, Protocol

from dragoman import extras
from dragoman.core.errors import ConfigError
from dragoman.core.messages import JsonText

try:
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError as e:
    raise ConfigError(f"chat templates need the templates extra: {extras.install_command('templates')}") from e

RENDER_ERRORS: Final = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors that code in a template can raise, including those of the sandbox's and Python's limits."""


TemplateError: Final = jinja2.TemplateError
TRUSTED_TEMPLATES: Final = frozenset(
    (
        "94d754f89b5c462771bdd267b01a769ab6c028d5e077e0ade4e9f837c248e31d",
        "d5495a1e5db0611132a97e46a65dbb64a642a499421228b9c8b93229097fa9a4",
        "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    )
)
"""SHA-256 of templates that go through their input only once: our own, and those of the listed weights."""


class VerbatimJson(dict[str, Any]):
    """An object that `tojson` writes as it was written, because a changed byte invalidates the model's prompt cache."""

    def __init__(self, value: Any, text: JsonText) -> None:
        super().__init__(value)
        self.text = text


class _Generation(Extension):
    """Makes `{% generation %}…{% endgeneration %}` render its content."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Returns the nodes of the content."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Renderable(Protocol):
    """A chat template that can be rendered."""

    def render(self, **variables: Any) -> str:
        """Returns the text of the prompt.

        Raises:
            Exception: One of `RENDER_ERRORS`.
        """


def compile_template(source: str) -> jinja2.Template:
    """Compiles a chat template that is rendered in this process.

    Raises:
        ConfigError: The source is not valid Jinja; the message says why.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": date.today().strftime}
    try:
        return environment.from_string(source)
    except (*RENDER_ERRORS, SyntaxError) as e:  # a template is compiled to Python, whose own limits it can exceed
        raise ConfigError(f"the model's chat template cannot be read: {e}") from e


def _to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Like `tojson` of transformers: unlike Jinja's own, it does not escape for HTML."""
    if isinstance(value, VerbatimJson):
        return value.text
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
