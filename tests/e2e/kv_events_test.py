#!/usr/bin/env python3
"""vLLM's KV events of weft serve --kv-events, read by PyPI's pyzmq and msgspec, as routers do. They
are installed once into $WEFT_PYTHON_DIR; exit code 77, a skip, when pip cannot get them."""

import collections
import os
import pathlib
import random
import re
import signal
import socket
import sys
import time
import unittest

from python_packages import SKIP, install
from serve_test import ServeTest
from weft_process import TIMEOUT_S, weft

HERE = pathlib.Path(__file__).resolve().parent
ANYWHERE = ("--kv-events", "tcp://127.0.0.1:0")
END = b"\xff" * 8
OPERATIONS = int(os.environ.get("WEFT_OPERATIONS", 150))  # at random, with evictions


def define_events():
    """The events' fields as vLLM defines them."""
    global Batch, Stored, Removed, Cleared

    class Event(msgspec.Struct, omit_defaults=True, tag=True):
        pass

    class BlockStored(Event):
        block_hashes: list[bytes | int]
        parent_block_hash: bytes | int | None
        token_ids: list[int]
        block_size: int
        lora_id: int | None
        medium: str | None
        lora_name: str | None
        extra_keys: list | None = None
        group_idx: int | None = None

    class BlockRemoved(Event):
        block_hashes: list[bytes | int]
        medium: str | None
        group_idx: int | None = None

    class AllBlocksCleared(Event):
        pass

    class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True):
        ts: float
        events: list[BlockStored | BlockRemoved | AllBlocksCleared]
        data_parallel_rank: int | None = None

    Stored, Removed, Cleared = BlockStored, BlockRemoved, AllBlocksCleared
    Batch = msgspec.msgpack.Decoder(KVEventBatch)


class Router:
    """What a router knows after the batches that it has read."""

    def __init__(self):
        self.pages = {}  # (hash, medium) -> (parent, tokens)
        self.last = None
        self.removed = 0  # pages

    def read(self, number, payload):
        number = int.from_bytes(number, "big")
        batch = Batch.decode(payload)
        begins = batch.events and isinstance(batch.events[0], Cleared)
        assert begins or number == self.last + 1, (number, self.last)
        self.last = number
        for event in batch.events:
            if isinstance(event, Cleared):
                self.pages.clear()
            elif isinstance(event, Stored):
                parent, size = event.parent_block_hash, event.block_size
                assert len(event.token_ids) == size * len(event.block_hashes), event
                assert parent is None or (parent, event.medium) in self.pages, event
                for i, page in enumerate(event.block_hashes):
                    assert (page, event.medium) not in self.pages, event
                    tokens = event.token_ids[i * size:(i + 1) * size]
                    self.pages[page, event.medium] = parent, tuple(tokens)
                    parent = page
            else:
                self.removed += len(event.block_hashes)
                for page in event.block_hashes:
                    del self.pages[page, event.medium]

    def known(self, tokens):
        """How many of the first tokens it believes to be cached."""
        children = collections.defaultdict(dict)
        for (page, _), (parent, of_page) in self.pages.items():
            children[parent][of_page] = page
        at, n = None, 0
        while True:
            found = [page for page in children[at] if tuple(tokens[n:n + len(page)]) == page]
            if not found:
                return n
            at, n = children[at][found[0]], n + len(found[0])


