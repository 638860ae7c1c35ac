"""A request as a model on one's own machine should get it, whose prompt cache one moved byte costs."""

from typing import Final
from urllib.parse import urlsplit

import msgspec

from dragoman.catalog import tokenizers
from dragoman.core.errors import ContextOverflowError
from dragoman.core.events import Notice
from dragoman.core.messages import Request
from dragoman.prompting.deferred_tools import resolved
from dragoman.prompting.prompt_budget import Budget, fitted
from dragoman.wire.dialect import Dialect

ANY: Final = Budget(0)
SURELY: Final = 1.3
"""An estimate of so many times the limit is of a prompt that is over it: agents' whole requests are estimated 1 to 6 %
too high, and no kind of text by more than 21 % (docs/tokens.md)."""


def spared(request: Request, tier: str, budget: Budget = ANY) -> tuple[Request, tuple[Notice, ...]]:
    """The request as this tier of `prompting/trim.py` has it, or a further one where it has to fit; and warnings."""
    if tier == "none" and not budget.tokens:
        return request, ()
    made = fitted(request, tier, budget, tokenizers.find(request.model))
    return made.trimmed.request, made.trimmed.warnings(made.tier)


def refuse_overlong(request: Request, context_tokens: int) -> None:
    """Refuse a prompt that a server with this much context would cut in silence, its tools first; 0: not known.

    Raises: ContextOverflowError: it is surely too long.
    """
    if context_tokens:
        tokens = tokenizers.find(request.model).estimate_request(request)
        if tokens > SURELY * context_tokens:
            raise ContextOverflowError(tokens, context_tokens)


def for_server(request: Request, dialect: Dialect, url: str) -> Request:
    """The request as this server gets it: what is for the vendor's own servers alone goes to no other."""
    if request.dialect != dialect.name:
        return resolved(request)
    if not dialect.asides & request.extra.keys() or urlsplit(url).hostname in dialect.hosts:
        return request
    kept = {name: raw for name, raw in request.extra.items() if name not in dialect.asides}
    return msgspec.structs.replace(request, extra=kept)
