"""``python -m demo``: 336,776 flights through a partitioned queue, then read with Spark."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from demo.interrupt import Interrupt, end_descendants


def main() -> int:
    """Run the demo; return the exit status: 0, 1 if the counts differ, or 130 after Ctrl-C."""
    interrupt = Interrupt()
    try:
        interrupt.install()
        arguments = _arguments()
        from rich.console import Console

        from demo.run import run

        return run(Console(), interrupt, limit=arguments.limit, plot=arguments.plot)
    except BaseException as error:
        # Spark turns an interrupt into various errors.
        if not (interrupt.requested or isinstance(error, KeyboardInterrupt)):
            raise
        interrupt.begin_stopping()
        print("\nstopped", file=sys.stderr)
        return 130
    finally:
        interrupt.begin_stopping()
        end_descendants()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--limit", type=_positive, metavar="N", help="send the first N flights only; default all 336,776"
    )
    parser.add_argument("--plot", type=Path, default=Path("flights.png"), metavar="PATH", help="default %(default)s")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("give 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
