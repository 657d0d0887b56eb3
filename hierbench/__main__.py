"""The program `hierbench`, and `python -m hierbench`."""

import os
import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends in one line, as it does later."""
    try:
        from hierbench.cli.main import main as run
    except KeyboardInterrupt:
        print("hierbench: error: interrupted; nothing was begun", file=sys.stderr)
        raise SystemExit(130) from None
    try:
        run()
    finally:
        # PyTorch takes a second to end, in which another Ctrl-C would print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    if not sys.flags.safe_path and sys.path[0] == os.getcwd():  # which may be a received folder
        del sys.path[0]
    main()
