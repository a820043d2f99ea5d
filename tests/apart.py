"""A process with nothing in it but the kit, forked for every call: the fork of a small process is a quarter of the
work of one of pytest, and what a test run has loaded or changed before cannot get into it.

helper.py starts it and asks it over a socket: one line of JSON and the three standard streams for each call. It ends
with the socket. Where there is no fork, or while a call is under way, helper.py does without it; `apart.py once` is
one call with a fault there.
"""
from __future__ import annotations

import array
import gc
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
import traceback

LIMIT_S = 30  # of one call
NOBODY = 65534
LENGTH = 8  # bytes of a request's length in front of it
KILL = getattr(signal, "SIGKILL", 137)  # on Windows any number ends a process at once and is its exit code
KILLED = -KILL if hasattr(signal, "SIGKILL") else KILL


# -----------------------------------------------------------------------------
# one call, in a process of its own
# -----------------------------------------------------------------------------


def run_child(kit, argv: list[str], descriptors, env: dict[str, str], cwd: str, first=None) -> None:
    """Never returns. 70 = an exception left main(); the tests never expect that code."""
    rc = 70
    try:
        signal.alarm(LIMIT_S)
        gc.disable()  # as the registered command does; a collection would copy every page
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        sys.stdin, sys.stdout, sys.stderr = open(0, "r"), open(1, "w"), open(2, "w")
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        _replace_raw_environment(env)
        sys.argv = ["-c", *argv]
        try:
            if first:
                first()
            kit.main()
            rc = 0
        except SystemExit as stop:
            rc = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - the child must never go on as a second parent
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(rc)


def _replace_raw_environment(env: dict[str, str]) -> None:
    """posix.environ is a copy made when the interpreter started; a kit that does without `os` reads that one."""
    try:
        import posix
    except ImportError:
        return
    posix.environ.clear()
    posix.environ.update({os.fsencode(name): os.fsencode(value) for name, value in env.items()})


def drop_rights() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


def exit_code(status: int) -> int:
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


# -----------------------------------------------------------------------------
# a fault at one of its file operations
# -----------------------------------------------------------------------------


class Faulty:
    """Stands where the kit stands: main() with its file operations counted. At number `at` comes the fault: ["kill"],
    ["fail", errno], ["hang", seconds], ["vanish", folder], ["link", path, target] or ["move", path, onto]."""

    def __init__(self, kit, names, at: int, fault: list):
        self.kit, self.names, self.at, self.fault, self.count = kit, names, at, fault, 0
        self.creating = "read" not in names and "stat" not in names  # of open: only what creates

    def main(self) -> None:
        for name in self.names:
            if hasattr(self.kit._os, name):
                setattr(self.kit._os, name, self._counted(name, getattr(self.kit._os, name)))
        self.kit.main()

    def _counted(self, name: str, real):
        def operation(*args, **kwargs):
            if name == "write" and args[0] <= 2 and self.fault[0] != "kill":
                return real(*args, **kwargs)  # a fault of stdout is another test
            if name == "open" and self.creating and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            self.count += 1
            if self.count == self.at:
                FAULTS[self.fault[0]](name, real, args, *self.fault[1:])
            return real(*args, **kwargs)
        return operation


def kill(name: str, real, args) -> None:
    """kill -9 before the operation; in the middle of it when it is a write."""
    if name == "write" and len(args[1]) > 1:
        real(args[0], args[1][:len(args[1]) // 2])
    end_at_once()


def end_at_once() -> None:
    os.kill(os.getpid(), KILL)


def fail(name: str, real, args, code: int) -> None:
    raise OSError(code, os.strerror(code))


def link(name: str, real, args, path: str, target: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    os.symlink(target, path)


FAULTS = {"kill": kill, "fail": fail, "link": link, "hang": lambda *args: time.sleep(args[3]),
          "vanish": lambda *args: shutil.rmtree(args[3], ignore_errors=True), "move": lambda *args: os.replace(*args[3:])}


# -----------------------------------------------------------------------------
# the process that is forked
# -----------------------------------------------------------------------------


def serve(channel: socket.socket, path: str) -> None:
    kit = load(path)
    gc.collect()
    gc.freeze()
    while True:
        request, streams = receive(channel)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            os.umask(request["umask"])
            first = drop_rights if request["as_nobody"] else None
            main = Faulty(kit, *request["fault"]) if request["fault"] else kit
            run_child(main, request["argv"], streams, request["env"], request["cwd"], first)
        for stream in streams:
            os.close(stream)
        channel.sendall(b"%d\n" % exit_code(os.waitpid(pid, 0)[1]))


def load(path: str):
    """The kit, and everything that it imports when it needs it: in a test run it is all there already."""
    spec = importlib.util.spec_from_file_location("ctx_hooks", path)
    kit = importlib.util.module_from_spec(spec)
    sys.modules["ctx_hooks"] = kit
    spec.loader.exec_module(kit)
    with open(path, encoding="utf-8") as source:
        names = set(re.findall(r"^ +(?:import|from) ([a-z_.]+)", source.read(), re.M))
    for name in sorted(names):
        try:
            __import__(name)
        except ImportError:
            pass  # of another system
    return kit


def send(channel: socket.socket, request: dict, streams) -> None:
    data = json.dumps(request).encode("ascii")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))]
    channel.sendmsg([b"%0*d" % (LENGTH, len(data))], rights)
    channel.sendall(data)


def receive(channel: socket.socket) -> tuple[dict | None, list[int]]:
    """A request and its streams; None when the other end is gone."""
    streams = array.array("i")
    start, rights, _, _ = channel.recvmsg(LENGTH, socket.CMSG_SPACE(3 * streams.itemsize))
    if not start:
        return None, []
    for level, kind, data in rights:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            streams.frombytes(data)
    left, parts = int(start), []
    while left:
        parts.append(channel.recv(left))
        if not parts[-1]:
            return None, []
        left -= len(parts[-1])
    return json.loads(b"".join(parts)), list(streams)


def run_once(path: str, request: dict) -> None:
    """One call in this very process, which has its streams, environment and folder already."""
    kit = load(path)
    vars(kit).update(request["changes"])
    sys.argv = ["-c", *request["argv"]]
    Faulty(kit, *request["fault"]).main()


if __name__ == "__main__":
    if sys.argv[1] == "once":
        run_once(sys.argv[2], json.loads(sys.argv[3]))
    else:
        serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
