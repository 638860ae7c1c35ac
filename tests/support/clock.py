"""A clock that tests set."""


class Clock:
    """The time, as a test has it."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s
