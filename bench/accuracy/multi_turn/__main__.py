"""Runs tasks of several turns, stores the calls in .cache/accuracy, and prints how many the checker accepts.

A turn ends with an answer without calls, or after eight answers. Stored runs are not repeated.
"""

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec

from bench.accuracy.generate import TEXTS
from bench.accuracy.multi_turn.players import Player, Spent, player
from bench.accuracy.multi_turn.recording import RECORDING, TaskRun, markdown, read, record
from bench.accuracy.multi_turn.tasks import Call, SimulatedSystem, Task, problem, tasks
from dragoman.core.errors import DragomanError
from dragoman.core.messages import Message, Text, ToolCall, ToolResult, part_text

ANSWERS_PER_TURN = 8


async def play(task: Task, one: Player, arm: str, seed: int) -> TaskRun:
    """Runs a task to its end.

    Args:
        task: the task.
        one: what answers.
        arm: its name.
        seed: 0 for temperature 0.
    """
    one.spent = Spent()
    simulation, messages = SimulatedSystem(task), list[Message]()
    turns, texts = list[list[list[Call]]](), list[str]()
    for question in task.turns:
        messages.append(Message("user", (Text(question),)))
        steps, text = list[list[Call]](), ""
        for _ in range(ANSWERS_PER_TURN):
            parts = await one.answer(messages, task.tools, seed)
            messages.append(Message("assistant", parts))
            text = "".join(map(part_text, parts))
            calls = [part for part in parts if isinstance(part, ToolCall)]
            if not calls:
                break
            steps.append([(call.name, call.arguments) for call in calls])
            results = (ToolResult(call.id, (Text(simulation.execute((call.name, call.arguments))),)) for call in calls)
            messages += [Message("tool", (result,)) for result in results]
        turns.append(steps)
        texts.append(text)
    spent = one.spent
    verdict = problem(task, turns)
    return TaskRun(
        task.id, arm, seed, spent.input_tokens, spent.output_tokens, round(spent.cpu_s, 1), turns, texts, verdict
    )


async def run(arm: str, model: str, seeds: list[int], path: Path) -> None:
    """Runs the tasks that the file lacks, and appends each.

    Args:
        arm: `dragoman` or `bare`.
        model: name of a known model.
        seeds: seeds; 0 is temperature 0.
        path: the file.
    """
    stored = {(each.id, each.arm, each.seed) for each in read(path)}
    missing = [(task, seed) for seed in seeds for task in tasks() if (task.id, arm, seed) not in stored]
    if not missing:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    async with player(arm, model) as one:
        for task, seed in missing:
            try:
                done = await play(task, one, arm, seed)
            except DragomanError as error:
                done = TaskRun(task.id, arm, seed, 0, 0, 0.0, [], [], f"error: {type(error).__name__}")
            with path.open("ab") as out:
                out.write(msgspec.json.encode(done) + b"\n")
            calls = [sum(map(len, turn)) for turn in done.turns]
            print(f"{arm} {task.id} {seed}: {done.problem or 'accepted'}, calls {calls}, {done}", file=sys.stderr)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy.multi_turn", description=__doc__)
    parser.add_argument("--arm", nargs="+", choices=("dragoman", "bare"), default=("dragoman", "bare"))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--file", type=Path, default=TEXTS / "multi_turn.jsonl", help="where runs are stored")
    parser.add_argument("--record", action="store_true", help="store the runs for the tests, without the model")
    args = parser.parse_args()
    if args.record:
        record(read(args.file), RECORDING)
    else:
        for arm in args.arm:
            asyncio.run(run(arm, args.model, args.seeds, args.file))
    print(markdown(read(args.file)))


if __name__ == "__main__":
    main()
