"""A clock that tests set."""


class Clock:
    """A clock with a settable time."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s
