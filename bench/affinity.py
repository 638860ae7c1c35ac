"""Tokens of prompts that two real llama-servers read, with `balance = "prefix"` and with round robin.

    python -m bench.affinity [--slots N …] [--agents 20] [--turns 10] [--concurrent 6]

Agents with different system prompts send the growing turns of their conversations in random order through `dragoman
serve`. The servers count the tokens that they read. Each has so many slots, the only place where it remembers prompts.
Then, for `--skew`, four of five requests begin with the same long prompt; how many each server gets is printed. The
model is SmolLM2 with its first two layers, as only tokens are counted.
"""

import argparse
import asyncio
import contextlib
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dragoman.backends.embedded import weights
from support.gateway import CHAT, Gateway, running
from support.http_client import http_client
from support.servers.real import llama_server
from support.small_models import write_short_model

NAMES: Final = ("one", "two")
MODEL: Final = "smollm2"
LAYERS: Final = 2
CONTEXT: Final = 1536
"""Tokens of a slot."""
PATIENCE_S: Final = 600.0
VOCABULARY: Final = ("river", "stone", "cloud", "table", "green", "seven", "house", "paper", "light", "music", "window")
READ: Final = re.compile(r"^llamacpp:prompt_tokens_total (\d+)", re.M)


class Load(NamedTuple):
    """What the two servers did."""

    tokens: Sequence[int]
    """Tokens that each has read."""
    requests: Sequence[int]

    @property
    def over_mean(self) -> float:
        """By what share the busier server has more requests than the mean."""
        return max(self.requests) * len(self.requests) / sum(self.requests) - 1


class Sent(NamedTuple):
    """A request of a conversation."""

    agent: int
    messages: Sequence[dict[str, str]]


def text(count: int, seed: object) -> str:
    """Returns so many words."""
    return " ".join(random.Random(str(seed)).choices(VOCABULARY, k=count))


def conversations(agents: int, turns: int) -> list[Sent]:
    """Returns the requests of all agents in random order, in which each agent's turns grow."""
    order = [agent for agent in range(agents) for _ in range(turns)]
    random.Random(1).shuffle(order)
    messages = {agent: [{"role": "system", "content": text(300, agent)}] for agent in range(agents)}
    sent: list[Sent] = []
    for agent in order:
        history = messages[agent]
        if len(history) > 1:
            history.append({"role": "assistant", "content": text(20, (agent, len(history)))})
        history.append({"role": "user", "content": text(15, (agent, len(history)))})
        sent.append(Sent(agent, tuple(history)))
    return sent


def skewed(count: int) -> list[Sent]:
    """Returns requests of which four of five have the same system prompt."""
    draw = random.Random(2)
    prompts = ["hot" if draw.random() < 0.8 else f"cold {number % 10}" for number in range(count)]
    return [
        Sent(
            number,
            (
                {"role": "system", "content": text(250, prompt)},
                {"role": "user", "content": text(10, number)},
            ),
        )
        for number, prompt in enumerate(prompts)
    ]


@contextlib.contextmanager
def served(file: Path, slots: int) -> Iterator[tuple[Gateway, Sequence[str]]]:
    """Runs two servers with empty caches and a gateway in front of them; yields it, and their URLs."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = [stack.enter_context(llama_server(file=file, context=CONTEXT, slots=slots)) for _ in NAMES]
        config = home / "config.toml"
        servers = (
            f'[upstreams.{name}]\nurl = "{url}/v1"\nprovider = "llama_cpp"\nmodels = ["{MODEL}"]\n'
            for name, url in zip(NAMES, urls, strict=True)
        )
        rule = f'[[routes]]\nmodel = "{MODEL}"\nbalance = "prefix"\n'
        config.write_text("".join((*servers, rule)))
        yield stack.enter_context(running(home, "--config", str(config))), urls


def prefix(number: int) -> str:
    """Returns the model that the rule serves."""
    return MODEL


def round_robin(number: int) -> str:
    """Returns the model of each server in turn."""
    return f"{NAMES[number % 2]}/{MODEL}"


async def send(url: str, requests: Sequence[Sent], model: Callable[[int], str], concurrent: int) -> Counter[str]:
    """Sends the requests in their order, so many at once, and no two of an agent; returns their number by upstream.

    Args:
        url: The gateway.
        requests: The requests.
        model: Returns the model of the request of this number.
        concurrent: Requests at once.
    """
    counts = Counter[str]()
    queue = list(enumerate(requests))
    busy: dict[int, asyncio.Lock] = {each.agent: asyncio.Lock() for each in requests}

    async def work(client: httpx2.AsyncClient) -> None:
        while queue:
            number, sent = queue.pop(0)
            body: dict[str, Any] = {
                "model": model(number),
                "messages": sent.messages,
                "max_tokens": 2,
                "temperature": 0,
            }
            async with busy[sent.agent]:
                response = await client.post(CHAT, json=body)
            assert response.status_code == 200, response.text
            counts[response.headers["x-dragoman-upstream"]] += 1

    async with http_client(url, timeout=PATIENCE_S) as client:
        await asyncio.gather(*(work(client) for _ in range(concurrent)))
    return counts


def measure(
    file: Path, slots: int, requests: Sequence[Sent], model: Callable[[int], str] = prefix, concurrent: int = 6
) -> Load:
    """Returns what new servers do for these requests.

    Args:
        file: The weights.
        slots: Slots of each server.
        requests: The requests, in their order.
        model: Returns the model of the request of this number.
        concurrent: Requests at once.
    """
    with served(file, slots) as (gateway, urls):
        counts = asyncio.run(send(gateway.url, requests, model, concurrent))
        read = [READ.search(httpx2.get(f"{url}/metrics", trust_env=False).text) for url in urls]
    return Load([int(found[1]) if found else 0 for found in read], [counts[name] for name in NAMES])


@contextlib.contextmanager
def short_model() -> Iterator[Path]:
    """The file of the model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "short.gguf"
        write_short_model(file, weights.find_weights("smollm2-135m"), LAYERS)
        yield file


def main() -> None:
    """Prints the tokens and the loads."""
    parser = argparse.ArgumentParser(prog="python -m bench.affinity", description=__doc__)
    parser.add_argument("--slots", type=int, nargs="+", default=[12], help="slots of each server")
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--concurrent", type=int, default=6, help="requests at once")
    parser.add_argument("--skew", type=int, default=200, metavar="N", help="requests of the run with a shared prompt")
    args = parser.parse_args()
    requests = conversations(args.agents, args.turns)
    with short_model() as file:
        for slots in args.slots:
            by_prefix = measure(file, slots, requests, prefix, args.concurrent)
            in_turn = measure(file, slots, requests, round_robin, args.concurrent)
            share = sum(by_prefix.tokens) / sum(in_turn.tokens)
            print(
                f"{slots} slots: prefix {sum(by_prefix.tokens)} tokens, round robin {sum(in_turn.tokens)}: {share:.2f}"
            )
            print(json.dumps({"prefix": by_prefix, "round_robin": in_turn}), flush=True)
        if args.skew:
            load = measure(file, args.slots[0], skewed(args.skew), prefix, args.concurrent)
            print(f"skew: {100 * load.over_mean:.0f} % over the mean", json.dumps(load))


if __name__ == "__main__":
    main()
