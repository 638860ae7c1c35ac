"""What keys have used in Redis or Valkey, for several machines without a database.

    dragoman:usage:PERIOD          what keys have used in a period, `2026-11-26` or `2026-11`: a hash, "cost KEY", ...
    dragoman:usage:reserved:KEY    what running requests reserve: a hash of "OWNER TOKENS COST" by number
    dragoman:usage:owner:OWNER     end of the lease of a gateway process; without one its reservations do not count
    dragoman:usage:batch:ID        changes that are written, so that one whose response was lost is not written twice

Each operation is one script, which the server runs alone. Leases are measured by the server's clock, periods by that of
the gateway. Amounts are exact to 2^53: 9 million US dollars.

Source: https://redis.io/docs/latest/develop/programmability/eval-intro/ (2026-11).
"""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, Final

from dragoman.state.outage import OutageBreaker
from dragoman.usage_limits import budgets
from dragoman.usage_limits.budgets import KeyBudget, Reserved, Spent
from dragoman.usage_limits.ledgers.ledger_store import MAX_SUM, Decision, KeyUsage, LedgerStore, UsageChanges

_LEASE_S: Final = 60
_RENEW_S: Final = 20.0
_TIMEOUT_S: Final = 2.0
_DAY_S: Final = 86_400
_OLD_DAYS: Final = range(63, 130)
_OLD_MONTHS: Final = range(830, 1200, 28)
"""Ages, in days, of days and months that are deleted."""
_PREFIX: Final = "dragoman:usage:"
# Returns what processes with a lease reserve, except for one number; deletes what is left of long ended ones.
_RESERVED: Final = f"""
local function reserved(name, except)
  local tokens, cost, all, ends = 0, 0, redis.call('HGETALL', name), {{}}
  local now = tonumber(redis.call('TIME')[1])
  for i = 1, #all, 2 do
    local owner, t, c = string.match(all[i + 1], '(%S+) (%S+) (%S+)')
    if not ends[owner] then ends[owner] = tonumber(redis.call('GET', '{_PREFIX}owner:' .. owner) or 0) end
    if ends[owner] == 0 then redis.call('HDEL', name, all[i])
    elseif ends[owner] > now and all[i] ~= except then tokens, cost = tokens + tonumber(t), cost + tonumber(c) end
  end
  return tokens, cost
end
"""
# Keeps the name of an owner for an hour: after an outage its reservations count again.
_RENEWED: Final = """
local function renew(name, lease)
  redis.call('SET', name, tonumber(redis.call('TIME')[1]) + tonumber(lease), 'EX', 3600)
end
"""
_RENEW: Final = _RENEWED + "renew(KEYS[1], ARGV[1])"
_READ: Final = (
    _RESERVED
    + """
local tokens, cost = reserved(KEYS[3], '')
local day, month = redis.call('HMGET', KEYS[1], unpack(ARGV)), redis.call('HMGET', KEYS[2], unpack(ARGV))
return {day, month, string.format('%.0f', tokens), string.format('%.0f', cost)}
"""
)
# ARGV: number, owner, tokens, cost, lease, names of the fields for tokens and cost, then of each budget: whether it is
# money, whether it is of a month, and its limit.
_RESERVE: Final = (
    _RENEWED
    + _RESERVED
    + """
local function used(period, is_money)
  if is_money == '1' then return tonumber(redis.call('HGET', period, ARGV[8]) or 0) end
  return tonumber(redis.call('HGET', period, ARGV[6]) or 0) + tonumber(redis.call('HGET', period, ARGV[7]) or 0)
end
local used_up, used_up_month = -1, false
for i = 9, #ARGV, 3 do
  local is_month = ARGV[i + 1] == '1'
  if used(is_month and KEYS[2] or KEYS[1], ARGV[i]) >= tonumber(ARGV[i + 2]) and (used_up < 0 or
      (is_month and not used_up_month)) then used_up, used_up_month = (i - 9) / 3, is_month end
end
if used_up >= 0 then return {used_up, 0} end
local tokens, cost = reserved(KEYS[3], ARGV[1])
for i = 9, #ARGV, 3 do
  local running, wanted = tokens, tonumber(ARGV[3])
  if ARGV[i] == '1' then running, wanted = cost, tonumber(ARGV[4]) end
  if running > 0 and used(ARGV[i + 1] == '1' and KEYS[2] or KEYS[1], ARGV[i]) + running + wanted >
      tonumber(ARGV[i + 2]) then return {-1, 0} end
end
renew(KEYS[4], ARGV[5])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4])
redis.call('EXPIRE', KEYS[3], 172800)
return {-1, 1}
"""
)
# ARGV: number of additions; of each the key of the hash, the field and the amount; then of each reservation that has
# ended the key of the hash, and its number. The hashes have no time to live, because a server that evicts keys may be
# set to evict those that have one.
_WRITE: Final = f"""
if not redis.call('SET', KEYS[1], '', 'NX', 'EX', {_DAY_S}) then return 0 end
local position = 2
for _ = 1, tonumber(ARGV[1]) do
  local name, field, amount = ARGV[position], ARGV[position + 1], ARGV[position + 2]
  if tonumber(redis.call('HGET', name, field) or 0) < {MAX_SUM} then redis.call('HINCRBY', name, field, amount) end
  position = position + 3
end
while position < #ARGV do
  redis.call('HDEL', ARGV[position], ARGV[position + 1])
  position = position + 2
end
return 1
"""


