#!/usr/bin/env python3
"""The SMG gateway, from its Python package, in front of three servers over gRPC.

Needs the command `smg` (or its path in $WEFT_SMG); exit code 77, a skip, where there is none:

    python3 -m venv /tmp/smg && /tmp/smg/bin/pip install smg
    export WEFT=build/release/weft WEFT_SMG=/tmp/smg/bin/smg
    python3 tests/e2e/gateway_test.py [--model FILE]

32 chats are streamed through it, eight at a time, while one of the servers is stopped and
started again, and once more, all at once, while one is drained; every text is what a server says
when it is asked directly. Then a gateway that routes by cached prefixes sees a server killed and
started again.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from weft_process import TIMEOUT_S, command_line

SKIP = 77
KEY = "gateway-test-key"
GENERATED = "gRPC /vllm.grpc.engine.VllmEngine/Generate OK"
# Texts of which servers know a part, and their words.
N_TEXTS, WORDS = 18, 60
N_CHATS = 32
AT_ONCE = 8
# Finished chats after which the second server goes, and after which it comes back.
GOES_AFTER, COMES_AFTER = 6, 16


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Process:
    """A program whose output is kept."""

    def __init__(self, command, ready, **kwargs):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, **kwargs)
        self.lines = []
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self.read, args=(ready,), daemon=True)
        self.reader.start()

    def read(self, ready):
        for line in self.process.stdout:
            self.lines.append(line)
            if ready in line:
                self.ready.set()

    def wait_until_ready(self):
        assert self.ready.wait(TIMEOUT_S), "".join(self.lines[-50:])

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join()
        return self.process.returncode


class Worker:
    """A weft server that asks for a key over HTTP, unless it is open, and for none over gRPC."""

    def __init__(self, folder, model, is_open=False):
        self.port, self.grpc_port = free_port(), free_port()
        keys = folder / "keys"
        keys.write_text(KEY + "\n")
        self.command = command_line(
            "serve", "--port", self.port, "--grpc-port", self.grpc_port, "--alias", "loom",
            "--threads", 1, "--pooling", "mean",
            *([] if is_open else ["--api-key-file", keys, "--grpc-open"]),
            *(["-m", model] if model else []))
        self.start()

    def start(self):
        self.server = Process(self.command, "gRPC server listening")
        self.server.wait_until_ready()

    def kill(self):
        self.server.process.kill()
        self.server.process.wait()
        self.server.reader.join()

    def served(self):
        """How many requests have come through the gateway."""
        return sum(GENERATED in line for line in list(self.server.lines))


def ask(port, path, body=None, headers=None, begun=lambda: None):
    """The status and the whole body of the answer; `begun` is called once it has begun."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path,
                           None if body is None else json.dumps(body),
                           {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        first = answer.readline()
        begun()
        return answer.status, (first + answer.read()).decode()


def chat(port, number, headers=None, begun=lambda: None, max_tokens=24):
    """The text and the seconds of a streamed greedy chat."""
    begin = time.monotonic()
    status, body = ask(port, "/v1/chat/completions", {
        "model": "loom", "stream": True, "temperature": 0, "max_tokens": max_tokens,
        "messages": [{"role": "user", "content": f"My name is Ada {number}. What is my name?"}],
    }, headers, begun)
    assert status == 200, (status, body)
    text = ""
    for line in body.splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                text += choice["delta"].get("content") or ""
    assert body.rstrip().endswith("data: [DONE]"), body
    return text, time.monotonic() - begin


TOOL = {"type": "function", "function": {"name": "clock", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo", "Bergen"]}}, "required": ["city"],
    "additionalProperties": False}}}
SCHEMA = {"type": "object", "properties": {"name": {"enum": ["Ada", "Bob"]}}, "required": ["name"],
          "additionalProperties": False}
# Requests that the gateway must answer as a server does, and the part of the answer to compare.
REQUESTS = {
    "stop": ({"stop": ["e"]}, lambda choice: choice["message"]["content"]),
    "n": ({"n": 3, "temperature": 1, "seed": 4}, lambda choice: choice["message"]["content"]),
    "schema": ({"max_tokens": 60, "response_format": {"type": "json_schema", "json_schema": {
        "name": "who", "strict": True, "schema": SCHEMA}}},
               lambda choice: json.loads(choice["message"]["content"])["name"] in ("Ada", "Bob")),
    "tools": ({"max_tokens": 120, "tools": [TOOL], "tool_choice": "required"},
              lambda choice: {"Oslo", "Bergen"}.issuperset(
                  json.loads(call["function"]["arguments"])["city"]
                  for call in choice["message"]["tool_calls"])),
}


