#!/usr/bin/env python3
"""The SMG gateway, from its Python package, in front of two servers over gRPC.

Needs the command `smg` (or its path in $WEFT_SMG); exit code 77, a skip, where there is none:

    python3 -m venv /tmp/smg && /tmp/smg/bin/pip install smg
    export WEFT=build/release/weft WEFT_SMG=/tmp/smg/bin/smg
    python3 tests/e2e/gateway_test.py [--model FILE]

32 chats are streamed through it, eight at a time, while one of the servers is stopped and
started again; every text is what a server says when it is asked directly.
"""

import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
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
    """A weft server that asks for a key over HTTP and for none over gRPC."""

    def __init__(self, folder, model):
        self.port, self.grpc_port = free_port(), free_port()
        keys = folder / "keys"
        keys.write_text(KEY + "\n")
        self.command = command_line(
            "serve", "--port", self.port, "--grpc-port", self.grpc_port, "--api-key-file", keys,
            "--grpc-open", "--alias", "loom", "--threads", 1, *(["-m", model] if model else []))
        self.start()

    def start(self):
        self.server = Process(self.command, "gRPC server listening")
        self.server.wait_until_ready()


def ask(port, path, body=None, headers=None):
    """The status and the whole body of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("GET" if body is None else "POST", path,
                           None if body is None else json.dumps(body),
                           {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def chat(port, number, headers=None):
    """The text and the seconds of a streamed greedy chat."""
    begin = time.monotonic()
    status, body = ask(port, "/v1/chat/completions", {
        "model": "loom", "stream": True, "temperature": 0, "max_tokens": 24,
        "messages": [{"role": "user", "content": f"My name is Ada {number}. What is my name?"}],
    }, headers)
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


def run(folder, smg, model, end):
    workers = [Worker(folder, model) for _ in range(2)]
    for worker in workers:
        end.callback(lambda worker=worker: worker.server.stop())
    direct = [chat(workers[0].port, i, {"Authorization": f"Bearer  {KEY}"})[0]
              for i in range(N_CHATS)]
    status, _ = ask(workers[0].port, "/v1/chat/completions", {"messages": []})
    assert status == 401, "HTTP still asks for a key"

    port = free_port()
    gateway = Process(
        [smg, "launch", "--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin",
         "--prometheus-port", str(free_port()), "--health-check-interval-secs", "1",
         "--log-level", "debug",
         "--worker-urls", *[f"grpc://127.0.0.1:{worker.grpc_port}" for worker in workers]],
        "Starting server", cwd=folder)
    end.callback(gateway.stop)
    wait_for_gateway(port, 2, gateway)

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
    wait_for_gateway(port, 2, gateway)
    served = "gRPC /mlx.grpc.engine.MlxEngine/Generate OK"
    give_up = time.monotonic() + TIMEOUT_S
    while served not in "".join(workers[1].server.lines) and time.monotonic() < give_up:
        for number in range(8):
            assert chat(port, number)[0] == direct[number]
    echo = {"model": "loom", "prompt": "Hello there", "echo": True, "max_tokens": 0}
    status, body = ask(port, "/v1/completions", echo)
    assert status == 200 and json.loads(body)["choices"][0]["text"] == "Hello there", body
    lines = "".join(workers[1].server.lines)
    assert served in lines, lines
    # What it has to know of the model came with the tokenizer: it looks for it nowhere else.
    missed = [line for line in gateway.lines if "config cache miss" in line]
    assert not missed, missed[:3]


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
    return 0


if __name__ == "__main__":
    sys.exit(main())
