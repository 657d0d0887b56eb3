"""What runs in the process of `hierbench.api.isolation`: a method is imported there, and checked."""

from __future__ import annotations

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
    """Import a method, check it, send what was found, and end the process."""
    leave, alarm, write, dumps = os._exit, signal.alarm, os.write, json.dumps  # a method may replace any of them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it goes to the process that asks
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.set_inheritable(order["pipe"], False)

    def send(message: Any) -> None:
        alarm(int(order["limit"]) + 60)  # ends this process, should the one that asks be gone
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
        text = f"method {order['reference']} can not be imported: {one_line_of(error)}"
        send({"error": text, "broken": True})
        leave(0)
    send([found.name, "\n".join(checks[issubclass(found.cls, Method)])])
    for name, problem in check_method(found.cls):
        send([name, problem])
    send({"done": order["nonce"]})
    leave(0)  # neither a thread nor what is registered to run at the end holds it up
