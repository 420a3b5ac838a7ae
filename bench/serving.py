"""Servers as the benchmarks start them: a process for a while, and requests to it."""
import argparse
import contextlib
import http.client
import json
import os
import pathlib
import platform
import random
import shlex
import signal
import socket
import subprocess
import sys
import time

VOCABULARY = ("river lamp seven quiet table under north paper engine slow orange window "
              "carry between little harbour evening letter").split()
STARTUP_SECONDS = 300


def named_command(text):
    name, is_one, command = text.partition("=")
    if not is_one:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=COMMAND")
    return name, command


def arguments(doc, several=False, reports=False):
    """A parser of what every benchmark takes: the model, or several in options.models, and servers in
    options.servers. One that `reports` has a Report of options.out."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    if several:
        parser.add_argument("models", metavar="MODEL", nargs="+")
    else:
        parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--server", dest="servers", action="append", required=True,
                        type=named_command, metavar="NAME=COMMAND")
    if reports:
        parser.add_argument("--out", metavar="FILE", help="append the results to it")
    return parser


def chosen(parser, names, known, what):
    """The parts of a list between commas; ends with an error where one is not known."""
    names = names.split(",")
    for name in names:
        if name not in known:
            parser.error(f"no {what} is called {name}; there are {', '.join(known)}")
    return names


def in_turns(what, options, measure):
    """By server, what measure(server, run) gives in each run. The servers take turns, each started
    afresh."""
    results = {name: [] for name, _ in options.servers}
    for run in range(1, options.runs + 1):
        for name, command in dict(options.servers).items():
            print(f"{what}: {name}: run {run} of {options.runs}", file=sys.stderr)
            with Server(command, model=options.model) as server:
                results[name].append(measure(server, run))
    return results


def words(seed, count):
    generator = random.Random(seed)
    return " ".join(generator.choice(VOCABULARY) for _ in range(count))


def events(lines):
    """The events of a stream as they come: what follows "data: " in each line, if it is JSON."""
    for line in lines:
        if line.startswith(b"data: {"):
            yield json.loads(line[len("data: "):])


def status_of(pid):
    """What the system says of a process, by the names in /proc/PID/status."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return {name: value.strip() for name, value in (line.split(":", 1) for line in status)}


class Server:
    """A server process for the time of a `with`. `places` is put for {model} and the like."""

    def __init__(self, command, **places):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.command = shlex.split(command)
        for name, value in {"port": self.port, **places}.items():
            self.command = [part.replace(f"{{{name}}}", str(value)) for part in self.command]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + STARTUP_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                sys.exit(f"bench: {shlex.join(self.command)} ended with {self.process.returncode}")
            try:
                if self.get("/health")[0] == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.1)
        self.process.kill()
        sys.exit(f"bench: {shlex.join(self.command)} was not ready after {STARTUP_SECONDS} s")

    def kill(self):
        """As a crash: nothing is saved."""
        self.process.kill()
        self.process.wait()

    def __exit__(self, *unused):
        self.stop()

    def stop(self):
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read()

    def get_stream(self, path):
        """A reply whose lines are to be read as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        connection.request("GET", path)
        return connection.getresponse()

    def post(self, path, body, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        connection.request("POST", path, json.dumps(body),
                           {"Content-Type": "application/json", **(headers or {})})
        return connection.getresponse()

    def tokens_of(self, text):
        return json.loads(self.post("/tokenize", {"content": text}).read())["tokens"]

    def status(self):
        return status_of(self.process.pid)

    def own_memory(self):
        """The memory that the server holds now beside the mapped file, in MB."""
        return int(self.status()["RssAnon"].split()[0]) / 1000

    def threads(self):
        return int(self.status()["Threads"])


def machine():
    with contextlib.suppress(OSError, StopIteration):
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            name = next(line.split(":", 1)[1].strip() for line in info if line.startswith("model name"))
            return f"{name}, {len(os.sched_getaffinity(0))} cores"
    return platform.platform()


def commit():
    done = subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), "rev-parse", "--short",
                           "HEAD"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


class Report:
    """Prints lines, and appends them to the file of --out."""

    def __init__(self, path):
        self.path = path
        if path:
            at = next(i for i, word in enumerate(sys.argv) if word.startswith("--out"))
            left_out = 1 if "=" in sys.argv[at] else 2
            command = shlex.join(sys.argv[:at] + sys.argv[at + left_out:])
            self.write(f"\n{machine()}; commit {commit()}; `{command}`", to_file_only=True)

    def write(self, line, to_file_only=False):
        if not to_file_only:
            print(line, flush=True)
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def table(self, what, head, rows):
        self.write(f"\n| {what} | " + " | ".join(head) + " |")
        self.write("|---" * (1 + len(head)) + "|")
        for name, cells in rows:
            self.write(f"| {name} | " + " | ".join(cells) + " |")
