"""Servers of weft that share a store, for tests: the store, the servers, and what clients ask."""

import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from serve_test import Server
from weft_process import TIMEOUT_S

HERE = pathlib.Path(__file__).resolve().parent
BUCKET = "bucket"
KEYS = {"AWS_ACCESS_KEY_ID": "weft-test", "AWS_SECRET_ACCESS_KEY": "weft-test-secret",
        "AWS_REGION": "us-east-1",
        # A proxy of the machine's own has nothing to do here.
        "no_proxy": "127.0.0.1"}
TROUBLES = ("session_elsewhere", "session_moved", "state_unavailable")


def free_port():
    """None that the system gives to outgoing connections: servers are killed, and take the same
    port again later."""
    while True:
        port = random.randrange(10_000, 32_768)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def stop(process):
    """Until it goes on. What it sent has arrived when this returns."""
    process.send_signal(signal.SIGSTOP)
    with contextlib.suppress(ChildProcessError):  # it ended by itself
        os.waitpid(process.pid, os.WUNTRACED)


def trouble_of(text):
    """Which trouble with a shared session an error tells; None: another one."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    return next((name for name in TROUBLES if name in text), None)


# --- stores ------------------------------------------------------------------------------


class Store:
    """A process that may be killed and started again, on the same port and folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.process = None
        self.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def command(self):
        raise NotImplementedError

    def environment(self):
        return KEYS

    def start(self):
        self.process = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL,
                                        env={**os.environ, **self.environment()})
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            assert self.process.poll() is None, f"the store ended with {self.process.returncode}"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, "the store does not listen"
                time.sleep(0.02)

    def stop(self):
        """It hangs: connections open, and nothing answers."""
        stop(self.process)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    end = kill


class ObjectStore(Store):
    """s3_server.py with the given faults."""

    def __init__(self, folder, *flags):
        self.flags = flags
        super().__init__(folder)

    def command(self):
        return [sys.executable, str(HERE / "s3_server.py"), "--folder", str(self.folder),
                "--bucket", BUCKET, "--port", str(self.port), *map(str, self.flags)]


class VersityGateway(Store):
    """versitygw; its folder must be on a file system with extended attributes."""

    def __init__(self, folder, binary):
        self.binary = binary
        (pathlib.Path(folder) / BUCKET).mkdir(parents=True)
        super().__init__(folder)

    def command(self):
        return [self.binary, "--access", KEYS["AWS_ACCESS_KEY_ID"], "--secret",
                KEYS["AWS_SECRET_ACCESS_KEY"], "--port", f"127.0.0.1:{self.port}", "--keep-alive",
                "--quiet", "posix", str(self.folder)]


class Nanio(Store):
    """nanio, which ignores conditions."""

    def __init__(self, folder, binary):
        self.binary = binary
        (pathlib.Path(folder) / BUCKET).mkdir(parents=True)
        super().__init__(folder)

    def environment(self):
        return {"NANIO_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"],
                "NANIO_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}

    def command(self):
        return [self.binary, "serve", "--data-dir", str(self.folder), "--host", "127.0.0.1",
                "--port", str(self.port), "--no-access-log"]


def find_program(variable, name):
    """The path of a program that may be there; None, with a line that says so, where it is not."""
    found = os.environ.get(variable) or shutil.which(name)
    if not found:
        print(f"SKIPPED: there is no {name} in $PATH, and ${variable} names none", flush=True)
    return found


# --- servers -----------------------------------------------------------------------------


class Worker:
    """A weft serve of a fleet, at one address, whichever process is there now."""

    def __init__(self, fleet, name):
        self.fleet = fleet
        self.name = name
        self.folder = fleet.folder / name
        self.slots = self.folder / "slots"
        self.slots.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.server = None
        self.logs = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def store_flags(self):
        return ("--store", f"s3://{BUCKET}/fleet", "--store-endpoint", self.fleet.store.url,
                "--worker-url", self.url, "--store-lease", self.fleet.lease)

    def start(self, shared=True):
        flags = ("--state-dir", self.folder / "state", "--slot-save-path", self.slots,
                 *self.fleet.flags, *(self.store_flags() if shared else ()))
        self.server = Server(self.fleet.model, *map(str, flags), env=KEYS, port=self.port)
        self.server.__enter__()
        return self.server.ready()

    def ask(self, method, path, body=None, **headers):
        return self.server.ask(method, path, body, **headers)

    def stop(self):
        stop(self.server.process)

    def go_on(self):
        self.server.signal(signal.SIGCONT)

    def kill(self):
        """Without a chance to do anything, as kill -9 or a power cut."""
        if self.server is None:
            return
        self.server.__exit__()
        self.logs.append(self.server.log)

    def end(self):
        """In peace."""
        code = self.server.end()
        self.kill()
        assert code == 0, self.logs[-1][-2000:]


class Fleet:
    """A store and servers with a state directory each."""

    def __init__(self, folder, model, store, n=3, lease=2, flags=()):
        self.folder = pathlib.Path(folder)
        self.model = model
        self.store = store
        self.lease = lease
        self.flags = ("--threads", 1, "--max-running", 16, "--memory", "64M", *flags)
        self.workers = [Worker(self, f"worker-{i}") for i in range(n)]

    def start(self):
        starting = [threading.Thread(target=worker.start) for worker in self.workers]
        for one in starting:
            one.start()
        for one in starting:
            one.join()
        assert all(worker.server and worker.server.process.poll() is None
                   for worker in self.workers), [w.server and w.server.log for w in self.workers]
        return self

    def end(self):
        for worker in self.workers:
            worker.kill()

    def owner(self, url):
        return next((worker for worker in self.workers if worker.url == url), None)


# --- what clients ask ----------------------------------------------------------------------


def retry_after(answer):
    return int(re.fullmatch(r"\d+", answer.headers["Retry-After"])[0])


def until_taken(ask):
    """The first answer that is not "elsewhere", asking again as the server says."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = ask()
        if answer.status != 409 or trouble_of(answer.body) != "session_elsewhere":
            return answer
        assert time.monotonic() < deadline, f"it stays elsewhere: {answer}"
        # Retry-After is in whole seconds; asking a bit more often does no harm.
        time.sleep(min(retry_after(answer), 1) / 4)