class RedisLedger(LedgerStore):
    """The use of all keys in a server, which is connected when it is used."""

    renew_s = _RENEW_S

    def __init__(self, url: str) -> None:
        """Args:
            url: The server, such as `redis://host:6379/0`.

        Raises:
            ImportError: redis is not installed.
        """
        from redis import Redis
        from redis.backoff import NoBackoff
        from redis.exceptions import ConnectionError as LostError
        from redis.exceptions import RedisError
        from redis.exceptions import TimeoutError as SlowError
        from redis.retry import Retry

        self._client = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_S,
            socket_connect_timeout=_TIMEOUT_S,
            retry=Retry(NoBackoff(), 1, (LostError,)),  # the server may have closed the connection
        )
        self._is_cleaned = False
        self._owner, self._errors = secrets.token_hex(12), (RedisError, OSError)
        self._read, self._reserve, self._write, self._renew = map(
            self._client.register_script, (_READ, _RESERVE, _WRITE, _RENEW)
        )
        self._breaker = OutageBreaker(
            "the use of API keys in state.url", (LostError, OSError), (SlowError, TimeoutError), (RedisError,)
        )

    def reserve(
        self, key: str, limits: tuple[KeyBudget, ...], request: Reserved, number: int, now_s: float
    ) -> Decision:
        """See `LedgerStore`.

        Args:
            key: The name of the key.
            limits: Its budgets.
            request: What the request may use.
            number: The number of the reservation.
            now_s: Seconds since 1970.
        """
        names = [*map(_period, budgets.periods(now_s)), _reserved(key), self._lease]
        fields = [f"{name} {key}" for name in ("input_tokens", "output_tokens", "cost")]
        rows: list[str | int] = [
            value for each in limits for value in (int(each.is_money), int(each.is_month), each.limit)
        ]
        arguments = [number, self._owner, request.tokens, request.cost, _LEASE_S, *fields, *rows]
        used_up, is_reserved = self._run(lambda: self._reserve(names, arguments))
        return Decision(None if used_up < 0 else limits[used_up], bool(is_reserved))

    def write(self, batch: UsageChanges) -> None:
        """See `LedgerStore`."""
        added: list[str | int] = []
        for (key, day), spent in batch.spent.items():
            for period in (day, day[:7]):
                for name, amount in zip(Spent._fields, spent, strict=True):
                    added += (_period(period), f"{name} {key}", amount)
        released: list[str | int] = [value for key, number in batch.released for value in (_reserved(key), number)]
        arguments = [len(added) // 3, *added, *released]
        self._run(lambda: self._write([f"{_PREFIX}batch:{batch.id}"], arguments))
        if not self._is_cleaned:
            self._is_cleaned = True
            self._delete_old(max((day for _, day in batch.spent), default=""))

    def usage(self, key: str, now_s: float) -> KeyUsage:
        """See `LedgerStore`."""
        names = [*map(_period, budgets.periods(now_s)), _reserved(key)]
        fields = [f"{name} {key}" for name in Spent._fields]
        day, month, tokens, cost = self._run(lambda: self._read(names, fields))
        return KeyUsage(_spent(day), _spent(month), Reserved(int(tokens), int(cost)))

    def used_by_all(self, now_s: float) -> Mapping[str, tuple[Spent, Spent]]:
        """See `LedgerStore`."""
        day, month = (self._used_in(period) for period in budgets.periods(now_s))
        return {key: (day.get(key, Spent()), spent) for key, spent in month.items()}

    def renew(self) -> None:
        """See `LedgerStore`."""
        self._run(lambda: self._renew([self._lease], [_LEASE_S]))

    def close(self) -> None:
        """Ends the lease, and closes the connection."""
        with suppress(*self._errors):
            self._client.delete(self._lease)
        self._client.close()

    @property
    def _lease(self) -> str:
        return f"{_PREFIX}owner:{self._owner}"

    def _delete_old(self, today: str) -> None:
        if today:
            day = date.fromisoformat(today)
            days = [f"{day - timedelta(days=age)}" for age in _OLD_DAYS]
            months = [f"{day - timedelta(days=age)}"[:7] for age in _OLD_MONTHS]
            self._run(lambda: self._client.unlink(*map(_period, days + months)))

    def _used_in(self, period: str) -> dict[str, Spent]:
        found: dict[str, dict[str, int]] = {}
        for field, amount in self._run(lambda: self._client.hgetall(_period(period))).items():
            name, _, key = field.decode().partition(" ")
            found.setdefault(key, {})[name] = int(amount)
        return {key: Spent(**amounts) for key, amounts in found.items()}

    def _run(self, operation: Callable[[], Any]) -> Any:
        """Returns what the operation returns.

        Raises:
            BackendUnavailableError: The server cannot be used.
        """
        return self._breaker.run(operation)


def _period(period: str) -> str:
    return f"{_PREFIX}{period}"


def _reserved(key: str) -> str:
    return f"{_PREFIX}reserved:{key}"


def _spent(amounts: list[bytes | None]) -> Spent:
    return Spent(*(int(amount or 0) for amount in amounts))