def answers(port, name, headers=None):
    """What counts of each choice."""
    more, what = REQUESTS[name]
    status, body = ask(port, "/v1/chat/completions", {
        "model": "loom", "temperature": 0, "max_tokens": 24, **more,
        "messages": [{"role": "user", "content": "My name is Ada. What is my name?"}]}, headers)
    assert status == 200, (name, status, body)
    return [what(choice) for choice in json.loads(body)["choices"]]


def vector(port, headers=None):
    status, body = ask(port, "/v1/embeddings", {"model": "loom", "input": "Hello there"}, headers)
    assert status == 200, (status, body)
    return json.loads(body)["data"][0]["embedding"]


def wait_for_gateway(port, n_workers, gateway):
    """Until it knows that many healthy workers and has their tokenizer."""
    end = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end:
        try:
            status, body = ask(port, "/workers")
            if status == 200:
                workers = json.loads(body)["workers"]
                if sum(worker["is_healthy"] for worker in workers) == n_workers:
                    chat(port, "first")
                    return
        except (OSError, AssertionError):
            pass
        time.sleep(0.2)
    raise AssertionError("the gateway does not get ready:\n" + "".join(gateway.lines[-50:]))


def drain_one(port, worker, direct, headers):
    """No stream fails while a server is drained under load."""
    begun = threading.Semaphore(0)
    with concurrent.futures.ThreadPoolExecutor(N_CHATS) as pool:
        chats = [pool.submit(chat, port, number, begun=begun.release)
                 for number in range(N_CHATS)]
        for _ in range(N_CHATS // 2):
            assert begun.acquire(timeout=TIMEOUT_S)
        status, body = ask(worker.port, "/drain", {}, headers)
        assert status == 200, body
        assert [future.result()[0] for future in chats] == direct
    for number in range(4):
        assert chat(port, number)[0] == direct[number]
    status, body = ask(worker.port, "/drain", {}, headers)
    assert status == 200 and json.loads(body)["turns"] == 0, body
    status, body = ask(worker.port, "/undrain", {}, headers)
    assert status == 200, body


def begin_with(port, text, n_words):
    """A request that begins with that many words of a text."""
    words = " ".join(f"text {text} word {n}" for n in range(n_words))
    status, body = ask(port, "/v1/completions", {
        "model": "loom", "temperature": 0, "max_tokens": 1, "prompt": words})
    assert status == 200, body


def goes_to(port, text, workers):
    """The server that gets a request with the whole text."""
    before = [worker.served() for worker in workers]
    begin_with(port, text, WORDS + 1)
    give_up = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up:  # its log line follows its answer
        for worker, count in zip(workers, before):
            if worker.served() > count:
                return worker
        time.sleep(0.01)
    raise AssertionError("nobody logged the request")


def kill_one(folder, smg, model, end):
    """A gateway that routes by cached prefixes forgets those of a server that was killed."""
    # With --grpc-open, the gateway also learns what was asked without it.
    workers = [Worker(folder, model, is_open=True) for _ in range(2)]
    for worker in workers:
        end.callback(lambda worker=worker: worker.server.stop())
    port = free_port()
    gateway = launch(folder, smg, port, workers, "cache_aware",
                     "--worker-warmup-secs", "0", "--worker-warmup-divert-every", "0")
    end.callback(gateway.stop)
    wait_for_gateway(port, len(workers), gateway)
    # One knows most of each text, one some of it.
    most, some = workers
    for text in range(N_TEXTS):
        begin_with(most.port, text, WORDS)
        begin_with(some.port, text, WORDS // 2)
    # A server knows a text once it was asked for, so each is asked for once. The gateway hears of
    # cached pages with a delay, so the last text comes last.
    texts = reversed(range(N_TEXTS))

    def wait_until_one_goes_to(goal):
        got = []
        for pause in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4):
            time.sleep(pause)
            got.append(goes_to(port, next(texts), workers))
            if got[-1] is goal:
                return
        raise AssertionError(f"{[workers.index(one) for one in got]}, not "
                             f"{workers.index(goal)}:\n" + "".join(gateway.lines[-50:]))

    wait_until_one_goes_to(most)
    assert all(goes_to(port, next(texts), workers) is most for _ in range(2))
    most.kill()
    most.start()
    wait_for_gateway(port, len(workers), gateway)
    wait_until_one_goes_to(some)
    assert all(goes_to(port, next(texts), workers) is some for _ in range(3))


def launch(folder, smg, port, workers, policy, *flags):
    return Process(
        [smg, "launch", "--host", "127.0.0.1", "--port", str(port), "--policy", policy,
         "--prometheus-port", str(free_port()), "--health-check-interval-secs", "1",
         "--log-level", "debug", *flags,
         "--worker-urls", *[f"grpc://127.0.0.1:{worker.grpc_port}" for worker in workers]],
        "Starting server", cwd=folder)


def run(folder, smg, model, end):
    workers = [Worker(folder, model) for _ in range(3)]
    for worker in workers:
        end.callback(lambda worker=worker: worker.server.stop())
    direct = [chat(workers[0].port, i, {"Authorization": f"Bearer  {KEY}"})[0]
              for i in range(N_CHATS)]
    status, _ = ask(workers[0].port, "/v1/chat/completions", {"messages": []})
    assert status == 401, "HTTP still asks for a key"

    port = free_port()
    gateway = launch(folder, smg, port, workers, "round_robin")
    end.callback(gateway.stop)
    wait_for_gateway(port, len(workers), gateway)

    done = threading.Semaphore(0)

    def one(number):
        try:
            return chat(port, number)
        finally:
            done.release()

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        chats = [pool.submit(one, number) for number in range(N_CHATS)]
        for _ in range(GOES_AFTER):
            done.acquire()
        assert workers[1].server.stop() == 0, "".join(workers[1].server.lines)
        for _ in range(COMES_AFTER - GOES_AFTER):
            done.acquire()
        workers[1].start()
        outcomes = [future.result() for future in chats]
    equal = sum(text == expected for (text, _), expected in zip(outcomes, direct))
    seconds = sorted(second for _, second in outcomes)
    print(f"{equal} of {N_CHATS} texts as direct; seconds per stream: median "
          f"{seconds[N_CHATS // 2]:.2f}, longest {seconds[-1]:.2f}, "
          f"{sum(second > 5 for second in seconds)} above 5")
    for (text, _), expected in zip(outcomes, direct):
        assert text == expected, (text, expected)

    # The one that was away gets requests again, once the gateway trusts it.
    wait_for_gateway(port, len(workers), gateway)
    give_up = time.monotonic() + TIMEOUT_S
    while workers[1].served() == 0 and time.monotonic() < give_up:
        for number in range(8):
            assert chat(port, number)[0] == direct[number]
    echo = {"model": "loom", "prompt": "Hello there", "echo": True, "max_tokens": 0}
    status, body = ask(port, "/v1/completions", echo)
    assert status == 200 and json.loads(body)["choices"][0]["text"] == "Hello there", body
    assert workers[1].served() > 0, "".join(workers[1].server.lines)
    _, body = ask(port, "/workers")
    kinds = {worker.get("runtime_type") for worker in json.loads(body)["workers"]}
    assert kinds == {"vllm"}, body
    assert all("load" in worker for worker in json.loads(body)["workers"]), body
    authorization = {"Authorization": f"Bearer {KEY}"}
    for name in REQUESTS:
        assert answers(port, name) == answers(workers[0].port, name, authorization), name
    assert vector(port) == vector(workers[0].port, authorization)
    drain_one(port, workers[0], direct, authorization)
    # What it has to know of the model came with the tokenizer: it looks for it nowhere else.
    missed = [line for line in gateway.lines if "config cache miss" in line]
    assert not missed, missed[:3]
    assert gateway.stop() in (0, -signal.SIGTERM), "".join(gateway.lines[-50:])
    kill_one(folder, smg, model, end)


def documented(folder, smg, model, end):
    """The commands of docs/fleet.md, on free ports."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "fleet.md").read_text()
    block = re.search(r"^## SMG$.*?^```console\n(.*?)^```", text, re.S | re.M)[1]
    shown = re.compile(r"\b(?:80|50)\d+")
    ports = {port: str(free_port()) for port in shown.findall(block)}
    block = shown.sub(lambda found: ports[found[0]], block)
    *servers, gateway = [shlex.split(line) for line in block.splitlines()]
    assert len(servers) == 3 and gateway[0] == "smg", block
    for program, *arguments in servers:
        assert program == "weft", block
        at = arguments.index("model.gguf")
        arguments[at - 1:at + 1] = ["-m", model] if model else []
        server = Process(command_line(*arguments, "--threads", 1), "gRPC server listening")
        end.callback(server.stop)
        server.wait_until_ready()
    gateway = Process([smg, *gateway[1:], "--prometheus-port", str(free_port())],
                      "Starting server", cwd=folder)
    end.callback(gateway.stop)
    port = int(ports["8080"])
    wait_for_gateway(port, len(servers), gateway)
    assert chat(port, 1)[0] == chat(int(ports["8081"]), 1)[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default=os.environ.get("WEFT_GATEWAY_MODEL"),
                        help="a model file in place of the model in the box")
    model = parser.parse_args().model
    smg = os.environ.get("WEFT_SMG") or shutil.which("smg")
    if not smg:
        print("skipped: there is no smg; pip install smg, or say where it is in WEFT_SMG")
        return SKIP
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as end:
        run(pathlib.Path(folder), smg, model, end)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as end:
        documented(pathlib.Path(folder), smg, model, end)
    return 0


if __name__ == "__main__":
    sys.exit(main())
