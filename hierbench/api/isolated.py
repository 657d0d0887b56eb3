"""The child process of `hierbench.api.isolation`, which imports and checks a method."""

import json
import os
import signal
from typing import Any, NoReturn

from hierbench.api.contract import METHOD_CHECKS, POSTHOC_CHECKS, check_method
from hierbench.api.isolation import CLOSED
from hierbench.api.method import Method
from hierbench.api.registry import find_method
from hierbench.utils.errors import BrokenMethodError, UserError, one_line_of


def serve(order: dict[str, Any]) -> NoReturn:
    """Import a method, check it, report each step, and end the process."""
    leave, alarm, write, dumps = os._exit, signal.alarm, os.write, json.dumps  # a method may replace any of them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(order["pipe"], False)

    def send(message: Any) -> None:
        alarm(int(order["limit"]) + 60)  # ends this process if the parent is gone
        try:
            write(order["pipe"], dumps(message).encode() + b"\n")
        except OSError:
            leave(CLOSED)

    checks = {True: list(METHOD_CHECKS), False: list(POSTHOC_CHECKS)}
    send("ready")
    try:
        found = find_method(order["reference"])
    except UserError as error:
        send({"error": str(error), "broken": isinstance(error, BrokenMethodError)})
        leave(0)
    except MemoryError as error:
        send({"error": f"method {order['reference']} cannot be imported: {one_line_of(error)}", "broken": True})
        leave(0)
    send([found.name, "\n".join(checks[issubclass(found.cls, Method)])])
    for name, problem in check_method(found.cls):
        send([name, problem])
    send({"done": order["nonce"]})
    leave(0)  # without waiting for threads or exit handlers