class KvEventsTest(ServeTest):
    def setUp(self):
        self.zmq = zmq.Context()
        self.addCleanup(self.zmq.destroy, linger=0)

    def ports(self, server):
        server.ready()
        said = r"KV events are published on port (\d+) as (\S+), and again on port (\d+)"
        server.until(lambda: re.search(said, server.log), "no port of KV events in the log")
        return re.search(said, server.log).groups()

    def socket(self, kind, port, **options):
        client = self.zmq.socket(kind)
        client.setsockopt(zmq.RCVTIMEO, TIMEOUT_S * 1000)
        for name, value in options.items():
            client.setsockopt(getattr(zmq, name), value)
        client.connect(f"tcp://127.0.0.1:{port}")
        return client

    def subscribe(self, port, topic=b"", **options):
        return self.socket(zmq.SUB, port, SUBSCRIBE=topic, **options)

    def read_until(self, client, router, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, (router.pages, router.last)
            topic, number, payload = client.recv_multipart()
            self.topics = getattr(self, "topics", set()) | {topic.decode()}
            router.read(number, payload)

    def tokens(self, n, seed):
        return [5 + (31 * seed + 3 * k) % 200 for k in range(n)]

    def complete(self, server, tokens, **headers):
        body = {"prompt": tokens, "max_tokens": 1, "temperature": 0}
        answer = server.ask("POST", "/v1/completions", body, **headers)
        self.assertEqual(answer.status, 200, answer)
        return answer.json["usage"]["prompt_tokens_details"]["cached_tokens"]

    def replayed(self, port, start, kind=None):
        """What a router knows that asks for all batches from `start` on, and its last number."""
        client = self.socket(kind or zmq.DEALER, port)
        ask = [start.to_bytes(8, "big")]
        client.send_multipart(ask if kind == zmq.REQ else [b"", *ask])
        batches = []
        while True:
            *_, number, payload = client.recv_multipart()
            if number == END:
                self.assertEqual(payload, b"")
                return batches
            batches.append((number, payload))
            if kind == zmq.REQ:
                return batches  # it can take one answer only

    def test_a_router_follows_the_prefix_cache(self):
        with self.serve(*ANYWHERE, "--alias", "loom") as server:
            port, topic, replay = self.ports(server)
            self.assertEqual(topic, f"kv@127.0.0.1:{server.port}@loom")
            prompts = [self.tokens(150, i) for i in range(4)]
            self.complete(server, prompts[0])
            router, client = Router(), self.subscribe(port, b"kv@")
            # A router that connects late learns which prefixes were cached before.
            self.read_until(client, router, lambda: router.known(prompts[0]) > 100)
            for prompt in prompts[1:]:
                self.complete(server, prompt)
                self.read_until(client, router, lambda p=prompt: router.known(p) > 100)
            self.assertEqual(self.topics, {topic})
            # A request finds that, and perhaps a part of one more page.
            known = router.known(prompts[2])
            page = max(len(tokens) for _, tokens in router.pages.values())
            self.assertIn(self.complete(server, prompts[2]) - known, range(page))

            late = Router()
            self.read_until(self.subscribe(port), late, lambda: late.last is not None)
            self.read_until(client, router, lambda: router.last >= late.last)
            self.assertEqual(late.pages, router.pages)
            again = Router()
            for number, payload in self.replayed(int(replay), 0):
                again.read(number, payload)
            self.assertEqual((again.pages, again.last), (router.pages, router.last))
            self.assertEqual(self.replayed(int(replay), router.last + 1), [])
            [(number, _)] = self.replayed(int(replay), 1, zmq.REQ)
            self.assertEqual(number, (1).to_bytes(8, "big"))

    def test_what_is_evicted_is_told(self):
        with self.serve(*ANYWHERE, "--memory", "2M", "--state-dir", self.dir / "evicts") as server:
            port, _, _ = self.ports(server)
            router, client = Router(), self.subscribe(port)
            chance = random.Random(5)
            trunks = [self.tokens(200, i) for i in range(6)]
            for i in range(OPERATIONS):
                trunk = chance.choice(trunks)
                prompt = trunk[:chance.randrange(60, 200)] + self.tokens(
                    chance.randrange(1, 90), 50 + i)
                name = chance.choice([{}, {"session_id": f"s{chance.randrange(6)}"}])
                server.ask("POST", "/v1/completions",
                           {"prompt": prompt, "max_tokens": 2, "temperature": 0, **name})
                if chance.randrange(10) == 0:
                    server.ask("DELETE", f"/v1/sessions/s{chance.randrange(6)}")
            # A new subscriber is told what there is; sooner or later the first one knows it, too.
            def same():
                now = Router()
                self.read_until(self.subscribe(port), now, lambda: now.last is not None)
                self.read_until(client, router, lambda: (router.last or 0) >= now.last)
                return router.last == now.last and router.pages == now.pages
            server.until(same, "the first subscriber knows something else")
            self.assertGreater(router.removed, 20)

    def test_one_that_reads_slowly_misses_nothing(self):
        with self.serve(*ANYWHERE) as server:
            port, _, _ = self.ports(server)
            lazy, behind = self.subscribe(port, RCVHWM=1, RCVBUF=1 << 14), Router()
            self.read_until(lazy, behind, lambda: behind.last is not None)
            router, client = Router(), self.subscribe(port)
            # Numbers above 255 take three bytes each.
            for i in range(40):
                prompt = [5 + i, *(token + 255 for token in self.tokens(1000, i))]
                self.complete(server, prompt)
            self.read_until(client, router, lambda: router.known(prompt) > 900)
            self.read_until(lazy, behind, lambda: behind.last >= router.last)
            self.read_until(client, router, lambda: router.last >= behind.last)
            self.assertEqual(behind.pages, router.pages)

    def test_with_keys_only_those_of_the_named_one_are_told(self):
        keys = self.dir / "keys"
        keys.write_text("one-key router\ntwo-key other\n")
        with self.serve(*ANYWHERE, "--api-key-file", keys, "--kv-events-key", "router",
                        "--kv-events-topic", "loom") as server:
            port, topic, _ = self.ports(server)
            self.assertEqual(topic, "loom")
            own, foreign = self.tokens(150, 1), self.tokens(150, 2)
            self.complete(server, foreign, Authorization="Bearer two-key")
            self.complete(server, own, Authorization="Bearer one-key")
            router, client = Router(), self.subscribe(port)
            self.read_until(client, router, lambda: router.known(own) > 100)
            self.assertEqual(router.known(foreign), 0)
            pages = {tokens for _, tokens in router.pages.values()}
            self.assertFalse([page for page in pages if set(page) <= set(foreign) - set(own)])

            # A new key under the name has prefixes of its own; without one, nothing is told.
            keys.write_text("three-key router\ntwo-key other\n")
            server.process.send_signal(signal.SIGHUP)
            self.read_until(client, router, lambda: not router.pages)
            self.complete(server, own, Authorization="Bearer three-key")
            self.read_until(client, router, lambda: router.known(own) > 100)
            keys.write_text("three-key\ntwo-key other\n")
            server.process.send_signal(signal.SIGHUP)
            self.read_until(client, router, lambda: not router.pages)
            server.until(lambda: "KV events end: no API key has the name router" in server.log,
                         "nobody says why")

    def test_strangers_are_refused(self):
        with self.serve(*ANYWHERE) as server:
            port, _, replay = self.ports(server)
            for at in (int(port), int(replay)):
                for said in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" + b"\0" * 200):
                    with socket.create_connection(("127.0.0.1", at), timeout=TIMEOUT_S) as raw:
                        raw.sendall(said)
                        while raw.recv(4096):
                            pass
            server.until(lambda: "the client speaks no ZMTP" in server.log, "nobody says why")
            # A request without a number is none.
            client = self.socket(zmq.DEALER, replay)
            monitor = client.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            client.send_multipart([b"", b"now"])
            self.assertTrue(monitor.poll(TIMEOUT_S * 1000), "it is served")
            client.disable_monitor()
            self.assertTrue(self.replayed(int(replay), 0))
            router, client = Router(), self.subscribe(port)
            self.complete(server, self.tokens(100, 3))
            self.read_until(client, router, lambda: router.known(self.tokens(100, 3)) > 60)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(TIMEOUT_S), 0, server.log)

    def test_refused_flags_say_what_to_do(self):
        keys = self.dir / "two-keys"
        keys.write_text("one-key router\ntwo-key\n")
        events = ("--kv-events", "tcp://127.0.0.1:5557")
        for flags, says in (
                (("--kv-events", "5557"), "tcp://127.0.0.1:5557"),
                (("--kv-events", "tcp://127.0.0.1:65535"), "--kv-events-replay"),
                (("--kv-events", "tcp://*:5557"), "--kv-events-open"),
                (("--kv-events", "tcp://192.0.2.1:5557"), "--kv-events-open"),
                ((*events, "--api-key-file", keys), "--kv-events-key"),
                ((*events, "--api-key-file", keys, "--kv-events-key", "rooter"), "rooter"),
                ((*events, "--api-key-file", keys, "--kv-events-key", "router",
                  "--share-prefixes"), "--share-prefixes"),
                ((*events, "--kv-events-key", "router"), "--api-key-file"),
                ((*events, "--host", "0.0.0.0"), "--kv-events-topic"),
                ((*events, "--alias", "a@b"), "--kv-events-topic"),
                ((*events, "-m", self.model), "one model")):
            result = weft("serve", "-m", self.model, "--port", 0, *flags)
            self.assertEqual(result.code, 1, result)
            self.assertIn(says, result.err)


if __name__ == "__main__":
    if not install(HERE / "kv_events_requirements.txt", os.environ["WEFT_PYTHON_DIR"]):
        sys.exit(SKIP)
    import msgspec
    import zmq
    define_events()
    unittest.main()
