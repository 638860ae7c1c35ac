"""The Claude CLI for tests: recorded traces, their recorder, and a fake CLI that replays them."""
