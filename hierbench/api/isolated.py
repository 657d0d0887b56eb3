"""Runs in the child process of `hierbench.api.isolation`: imports a method and checks it."""

import json
import os
import signal
from typing import Any, NoReturn

from hierbench.api.contract import METHOD_CHECKS, METHOD_HOOKS, POSTHOC_CHECKS, POSTHOC_HOOKS, check_method, uses
from hierbench.api.isolation import CLOSED
from hierbench.api.method import Method
from hierbench.api.registry import find_method
from hierbench.utils.errors import BrokenMethodError, UserError, one_line_of


def serve(order: dict[str, Any], pipe: int) -> NoReturn:
    """Import a method, check it, write what was found to a pipe, and end the process."""
    leave, alarm, write, dumps = os._exit, signal.alarm, os.write, json.dumps  # a method may replace any of them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def send(message: Any) -> None:
        alarm(int(order["limit"]) + 60)  # ends this process if its parent is gone
        try:
            write(pipe, dumps(message).encode() + b"\n")
        except OSError:
            leave(CLOSED)

    checks = {True: list(METHOD_CHECKS), False: list(POSTHOC_CHECKS)}  # before the method's file can change them
    hooks = {True: dict(METHOD_HOOKS), False: dict(POSTHOC_HOOKS)}
    send("ready")
    try:
        found = find_method(order["reference"])
    except (UserError, MemoryError) as error:
        text = f"method {order['reference']} cannot be imported: {one_line_of(error)}"
        text = str(error) if isinstance(error, UserError) else text
        send({"error": text, "broken": isinstance(error, BrokenMethodError | MemoryError)})
        leave(0)
    trained = issubclass(found.cls, Method)
    own = [name for name, (hook, _) in hooks[trained].items() if uses(found.cls, hook)]
    send([found.name, "\n".join(checks[trained] + own)])
    for name, problem in check_method(found.cls):
        send([name, problem])
    send({"done": order["nonce"]})
    leave(0)  # neither threads nor exit handlers delay it
