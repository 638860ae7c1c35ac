"""Mode `auto`: how a model is asked where the settings leave that open, by what was found out of it.

    first use of a model ── found out before? → asked so from the start
        its first answer is over ── in the background → the same server, the same model? else it is measured
        a call leaked all the same → it is asked in mode parse

Nothing waits for it, and nothing is asked of a model that nobody has used: the first question may load it. Until it is
known, a model is asked as the API has it, and what leaks is rescued.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

import msgspec

from dragoman.backends.http.config import HttpConfig
from dragoman.backends.http.connection import Connection
from dragoman.backends.http.model_modes import Way, Ways
from dragoman.backends.probe import DECISIVE, measured, of
from dragoman.backends.probe.cache import Remembered, recall, remember
from dragoman.backends.probe.recommend import trusted
from dragoman.backends.probe.report import Choice
from dragoman.backends.probe.server_info import Telling
from dragoman.catalog import servers
from dragoman.catalog.servers import Kind
from dragoman.core.errors import DragomanError
from dragoman.core.events import AnyEvent, Finish, Notice

log = logging.getLogger("dragoman.backends.http.auto_mode")

LOOK_AGAIN_S: Final = 600.0
"""After which it is looked whether the server still has the same model behind the name: a few short GETs."""
LEAKED: Final = "rescued_call"
"""The warning about a call that the server left in the text."""
_MEASURING: Final = "%s: measuring %s with about ten short requests; servers.%s.probe = false switches that off"
_LEAKED_WHY: Final = "it left a call in the text"


class Auto:
    """Of the models of one server."""

    def __init__(
        self,
        name: str,
        config: HttpConfig,
        connection: Connection,
        ways: Ways,
        recognised: Callable[[Kind], None],
        now_s: Callable[[], float] = time.monotonic,
        *,
        measures: bool = True,
    ) -> None:
        """`recognised` is told which kind of server it is, where the settings do not say. Unless it `measures`, it only
        goes by what was found before.
        """
        self._name, self._config, self._connection, self._ways = name, config, connection, ways
        self._recognised, self._now_s, self._measures = recognised, now_s, measures
        self._known: dict[str, Remembered | None] = {}
        self._looked_s: dict[str, float] = {}
        self._leaky: set[str] = set()
        """Models of which a call had to be rescued."""
        self._busy: set[asyncio.Task[None]] = set()
        self._one = asyncio.Lock()

    def use(self, model: str) -> None:
        """This model is about to be asked: as it was found before, if it was."""
        if model in self._known:
            return
        found = self._known[model] = recall(self._config, model)
        if found is not None:
            self._take(found, "as found before: ")

    def saw(self, model: str, event: AnyEvent) -> None:
        """An event of its answer."""
        match event:
            case Notice(code) if code == LEAKED and self._ways.is_open(model):
                self._leak(model)
            case Finish() if self._measures and self._ways.is_open(model) and self._is_due(model):
                self._looked_s[model] = self._now_s()
                task = asyncio.ensure_future(self._settled(model))
                self._busy.add(task)
                task.add_done_callback(self._busy.discard)

    async def settled(self) -> None:
        """Wait for all that is being found out."""
        while self._busy:
            await asyncio.wait(self._busy)

    async def close(self) -> None:
        """Give up what is being found out."""
        for task in self._busy:
            task.cancel()
        await self.settled()

    def _is_due(self, model: str) -> bool:
        looked_s = self._looked_s.get(model)
        return looked_s is None or self._now_s() - looked_s >= LOOK_AGAIN_S

    async def _settled(self, model: str) -> None:
        try:
            async with self._one:
                await self._settle(model)
        except DragomanError as error:
            log.warning("%s: %s could not be measured, and is asked as before: %s", self._name, model, error.message)

    async def _settle(self, model: str) -> None:
        subject = await of(Telling(self._connection, self._config.url), self._connection, self._config, model)
        kind = subject.kind
        fingerprint = await subject.telling.fingerprint(kind, model)
        known = self._known.get(model)
        if known is not None and known.fingerprint == fingerprint:
            return
        if known is not None:
            self._leaky.discard(model)
            log.info("%s: what stands behind the name %s is not what it was; it is measured again", self._name, model)
        if kind is not None and kind.native == "trusted":
            choice = trusted(kind)
        else:
            log.info(_MEASURING, self._name, model, self._name)
            choice = (await measured(subject, self._config, DECISIVE)).choice
            if choice.mode == "inject":  # then it is Dragoman who holds the model to calls
                choice = (await measured(subject, self._config, ("constrained",))).choice
        self._keep(model, choice, kind.name if kind else "", fingerprint)

    def _leak(self, model: str) -> None:
        """Whatever was found or will be: this server does not read all that its model writes."""
        self._leaky.add(model)
        known = self._known.get(model)
        if self._ways.of(model).mode != "native":
            return
        if known is not None:
            self._keep(model, known.choice, known.kind, known.fingerprint)
        else:
            self._ways.take(model, Way("parse", why=_LEAKED_WHY))

    def _keep(self, model: str, choice: Choice, kind: str, fingerprint: str) -> None:
        if choice.mode == "native" and model in self._leaky:
            choice = msgspec.structs.replace(choice, mode="parse", why=_LEAKED_WHY)
        found = self._known[model] = remember(self._config, model, kind, fingerprint, choice)
        self._take(found, "")

    def _take(self, found: Remembered, how: str) -> None:
        self._ways.take(found.model, way_of(found.choice, how))
        self._ways.of(found.model)  # which says it in the log
        kind = next((kind for kind in servers.kinds() if kind.name == found.kind), None)
        if kind is not None and not self._config.kind:
            self._recognised(kind)


def way_of(choice: Choice, how: str = "") -> Way:
    """How a model is asked that was measured so; `how` stands before the reason."""
    return Way(choice.mode, choice.format, constrain=choice.constrain, why=f"{how}{choice.why}")
