"""Stands where a program would run: hands it to the server, passes signals on, and ends as it ended."""

import array
import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    path, real, *arguments = sys.argv[1:]
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    asked = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109  pathlib takes as long as all the rest
    text = json.dumps(asked).encode("utf-8", "surrogateescape")
    streams = array.array("i", [0, 1, 2])
    server.sendmsg([len(text).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    server.sendall(text)
    if server.recv(1) != b"y":
        os.execv(real, [real, *arguments])
    for number in PASSED_ON:
        signal.signal(number, lambda number, frame: server.send(bytes([number])))
    ended = os.waitstatus_to_exitcode(int.from_bytes(server.recv(4), "big"))
    if ended < 0:
        signal.signal(-ended, signal.SIG_DFL) if -ended != signal.SIGKILL else None
        os.kill(os.getpid(), -ended)
    os._exit(ended)


main()
