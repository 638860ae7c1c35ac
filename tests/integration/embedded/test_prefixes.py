"""Saved prompt prefixes, with the real engine: each model here is a process of its own, as after a restart."""

import asyncio
import contextlib
import json
import os
import resource
import stat
import zlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from dragoman.backends.embedded import weights
from dragoman.backends.embedded.embedded_model import EmbeddedModel
from dragoman.backends.embedded.prefixes import boundary, warm
from dragoman.core import messages as v
from dragoman.core.backend import ExchangeContext
from dragoman.core.collect import collect
from dragoman.core.events import Failure
from support.events import all_events
from support.llama_server_program import llama_server_program
from support.scripted_llama import PROFILE, backend

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

RULES = " ".join(f"Rule {n}: keep to the point of case {n * 7}." for n in range(15))
OTHER_RULES = " ".join(f"Law {n}: write a poem about case {n * 3}." for n in range(15))
SECRET = "My password is swordfish-4711, remember it."
"""The user's text, which must be in no file."""


MIN_TOKENS = 128


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefixes are saved that take a second to read."""
    monkeypatch.setattr(warm, "MIN_TOKENS", MIN_TOKENS)
    for module in (boundary, warm):
        monkeypatch.setattr(module, "MIN_CHARS", 2 * MIN_TOKENS)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Returns the folder of saved prefixes, which does not exist yet."""
    downloaded = weights.find_weights(PROFILE.name)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / downloaded.name).symlink_to(downloaded)
    monkeypatch.setenv("DRAGOMAN_HOME", str(tmp_path))
    return tmp_path / "prefixes"


@contextlib.asynccontextmanager
async def running(**config: Any) -> AsyncIterator[EmbeddedModel]:
    model = backend(**{"prefix_cache_mb": 500, "context_window": 2048, **config})
    await model.start()
    try:
        yield model
    finally:
        await model.close()


async def ask(model: EmbeddedModel, system: str, *texts: str, max_tokens: int = 3) -> v.Usage:
    """Returns the usage of the response to a conversation whose last message is the user's."""
    roles: tuple[v.Role, v.Role] = ("user", "assistant")
    said = [v.Message(roles[at % 2], (v.Text(text),)) for at, text in enumerate(texts)]
    request = v.Request(
        PROFILE.name,
        (v.Message("system", (v.Text(system),)), *said),
        max_tokens=max_tokens,
        sampling=v.Sampling(temperature=0),
    )
    reply = collect(await all_events(model.generate(request, ExchangeContext("id", 0, iter("abcdefgh").__next__))))
    return reply.usage


def state(model: EmbeddedModel) -> dict[str, int]:
    found = model.health()["prefixes"]
    assert isinstance(found, dict)
    return found


async def saved_files(model: EmbeddedModel, folder: Path) -> list[Path]:
    """Returns the files of saved states, once all are written."""
    assert model.engine.prefixes
    await model.engine.prefixes.close()
    return sorted(folder.glob("*.kv"))


async def test_second_process_restores_prefix(folder: Path) -> None:
    async with running() as model:
        first = await ask(model, RULES, SECRET)
        assert first.cached_input_tokens == 0
        (file,) = await saved_files(model, folder)
        assert state(model)["saved"] == 1
    async with running() as model:
        assert state(model)["restored"] == 1  # ahead of the first request
        second = await ask(model, RULES, "Another question?")
        assert second.cached_input_tokens > MIN_TOKENS
        assert second.input_tokens - second.cached_input_tokens < 60
        assert await saved_files(model, folder) == [file]


@pytest.mark.every
async def test_llama_server_restores_prefix_of_its_own_only(folder: Path) -> None:
    program = {"engine": "llama-server", "llama_server": llama_server_program()}
    async with running() as model:
        await ask(model, RULES, SECRET)
        await saved_files(model, folder)
    async with running(**program) as model:
        assert state(model)["restored"] == 0
        assert (await ask(model, RULES, SECRET)).cached_input_tokens == 0
        assert len(await saved_files(model, folder)) == 2
    async with running(**program) as model:
        assert state(model)["restored"] == 1
        assert (await ask(model, RULES, "Another question?")).cached_input_tokens > MIN_TOKENS


async def test_answer_is_the_same_with_restored_prefix(folder: Path) -> None:
    async def answer(model: EmbeddedModel) -> str:
        messages = (v.Message("system", (v.Text(RULES),)), v.Message("user", (v.Text("Name three rules."),)))
        request = v.Request(PROFILE.name, messages, max_tokens=30, sampling=v.Sampling(temperature=0))
        events = await all_events(model.generate(request, ExchangeContext("id", 0, iter("abcdefgh").__next__)))
        assert not any(isinstance(event, Failure) for event in events)
        return str(collect(events).parts)

    async with running() as model:
        cold = await answer(model)
        await saved_files(model, folder)
    async with running() as model:
        assert state(model)["restored"] == 1
        assert await answer(model) == cold


