#!/usr/bin/env python3
"""Many streams at once, over HTTP: the threads and memory that they cost a server.

  bench/streams.py --server 'NAME=COMMAND' [--server ...] [--streams N] [--tokens N] MODEL

COMMAND starts a server that has OpenAI's /v1/chat/completions; {model} and {port} in it are
replaced, as in
  'weft=build/release/weft serve -m {model} --port {port} --max-connections 5000 --max-queue 3000'
Each server is started afresh for each run, alone on the machine. All connections are opened first;
then each asks for a short answer to a question of its own, as a stream, and stays open until the
last answer is complete. One in --slow-every has a small receive buffer and waits before each event
that it reads. Prints medians over the runs as a Markdown table:

  threads          of the server process, at their most
  KB a stream      growth of the server's own memory from before the first connection to when every
                   stream has begun or failed, divided by the streams
  first token      after the question was sent; of the streams that are not slow
  tokens/s         of all complete answers together, until the last of them
  errors           streams that were refused or have no complete answer; the commonest reasons are
                   told on stderr
"""
import asyncio
import collections
import json
import resource
import socket
import statistics
import sys
import time

from serving import arguments, in_turns, words
from waits import percentile

QUESTION_WORDS = 12
CONNECTING_TOGETHER = 100
SLOW_ROOM_BYTES = 2048
SLOW_PAUSE_SECONDS = 0.25
SAMPLE_SECONDS = 0.1
SPARE_DESCRIPTORS = 100


class Stream:
    """A connection, and the answer that is streamed over it."""

    def __init__(self, question, n_tokens, is_slow):
        self.body = json.dumps({"messages": [{"role": "user", "content": question}],
                                "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True,
                                "stream": True, "stream_options": {"include_usage": True}})
        self.n_tokens, self.is_slow = n_tokens, is_slow
        self.reader = self.writer = None
        self.first_s, self.begun, self.complete, self.error = None, False, False, None

    async def connect(self, port):
        connection = socket.socket()
        if self.is_slow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_ROOM_BYTES)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
        room = {"limit": SLOW_ROOM_BYTES} if self.is_slow else {}
        self.reader, self.writer = await asyncio.open_connection(sock=connection, **room)

    async def run(self):
        try:
            await self.ask()
            if not self.complete:
                self.error = "the stream ended early"
        except (OSError, ValueError, EOFError, RuntimeError) as error:
            self.error = str(error) or type(error).__name__
        self.begun = True

    async def ask(self):
        sent = time.monotonic()
        self.writer.write((f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
                           f"Content-Type: application/json\r\nContent-Length: {len(self.body)}"
                           f"\r\n\r\n{self.body}").encode("ascii"))
        status = (await self.reader.readline()).decode("ascii").split(" ", 1)[-1].strip()
        while (await self.reader.readline()).strip():
            pass
        if not status.startswith("200"):
            raise RuntimeError(f"HTTP {status}")
        self.begun = True
        async for event in self.events():
            if "error" in event:
                raise RuntimeError(str(event["error"]))
            if self.first_s is None and any(choice["delta"].get("content")
                                            for choice in event["choices"]):
                self.first_s = time.monotonic() - sent
            if event.get("usage"):
                self.complete = event["usage"]["completion_tokens"] == self.n_tokens

    async def events(self):
        """The data in the chunks of the body, event by event."""
        text = b""
        while size := int(await self.reader.readline(), 16):
            text += (await self.reader.readexactly(size + 2))[:-2]
            while b"\n" in text:
                line, text = text.split(b"\n", 1)
                if line.startswith(b"data: {"):
                    yield json.loads(line[len("data: "):])
                    if self.is_slow:
                        await asyncio.sleep(SLOW_PAUSE_SECONDS)
        await self.reader.readline()


class Watch:
    """The most threads that a server was seen with, and its memory once all streams had begun."""

    def __init__(self, server, streams):
        self.server, self.streams = server, streams
        self.threads, self.memory_begun, self.memory_most = 0, None, 0
        self.task = asyncio.create_task(self.look())

    async def look(self):
        while True:
            self.look_once()
            await asyncio.sleep(SAMPLE_SECONDS)

    def look_once(self):
        memory = self.server.own_memory()
        self.threads = max(self.threads, self.server.threads())
        self.memory_most = max(self.memory_most, memory)
        if self.memory_begun is None and all(stream.begun for stream in self.streams):
            self.memory_begun = memory

    def stop(self):
        self.task.cancel()
        self.look_once()


async def run_all(server, streams):
    """Returns the observations, and the seconds from the first request to the last answer."""
    place = asyncio.Semaphore(CONNECTING_TOGETHER)

    async def connect(stream):
        async with place:
            await stream.connect(server.port)

    await asyncio.gather(*map(connect, streams))
    watch, begin = Watch(server, streams), time.monotonic()
    await asyncio.gather(*(stream.run() for stream in streams))
    wall = time.monotonic() - begin
    watch.stop()
    for stream in streams:
        stream.writer.close()
    return watch, wall


def measure(server, run, options):
    streams = [Stream(words(10000 * run + i, QUESTION_WORDS), options.tokens,
                      options.slow_every > 0 and i % options.slow_every == 0)
               for i in range(options.streams)]
    server.post("/v1/chat/completions", json.loads(streams[0].body) | {"stream": False}).read()
    before = server.own_memory()
    watch, wall = asyncio.run(run_all(server, streams))
    errors = collections.Counter(stream.error for stream in streams if stream.error)
    for error, count in errors.most_common(3):
        print(f"streams: {count} times: {error}", file=sys.stderr)
    first = [stream.first_s for stream in streams if stream.first_s and not stream.is_slow]
    return {"threads": watch.threads,
            "per stream": 1000 * (watch.memory_begun - before) / len(streams),
            "memory": watch.memory_most,
            "p50": percentile(first, 0.5), "p99": percentile(first, 0.99),
            "max": max(first, default=float("nan")),
            "rate": options.tokens * sum(stream.complete for stream in streams) / wall,
            "wall": wall, "errors": errors.total()}


def allow_descriptors(count):
    """For this process and the servers that it starts."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < count:
        sys.exit(f"streams: a process may open {most} files here, and {count} are needed; raise "
                 "the limit (ulimit -Hn) or give fewer --streams")
    if now != resource.RLIM_INFINITY and now < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, most))


def main():
    parser = arguments(__doc__)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--tokens", type=int, default=8, help="of each answer (%(default)s)")
    parser.add_argument("--slow-every", type=int, default=10, help="0: none is slow (%(default)s)")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args()
    allow_descriptors(options.streams + SPARE_DESCRIPTORS)
    runs = in_turns("streams", options, lambda server, run: measure(server, run, options))
    print(f"| {options.streams} streams, median of {options.runs} | threads | KB a stream "
          "| own memory at its most, MB | first token, s: p50 | p99 | max | tokens/s | wall, s "
          "| errors |\n" + "|---" * 10 + "|")
    for name, results in runs.items():
        middle = {key: statistics.median(result[key] for result in results) for key in results[0]}
        print(f"| {name} | {middle['threads']:.0f} | {middle['per stream']:.0f} "
              f"| {middle['memory']:.0f} | {middle['p50']:.2f} | {middle['p99']:.2f} "
              f"| {middle['max']:.2f} | {middle['rate']:.0f} | {middle['wall']:.1f} "
              f"| {middle['errors']:.0f} |")


if __name__ == "__main__":
    main()
