"""Child process that handles one large capture: standard input has the order, standard output gets the result."""

import gc
import sys

import msgspec

from dragoman.console.exchange.capture_work import carry_out, read_order


def main() -> None:
    """Carries out the order."""
    gc.disable()  # the process ends with its work
    order = read_order(sys.stdin.buffer)
    sys.stdout.buffer.write(msgspec.msgpack.encode(carry_out(order)))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
