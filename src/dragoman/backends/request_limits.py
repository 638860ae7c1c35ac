"""Adapts requests to a server's limits, without changing more of the prompt than needed, as that costs the prompt
cache.
"""

from typing import Final
from urllib.parse import urlsplit

import msgspec

from dragoman.catalog import tokenizers
from dragoman.core.errors import ContextOverflowError
from dragoman.core.events import Notice
from dragoman.core.messages import Request
from dragoman.prompting.deferred_tools import resolve_deferred_tools
from dragoman.prompting.prompt_budget import Budget, fit_request
from dragoman.wire.dialect import Dialect

NO_BUDGET: Final = Budget(0)
ESTIMATE_MARGIN: Final = 1.3
"""A prompt counts as too long if its estimate is this many times the limit: agents' whole requests are estimated 1 to 6
% too high, and no kind of text by more than 21 % (docs/tokens.md).
"""


def apply_trim(request: Request, tier: str, budget: Budget = NO_BUDGET) -> tuple[Request, tuple[Notice, ...]]:
    """Returns the request trimmed by this tier of `prompting/trim.py`, or by a further one if the budget needs it, with
    warnings.
    """
    if tier == "off" and not budget.tokens:
        return request, ()
    fitted = fit_request(request, tier, budget, tokenizers.find(request.model))
    return fitted.trimmed.request, fitted.trimmed.warnings(fitted.tier)


def reject_oversized(request: Request, context_window: int) -> None:
    """Rejects a prompt that the server would truncate silently, dropping the tools first.

    Args:
        request: the request to be sent.
        context_window: context of the server; 0: not known, nothing is rejected.

    Raises:
        ContextOverflowError: the prompt is certainly too long.
    """
    if context_window:
        tokens = tokenizers.find(request.model).estimate_request(request)
        if tokens > ESTIMATE_MARGIN * context_window:
            raise ContextOverflowError(tokens, context_window)


def prepare_for_server(request: Request, dialect: Dialect, url: str) -> Request:
    """Returns the request for this server: without fields for the vendor's own hosts, if it is another host, and with
    deferred tools resolved, if it has another API.
    """
    if request.dialect != dialect.name:
        return resolve_deferred_tools(request)
    if not dialect.vendor_only_fields & request.extra.keys() or urlsplit(url).hostname in dialect.vendor_hosts:
        return request
    extra = {name: raw for name, raw in request.extra.items() if name not in dialect.vendor_only_fields}
    return msgspec.structs.replace(request, extra=extra)
