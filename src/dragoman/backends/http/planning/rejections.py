"""What a server rejects of a request, and the same request planned again without that."""

import logging
import re
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from dragoman.backends.http.model_modes import ModelMode
from dragoman.backends.http.planning.request_plan import RequestPlan
from dragoman.backends.http.planning.unsupported_params import UnsupportedParams, remove_rejected_param
from dragoman.core.errors import UpstreamError
from dragoman.core.messages import Reasoning, Request

log = logging.getLogger("dragoman.backends.http")

_GRAMMAR_ERROR_STATUSES: Final = (400, 404, 422, 500, 501)
"""Statuses that servers return if they cannot compile a grammar."""
_SIGNATURE_ERROR: Final = re.compile(
    r"invalid.{0,40}signature|signature.{0,40}(invalid|required)|encrypted content.{0,200}could not be verified"
    r"|invalid `data` in `redacted_thinking`|thinking.{0,40}blocks.{0,80}cannot be modified"
    r"|item with id .rs_.{0,80}not found|reasoning_content",
    re.IGNORECASE | re.DOTALL,
)
"""Error texts of Anthropic's API and of OpenAI's (https://github.com/openai/codex/issues/8145, 2026-11)."""


class Replan(Protocol):
    """Plans a changed request; `RequestPlanner.plan` is one."""

    def __call__(self, request: Request, mode: ModelMode, *, without_grammar: bool) -> RequestPlan:
        """Returns the plan for the request."""


class Rejections:
    """The rejections of one server."""

    def __init__(self, name: str, dialect: str) -> None:
        """
        Args:
            name: The server's name in the settings.
            dialect: Name of the server's API.
        """
        self._name, self._dialect = name, dialect
        self._unsupported_params = UnsupportedParams()

    def apply_known(self, plan: RequestPlan) -> RequestPlan:
        """Returns the plan without parameters that the model has rejected in recent requests."""
        if plan.request.dialect == self._dialect:  # the client reads the server's own error
            return plan
        upstream = self._unsupported_params.apply_known(plan.request.model, plan.upstream)
        return plan if upstream is plan.upstream else replace(plan, upstream=upstream)

    def without(self, plan: RequestPlan, error: UpstreamError, replan: Replan) -> RequestPlan | None:
        """Returns the plan without what the server has rejected with this error; None if nothing can be left out."""
        changed, what = None, "a setting"
        if error.status in (400, 404, 422) and _SIGNATURE_ERROR.search(error.message):
            changed, what = (
                replan(without_reasoning(plan.request), plan.mode, without_grammar=False),
                "the proof of reasoning",
            )
        elif error.status in (400, 422) and plan.request.dialect != self._dialect:
            upstream = remove_rejected_param(plan.upstream, error.message)
            self._unsupported_params.remember(plan.request.model, error.message, plan.upstream, upstream)
            changed = replace(plan, upstream=upstream) if upstream else None
        if (
            changed is None
            and error.status in _GRAMMAR_ERROR_STATUSES
            and (plan.mode.tool_mode == "prompt" or plan.upstream.reply_format)
        ):
            changed, what = replan(plan.request, plan.mode, without_grammar=True), "the grammar"
        if changed is None or changed.upstream.body == plan.upstream.body:
            return None
        log.warning("%s refused %s; the request is retried without it", self._name, what)
        return changed


def without_reasoning(request: Request) -> Request:
    """Returns the request without the reasoning of earlier assistant messages."""
    messages = (
        msgspec.structs.replace(m, parts=tuple(p for p in m.parts if not isinstance(p, Reasoning)))
        if m.role == "assistant"
        else m
        for m in request.messages
    )
    return msgspec.structs.replace(request, messages=tuple(messages))
