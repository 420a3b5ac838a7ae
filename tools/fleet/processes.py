"""The programs that a fleet consists of: weft servers, SMG, and simulated workers. Each ends with
the `with` that began it."""

import asyncio
import contextlib
import json
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time

from fleet.http_stream import Refused, ask

START_S = 300
ENTRY = pathlib.Path(__file__).resolve().parent.parent / "fleet_workers.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Program:
    """A process whose output goes into a file."""

    def __init__(self, command):
        self.command = [str(word) for word in command]

    def __enter__(self):
        self.output = tempfile.NamedTemporaryFile(prefix="fleet_", suffix=".log")
        self.process = subprocess.Popen(self.command, stdout=self.output, stderr=subprocess.STDOUT)
        return self

    def text(self):
        return pathlib.Path(self.output.name).read_text(errors="replace")

    def failure(self, what):
        return RuntimeError(f"{shlex.join(self.command)} {what}:\n{self.text()[-3000:]}")

    def wait_for(self, pattern, seconds=START_S):
        """All groups of the pattern's first match in the output."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            over = self.process.poll() is not None
            if found := re.search(pattern, self.text()):
                return found.groups()
            if over:
                raise self.failure(f"ended with {self.process.returncode}")
            time.sleep(0.05)
        raise self.failure(f"did not say {pattern!r} in {seconds} s")

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.output.close()


@contextlib.contextmanager
def weft(options):
    """A server: its HTTP address and its gRPC port."""
    model = ["-m", options.model] if options.model else []
    command = [options.weft, "serve", *model, "--port", 0, "--grpc-port", 0,
               "--speculate", "off", "--state-dir", "none", "--mmproj", "none",
               *(["--threads", options.threads] if options.threads else []),
               *(["--memory", options.memory] if options.memory else []),
               *shlex.split(options.serve_flags)]
    with Program(command) as program:
        url, = program.wait_for(r"listening on (http://\S+)")
        port, = program.wait_for(r"gRPC server listening on \S+:(\d+)")
        program.wait_for(r" ready after ")
        yield url, int(port)


@contextlib.contextmanager
def simulated(n, options, one_machine):
    """The gRPC ports of workers in a process of their own."""
    command = [sys.executable, ENTRY, "run", n, "--profile", options.profile,
               "--seed", options.seed, *(["--one-machine"] if one_machine else []),
               *(["--memory-tokens", options.memory_tokens] if options.memory_tokens else [])]
    with Program(command) as program:
        text, = program.wait_for(r"gRPC ports: ([\d ]+)\n")
        yield [int(port) for port in text.split()]


def gateway_ready(url):
    """How many of SMG's workers are healthy."""
    try:
        found = asyncio.run(ask(url, "/workers"))
    except (OSError, Refused, ValueError, asyncio.IncompleteReadError, IndexError):
        return 0
    return sum(worker["is_healthy"] for worker in found["workers"])


@contextlib.contextmanager
def smg(program, ports, flags=(), seconds=START_S):
    """The address of a gateway that knows all workers and has their tokenizer, and the seconds that
    it took to get there."""
    port = free_port()
    command = [program, "launch", "--host", "127.0.0.1", "--port", port, "--prometheus-port",
               free_port(), "--log-level", "warn", *flags,
               "--worker-urls", *[f"grpc://127.0.0.1:{each}" for each in ports]]
    begin = time.monotonic()
    with Program(command) as gateway:
        url = f"http://127.0.0.1:{port}"
        # To list very many takes the gateway a while.
        pause_s = max(0.2, len(ports) / 500)
        while not (gateway_ready(url) == len(ports) and answers(url)):
            if gateway.process.poll() is not None:
                raise gateway.failure(f"ended with {gateway.process.returncode}")
            if time.monotonic() - begin > seconds:
                raise gateway.failure(f"has {gateway_ready(url)} of {len(ports)} workers after "
                                      f"{seconds} s")
            time.sleep(pause_s)
        yield url, time.monotonic() - begin


def answers(url):
    """Whether a request goes through."""
    try:
        model = asyncio.run(ask(url, "/workers"))["workers"][0]["model_id"]
        reply = asyncio.run(ask(url, "/v1/chat/completions", {
            "model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}))
        return bool(reply["choices"])
    except (OSError, Refused, ValueError, KeyError, asyncio.IncompleteReadError,
            json.JSONDecodeError):
        return False