async def test_files_hold_no_conversation(folder: Path) -> None:
    async with running() as model:
        await ask(model, RULES, SECRET)
        await ask(model, RULES, SECRET, "Understood.", SECRET)
        (file,) = await saved_files(model, folder)
        description = file.with_suffix(".json")
        saved = json.loads(description.read_text())
        assert RULES in saved["text"]
        assert "swordfish" not in saved["text"]
        # The state has exactly the tokens of this text.
        assert saved["tokens"] == await model.engine.count(saved["text"])
        for path in (file, description):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    async with running() as model:
        assert state(model)["restored_tokens"] == saved["tokens"]


@pytest.mark.parametrize(
    "damage", [pytest.param("cut", marks=pytest.mark.every), "changed", pytest.param("text", marks=pytest.mark.every)]
)
async def test_damaged_file_is_removed_and_prompt_read(folder: Path, damage: str) -> None:
    async with running() as model:
        await ask(model, RULES, "Hi")
        (file,) = await saved_files(model, folder)
    content = bytearray(file.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "changed":
        content[len(content) // 2] ^= 255
    else:
        content[:] = b"not a state of the engine"
    file.write_bytes(content)
    async with running() as model:
        assert state(model)["restored"] == 0
        usage = await ask(model, RULES, "Hi")
        assert (usage.cached_input_tokens, usage.output_tokens) == (0, 3)
        await saved_files(model, folder)
        assert state(model)["saved"] == 1
    async with running() as model:
        assert state(model)["restored"] == 1


@pytest.mark.every
async def test_file_that_engine_rejects_is_removed(folder: Path) -> None:
    async with running() as model:
        await ask(model, RULES, "Hi")
        (file,) = await saved_files(model, folder)
    file.write_bytes(content := b"with a valid checksum")
    description = file.with_suffix(".json")
    fields = json.loads(description.read_text()) | {"size_bytes": len(content), "crc32": zlib.crc32(content)}
    description.write_text(json.dumps(fields))
    async with running() as model:
        assert state(model)["restored"] == 0
        assert not file.exists()
        assert (await ask(model, RULES, "Hi")).output_tokens == 3


async def test_other_model_or_settings_do_not_use_file(folder: Path) -> None:
    async with running() as model:
        await ask(model, RULES, "Hi")
        await saved_files(model, folder)
    async with running(context_window=1536) as model:
        assert state(model)["restored"] == 0
    path = weights.find_weights(PROFILE.name)
    target = path.resolve()
    path.unlink()
    path.write_bytes(target.read_bytes())  # the same bytes with another time of change may be another model
    async with running() as model:
        assert state(model)["restored"] == 0
        assert (await ask(model, RULES, "Hi")).cached_input_tokens == 0
        assert len(await saved_files(model, folder)) == 2


@pytest.mark.every
async def test_folder_has_bounded_size(folder: Path) -> None:
    async with running() as model:
        await ask(model, RULES, "Hi")
        (file,) = await saved_files(model, folder)
    limit_mb = file.stat().st_size * 3 // 2 // 1_000_000
    async with running(prefix_cache_mb=limit_mb) as model:
        await ask(model, OTHER_RULES, "Hi")
        (newer,) = await saved_files(model, folder)
        assert newer != file
    async with running(prefix_cache_mb=limit_mb // 4) as model:
        assert not await saved_files(model, folder)
        assert (await ask(model, RULES, "Hi")).output_tokens == 3
        assert not await saved_files(model, folder)


async def test_zero_saves_nothing(folder: Path) -> None:
    async with running(prefix_cache_mb=0) as model:
        await ask(model, RULES, "Hi")
        assert "prefixes" not in model.health()
    assert not folder.exists()


async def test_full_disk_does_not_fail_request(folder: Path) -> None:
    async with running() as model:
        assert model.engine.pid
        resource.prlimit(model.engine.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))  # the engine's writes fail
        usage = await ask(model, RULES, "Hi")
        assert usage.output_tokens == 3
        assert state(model)["failed"] == 1
        assert list(folder.iterdir()) == []
        assert (await ask(model, RULES, "Hi", "Yes.", "Go on")).cached_input_tokens > MIN_TOKENS


async def test_unusable_folder_does_not_fail_request(folder: Path) -> None:
    folder.write_text("a file")
    async with running() as model:
        assert (await ask(model, RULES, "Hi")).output_tokens == 3
        assert "prefixes" not in model.health()


async def test_folder_removed_while_running_does_not_fail_request(folder: Path) -> None:
    async with running() as model:
        folder.rmdir()
        assert (await ask(model, RULES, "Hi")).output_tokens == 3
        assert state(model)["failed"] == 1


@pytest.mark.every
@pytest.mark.parametrize("slots", [1, 2])
async def test_other_requests_do_not_evict_conversation(slots: int, folder: Path) -> None:
    """Title requests, and a subagent with a prompt of its own, come between the turns of an agent."""
    async with running(max_concurrency=slots) as model:
        said = ["Begin."]
        await ask(model, RULES, *said)
        for turn in range(6):
            await ask(model, f"Write a title. {turn}", "Begin.")
            await ask(model, OTHER_RULES, f"Search {turn}.")
            said += [f"Step {turn} is done, and here is what came of it.", f"Next, number {turn}."]
            usage = await ask(model, RULES, *said)
            assert usage.input_tokens - usage.cached_input_tokens < 60


async def test_second_conversation_leaves_first_in_its_slot(folder: Path) -> None:
    async with running() as model:
        said = ["Begin. " + "This is a long message. " * 40]
        await ask(model, RULES, *said)
        await saved_files(model, folder)
        other = await ask(model, RULES, "Something else.")
        assert other.cached_input_tokens > MIN_TOKENS
        usage = await ask(model, RULES, *said, "Yes.", "Go on.")
        assert usage.input_tokens - usage.cached_input_tokens < 60


async def test_concurrent_requests_read_new_prefix_once(folder: Path) -> None:
    async with running() as model:
        usages = await asyncio.gather(*(ask(model, RULES, f"Question {n}") for n in range(3)))
        await saved_files(model, folder)
        assert state(model)["saved"] == 1
        assert sorted(usage.cached_input_tokens > MIN_TOKENS for usage in usages) == [False, True, True]


async def test_killed_engine_restores_prefix(folder: Path) -> None:
    async with running() as model:
        await ask(model, RULES, "Hi")
        await saved_files(model, folder)
        assert model.engine.pid
        os.kill(model.engine.pid, 9)
        while model.engine.is_ready:
            await asyncio.sleep(0)
        usage = await ask(model, RULES, "Hi again")
        assert usage.cached_input_tokens > MIN_TOKENS
        assert state(model)["restored"] == 1


@pytest.mark.every
async def test_cancelled_reading_leaves_nothing(folder: Path) -> None:
    async with running() as model:
        messages = (v.Message("system", (v.Text(RULES),)), v.Message("user", (v.Text("Hi"),)))
        request = v.Request(PROFILE.name, messages, max_tokens=3)
        async with aclosing(model.generate(request, ExchangeContext("id", 0, iter("abcdefgh").__next__))) as batches:
            await anext(batches)  # the prompt is being read
        assert not await saved_files(model, folder)
        assert (await ask(model, RULES, "Hi")).output_tokens == 3
        assert len(await saved_files(model, folder)) == 1


async def test_context_of_agent_is_restored(folder: Path) -> None:
    """Claude Code puts folder and date in front of the user's text, and instructions after it."""

    async def usage(model: EmbeddedModel, text: str) -> v.Usage:
        reminder = v.Text("<system-reminder>The project has 7 files. </system-reminder>")
        request = v.Request(
            PROFILE.name,
            (
                v.Message("system", (v.Text("Be brief."),)),
                v.Message("user", (reminder, v.Text(text))),
                v.Message("system", (v.Text(RULES),)),
            ),
            max_tokens=3,
        )
        events = await all_events(model.generate(request, ExchangeContext("id", 0, iter("abcdefgh").__next__)))
        return collect(events).usage

    async with running() as model:
        await usage(model, SECRET)
        (file,) = await saved_files(model, folder)
        saved = json.loads(file.with_suffix(".json").read_text())["text"]
        assert "7 files" in saved
        assert "swordfish" not in saved
    async with running() as model:
        second = await usage(model, "What is there?")
        assert second.input_tokens - second.cached_input_tokens < 20


@pytest.mark.every
async def test_common_beginning_of_changed_prefix_is_restored(folder: Path) -> None:
    async with running() as model:
        await ask(model, f"{RULES} Today is Monday. {OTHER_RULES}", "Hi")
        await saved_files(model, folder)
    async with running() as model:
        await ask(model, "Be brief.", "Hi")
        changed = await ask(model, f"{RULES} Today is Friday. {OTHER_RULES}", "Hi")
        assert 200 < changed.cached_input_tokens < changed.input_tokens * 0.7
        assert len(await saved_files(model, folder)) == 2


async def test_short_prefix_is_not_saved(folder: Path) -> None:
    async with running() as model:
        await ask(model, RULES[: warm.MIN_TOKENS], "Hi")
        assert not await saved_files(model, folder)
