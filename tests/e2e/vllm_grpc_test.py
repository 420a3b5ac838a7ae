#!/usr/bin/env python3
"""vllm.grpc.engine.VllmEngine of weft serve --grpc-port, asked by Debian's python3-grpcio."""

import collections
import json
import pathlib
import random
import re
import signal
import tempfile
import time
import unittest
import urllib.request

import grpc_test
from weft_process import TIMEOUT_S, make_model, weft

grpc = grpc_test.grpc
SERVICE = "vllm.grpc.engine.VllmEngine"
PROMPT = "the weft travels"
TWO_KEYS = "one-key\ntwo-key\n"


def key(name):
    return [("x-api-key", name)]


class Reader:
    """What a router knows after the batches of a subscription."""

    def __init__(self):
        self.pages = {}  # (hash, tier) -> (parent, tokens)
        self.sequence = None
        self.batches = 0
        self.heartbeats = 0
        self.heard = 0  # when the last batch was sent

    def read(self, batch):
        assert batch.HasField("load"), batch
        self.heard = batch.timestamp
        if batch.load.load_only:
            assert batch.sequence_number == self.sequence and not batch.events, batch
            self.heartbeats += 1
            return
        assert self.sequence is None or batch.sequence_number == self.sequence + 1, batch
        self.sequence = batch.sequence_number
        self.batches += 1
        for event in batch.events:
            kind = event.WhichOneof("data")
            if kind == "cleared":
                self.pages.clear()
            elif kind == "stored":
                parent, tier = event.stored.parent_block_hash, event.stored.tier
                assert not parent or (parent, tier) in self.pages, batch
                for block in event.stored.blocks:
                    assert len(block.token_ids) == block.block_size, block
                    self.pages[block.block_hash, event.stored.tier] = (
                        parent, list(block.token_ids))
                    parent = block.block_hash
            else:
                for block in event.removed.block_hashes:
                    del self.pages[block, event.removed.tier]
                gone = set(event.removed.block_hashes)
                assert not any(parent in gone and tier == event.removed.tier
                               for (_, tier), (parent, _) in self.pages.items()), batch

    def known(self, tokens):
        """How many of the first tokens a router believes to be cached."""
        children = collections.defaultdict(dict)
        for (block, _), (parent, page) in self.pages.items():
            children[parent][tuple(page)] = block
        at, n = 0, 0
        while True:
            found = [page for page in children[at] if tuple(tokens[n:n + len(page)]) == page]
            if not found:
                return n
            at, n = children[at][found[0]], n + len(found[0])


@unittest.skipIf(grpc is None, "python3-grpcio and python3-protobuf are not installed")
class VllmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        grpc_test.generate_messages(cls.dir)
        import common_pb2
        import vllm_engine_pb2
        cls.pb, cls.common = vllm_engine_pb2, common_pb2
        cls.model = make_model(cls.dir / "llama.gguf")
        cls.server = grpc_test.Server(cls.model, "--alias", "loom", "--threads", 1)
        run = weft("run", "-m", cls.model, "--raw", "--temp", "0", "-n", "12", "--json",
                   PROMPT).json
        cls.expected = run["tokens"]
        cls.prompt = weft("tokenize", "-m", cls.model, "--add-bos", "--json", PROMPT).json["tokens"]

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, "".join(cls.server.log)

    def ask(self, name, request, response, server=None, metadata=None):
        call = (server or self.server).channel.unary_unary(
            f"/{SERVICE}/{name}", request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString)
        return call(request, timeout=TIMEOUT_S, metadata=metadata)

    def stream(self, name, request, response, server=None, metadata=None):
        call = (server or self.server).channel.unary_stream(
            f"/{SERVICE}/{name}", request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString)
        # A subscription has no end.
        timeout = None if name == "SubscribeKvEvents" else TIMEOUT_S
        return call(request, timeout=timeout, metadata=metadata)

    def request(self, ids=None, **kwargs):
        params = dict(temperature=0, max_tokens=12)
        params.update(kwargs.pop("sampling", {}))
        return self.pb.GenerateRequest(
            tokenized=self.pb.TokenizedInput(input_ids=self.prompt if ids is None else ids),
            sampling_params=self.pb.SamplingParams(**params), **kwargs)

    def generate(self, request, server=None, metadata=None):
        return self.stream("Generate", request, self.pb.GenerateResponse, server, metadata)

    def whole(self, server=None, metadata=None, **kwargs):
        return [answer.complete
                for answer in self.generate(self.request(**kwargs), server, metadata)]

    def refusal(self, call):
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        return caught.exception.code(), caught.exception.details()

    def text(self, ids):
        return weft("detokenize", "-m", self.model, *ids).text.removesuffix("\n")

    def tokens(self, n, seed):
        info = self.ask("GetModelInfo", self.pb.GetModelInfoRequest(),
                        self.pb.GetModelInfoResponse)
        return [5 + (31 * seed + 3 * k) % (info.vocab_size - 10) for k in range(n)]

    def test_greedy_is_what_run_says(self):
        answers = list(self.generate(self.request(stream=True, request_id="a")))
        self.assertEqual([list(answer.chunk.token_ids) for answer in answers[:-1]],
                         [[token] for token in self.expected])
        complete = answers[-1].complete
        self.assertEqual((complete.finish_reason, complete.completion_tokens), ("length", 12))
        self.assertIsNone(complete.WhichOneof("matched_stop"))
        [complete] = self.whole()
        self.assertEqual(list(complete.output_ids), self.expected)
        self.assertGreater(complete.cached_tokens, 0)

    def test_several_choices(self):
        sampling = {"n": 3, "temperature": 1, "seed": 5, "ignore_eos": True}
        whole = sorted(self.whole(sampling=sampling), key=lambda complete: complete.index)
        self.assertEqual([complete.index for complete in whole], [0, 1, 2])
        self.assertGreater(len({tuple(complete.output_ids) for complete in whole}), 1)
        streamed = collections.defaultdict(list)
        for answer in self.generate(self.request(stream=True, sampling=sampling)):
            if answer.HasField("chunk"):
                streamed[answer.chunk.index] += answer.chunk.token_ids
        self.assertEqual([streamed[i] for i in range(3)],
                         [list(complete.output_ids) for complete in whole])

    def test_stops(self):
        # Whatever the weights would say.
        [complete] = self.whole(sampling={"stop": ["dab"], "regex": "(abcd){9}", "max_tokens": 40})
        self.assertEqual((complete.finish_reason, complete.matched_stop_str), ("stop", "dab"))
        self.assertIn("abcdab", self.text(complete.output_ids))
        [complete] = self.whole(sampling={"stop_token_ids": [self.expected[2]]})
        self.assertEqual((complete.finish_reason, complete.matched_token_id),
                         ("stop", self.expected[2]))
        [complete] = self.whole(sampling={"stop_token_ids": [self.expected[2]], "min_tokens": 6})
        self.assertGreaterEqual(complete.completion_tokens, 6)

    def test_log_probabilities(self):
        [complete] = self.whole(sampling={"logprobs": 2, "prompt_logprobs": 1})
        output, prompt = complete.output_logprobs, complete.input_logprobs
        self.assertEqual(list(output.token_ids), self.expected)
        self.assertEqual({len(top.values) for top in output.top_logprobs}, {2})
        self.assertEqual(list(prompt.token_ids), self.prompt)
        self.assertEqual([token.HasField("value") for token in prompt.token_logprobs],
                         [False] + [True] * (len(self.prompt) - 1))
        self.assertEqual([len(top.values) for top in prompt.top_logprobs],
                         [0] + [1] * (len(self.prompt) - 1))
        answers = list(self.generate(self.request(
            stream=True, sampling={"logprobs": 0, "prompt_logprobs": 0})))
        self.assertEqual([answer.chunk.HasField("input_logprobs") for answer in answers[:-1]],
                         [True] + [False] * 11)
        self.assertEqual(list(answers[0].chunk.output_logprobs.top_logprobs), [])

    def test_constraints(self):
        schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}},
                  "required": ["n"], "additionalProperties": False}
        tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
            {"type": "const_string", "value": "<n>"}, {"type": "regex", "pattern": "[0-9]{2}"},
            {"type": "const_string", "value": "</n>"}]}}
        cases = {
            "json_schema": (json.dumps(schema), lambda text: set(json.loads(text)) == {"n"}),
            "json_object": (True, lambda text: isinstance(json.loads(text), dict)),
            "regex": ("[ab]{4}", lambda text: len(text) == 4 and set(text) <= {"a", "b"}),
            "grammar": ('root ::= "yes" | "no"', lambda text: text in ("yes", "no")),
            "choice": (self.pb.ChoiceConstraint(choices=["red", "blue"]),
                       lambda text: text in ("red", "blue")),
            "structural_tag": (json.dumps(tag),
                               lambda text: text[:3] == "<n>" and text[3:5].isdigit()),
        }
        for name, (value, fits) in cases.items():
            sampling = {name: value, "max_tokens": 300, "temperature": 1, "seed": 3}
            [complete] = self.whole(sampling=sampling)
            text = self.text([token for token in complete.output_ids
                              if token != complete.matched_token_id])
            if complete.finish_reason == "stop":
                self.assertTrue(fits(text), (name, text))
            else:
                self.assertEqual(name, "json_object", text)
        for name, value, says in (("json_schema", "{", "json_schema"), ("regex", "(", "regex"),
                                  ("structural_tag", '{"format": {"type": "magic"}}', "magic")):
            code, details = self.refusal(self.generate(self.request(sampling={name: value})))
            self.assertIn(code, (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED))
            self.assertIn(says, details)

    def test_what_is_not_offered_is_refused_by_name(self):
        pb, Code = self.pb, grpc.StatusCode
        for request, code, says in (
                (self.request(mm_inputs=pb.MultimodalInputs()), Code.UNIMPLEMENTED, "mm_inputs"),
                (self.request(media_refs=pb.MediaRefs()), Code.UNIMPLEMENTED, "media_refs"),
                (self.request(kv_transfer_params_json="{}"), Code.UNIMPLEMENTED, "kv_transfer"),
                (self.request(data_parallel_rank=1), Code.INVALID_ARGUMENT, "data_parallel_rank"),
                (pb.GenerateRequest(text="hello"), Code.INVALID_ARGUMENT, "input_ids"),
                (self.request(sampling={"logprobs": -1}), Code.INVALID_ARGUMENT, "logprobs"),
                (self.request(sampling={"regex": "a", "min_tokens": 2}), Code.INVALID_ARGUMENT,
                 "min_tokens"),
                (self.request(sampling={"truncate_prompt_tokens": 0}), Code.INVALID_ARGUMENT,
                 "truncate_prompt_tokens")):
            self.assertEqual(self.refusal(self.generate(request))[0], code, says)
            self.assertIn(says, self.refusal(self.generate(request))[1])
        with self.assertRaises(grpc.RpcError) as caught:
            self.ask("StartProfile", self.common.StartProfileRequest(), self.common.ProfileResponse)
        self.assertEqual(caught.exception.code(), Code.UNIMPLEMENTED)
        self.assertIn("StartProfile", caught.exception.details())

    def test_truncation_keeps_the_end(self):
        [complete] = self.whole(sampling={"truncate_prompt_tokens": 4})
        self.assertEqual(complete.prompt_tokens, 4)
        [same] = self.whole(ids=self.prompt[-4:])
        self.assertEqual(list(same.output_ids), list(complete.output_ids))

    def test_information(self):
        self.assertTrue(self.ask("HealthCheck", self.pb.HealthCheckRequest(),
                                 self.pb.HealthCheckResponse).healthy)
        info = self.ask("GetModelInfo", self.pb.GetModelInfoRequest(),
                        self.pb.GetModelInfoResponse)
        self.assertEqual(info.served_model_name, "loom")
        self.assertTrue(info.is_generation)
        self.assertIsInstance(json.loads(info.default_sampling_params_json), dict)
        server = self.ask("GetServerInfo", self.pb.GetServerInfoRequest(),
                          self.pb.GetServerInfoResponse)
        self.assertEqual((server.server_type, server.data_parallel_size), ("vllm-grpc", 1))
        self.assertGreater(server.block_size, 0)
        loads = self.ask("GetLoads", self.pb.GetLoadsRequest(), self.pb.GetLoadsResponse)
        self.assertEqual(len(loads.loads), 1)
        with self.assertRaises(grpc.RpcError) as caught:
            self.ask("GetLoads", self.pb.GetLoadsRequest(dp_rank=1), self.pb.GetLoadsResponse)
        self.assertIn("dp_rank 1", caught.exception.details())
        self.assertEqual(loads.loads[0].max_running_requests, server.max_num_seqs)
        self.assertGreater(loads.loads[0].max_total_num_tokens, 0)
        chunks = list(self.stream("GetTokenizer", self.common.GetTokenizerRequest(),
                                  self.common.GetTokenizerChunk))
        self.assertEqual(len(chunks[-1].sha256), 64)

    def test_abort(self):
        server = grpc_test.Server(self.model, *grpc_test.ROOM)
        self.addCleanup(server.stop)
        running = self.generate(self.request(request_id="long", stream=True,
                                             sampling=grpc_test.ENDLESS), server)
        next(running)
        self.ask("Abort", self.pb.AbortRequest(request_ids=["long", "unknown"]),
                 self.pb.AbortResponse, server)
        self.assertFalse(any(answer.HasField("complete") for answer in running))

    def test_embeddings(self):
        code, details = None, None
        try:
            self.ask("Embed", self.pb.EmbedRequest(tokenized=self.pb.TokenizedInput(
                input_ids=self.prompt)), self.pb.EmbedResponse)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("gives no embeddings", details)

        server = grpc_test.Server(self.model, "--pooling", "mean")
        self.addCleanup(server.stop)
        vector = self.ask("Embed", self.pb.EmbedRequest(tokenized=self.pb.TokenizedInput(
            input_ids=self.prompt)), self.pb.EmbedResponse, server)
        direct = self.post(server, "/v1/embeddings", {"input": self.prompt})["data"][0]["embedding"]
        self.assertEqual(vector.embedding_dim, len(direct))
        self.assertEqual(vector.prompt_tokens, len(self.prompt))
        for got, expected in zip(vector.embedding, direct):
            self.assertAlmostEqual(got, expected, places=6)

    def post(self, server, path, body, **headers):
        port = re.search(r"http://127\.0\.0\.1:(\d+)", "".join(server.log))[1]
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
            {"Content-Type": "application/json",
             **{name.replace("_", "-"): value for name, value in headers.items()}})
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def subscribe(self, server, metadata=None, start=0):
        return self.stream("SubscribeKvEvents",
                           self.common.SubscribeKvEventsRequest(start_sequence_number=start),
                           self.common.KvEventBatch, server, metadata)

    def read_until(self, batches, reader, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, (reader.pages, reader.sequence)
            reader.read(next(batches))

    def test_a_router_follows_the_prefix_cache(self):
        server = grpc_test.Server(self.model, "--threads", 1, "--state-dir", self.dir / "state")
        self.addCleanup(server.stop)
        prompts = [self.tokens(150, i) for i in range(3)]
        self.whole(server, ids=prompts[0])
        batches = self.subscribe(server, start=41)
        first = next(batches)
        self.assertEqual(first.sequence_number, 42)
        self.assertEqual((first.snapshot.index, first.snapshot.count), (0, 1))
        self.assertEqual(first.events[0].WhichOneof("data"), "cleared")
        reader = Reader()
        reader.read(first)
        page = self.ask("GetServerInfo", self.pb.GetServerInfoRequest(),
                        self.pb.GetServerInfoResponse, server).block_size
        whole = 150 // page * page
        self.read_until(batches, reader, lambda: reader.known(prompts[0]) == whole)
        self.assertEqual(reader.known(prompts[1]), 0)

        self.whole(server, ids=prompts[1])
        self.read_until(batches, reader, lambda: reader.known(prompts[1]) == whole)
        # A request finds as much as a router expects.
        for prompt in prompts:
            longer = prompt + [6]
            known = reader.known(longer)
            [complete] = self.whole(server, ids=longer)
            self.assertGreaterEqual(complete.cached_tokens, known)
        heartbeats = reader.heartbeats
        self.read_until(batches, reader, lambda: reader.heartbeats > heartbeats)

        flushed = self.ask("FlushCache", self.common.FlushCacheRequest(),
                           self.common.FlushCacheResponse, server)
        self.assertTrue(flushed.success)
        memory = self.common.KV_CACHE_TIER_DEVICE
        self.read_until(batches, reader,
                        lambda: not any(tier == memory for _, tier in reader.pages))
        batches.cancel()

    def test_no_key_learns_the_others_tokens(self):
        keys = self.dir / "two_keys"
        keys.write_text(TWO_KEYS)
        server = grpc_test.Server(self.model, "--threads", 1, "--api-key-file", keys)
        self.addCleanup(server.stop)
        prompt = self.tokens(100, 0)
        self.whole(server, key("one-key"), ids=prompt)
        for name in ("one-key", "two-key"):
            batches = self.subscribe(server, key(name))
            reader = Reader()
            if name == "one-key":
                self.read_until(batches, reader, lambda: reader.known(prompt) > 0)
            else:
                self.whole(server, key(name), ids=self.tokens(100, 1))
                self.read_until(batches, reader,
                                lambda: reader.known(self.tokens(100, 1)) > 0)
                self.assertEqual(reader.known(prompt), 0)
            batches.cancel()
        self.assertEqual(self.refusal(self.subscribe(server))[0], grpc.StatusCode.UNAUTHENTICATED)
        with self.assertRaises(grpc.RpcError) as caught:
            self.ask("FlushCache", self.common.FlushCacheRequest(),
                     self.common.FlushCacheResponse, server, key("one-key"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.PERMISSION_DENIED)

    def test_only_operators_flush(self):
        def flush(server, metadata=None):
            try:
                return self.ask("FlushCache", self.common.FlushCacheRequest(),
                                self.common.FlushCacheResponse, server, metadata).success
            except grpc.RpcError as error:
                return error.code()

        keys, operators = self.dir / "one_key", self.dir / "operators"
        keys.write_text("one-key\n")
        operators.write_text("operators-key\n")
        denied = grpc.StatusCode.PERMISSION_DENIED
        opened = grpc_test.Server(self.model, "--api-key-file", keys, "--grpc-open")
        self.addCleanup(opened.stop)
        self.assertEqual(flush(opened), denied)
        self.assertEqual(flush(opened, key("one-key")), True)
        guarded = grpc_test.Server(self.model, "--api-key-file", keys,
                                   "--metrics-key-file", operators)
        self.addCleanup(guarded.stop)
        self.assertEqual(flush(guarded), grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(flush(guarded, key("one-key")), denied)
        self.assertEqual(flush(guarded, key("operators-key")), True)
        # That is all that this key may do.
        self.assertEqual(self.refusal(self.generate(self.request(), guarded,
                                                    key("operators-key")))[0],
                         grpc.StatusCode.UNAUTHENTICATED)

    def test_after_random_requests_two_routers_know_the_same(self):
        server = grpc_test.Server(self.model, "--threads", 1, "--memory", "1M",
                                  "--state-dir", self.dir / "random")
        self.addCleanup(server.stop)
        old, fresh = Reader(), Reader()
        batches = self.subscribe(server)
        old.read(next(batches))
        chance = random.Random(5)
        prompts = [self.tokens(40, 0)]
        for i in range(40):
            begin = chance.choice(prompts)
            prompts.append(begin[:chance.randrange(len(begin))] +
                           self.tokens(1 + chance.randrange(100), i))
            now = time.time()
            self.whole(server, ids=prompts[-1], sampling={"max_tokens": 1 + chance.randrange(4)})
            while i % 8 == 0 and old.heard < now:  # so that the stream never stalls
                old.read(next(batches))
            if i == 20:
                self.ask("FlushCache", self.common.FlushCacheRequest(),
                         self.common.FlushCacheResponse, server)
        later = self.subscribe(server)
        # Until both know the same: the disk may still be written meanwhile.
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            now = time.time()
            for reader, stream in ((old, batches), (fresh, later)):
                while reader.heard < now:
                    reader.read(next(stream))
            if old.pages.keys() == fresh.pages.keys():
                break
            assert time.monotonic() < deadline, (len(old.pages), len(fresh.pages))
        self.assertGreater(len(old.pages), 0)
        batches.cancel()
        later.cancel()

    def test_a_subscription_does_not_hold_up_the_end(self):
        server = grpc_test.Server(self.model, "--drain-seconds", 600)
        self.addCleanup(server.stop)
        batches = self.subscribe(server)
        next(batches)
        server.process.send_signal(signal.SIGTERM)
        # Not after the ten minutes that requests would have.
        self.assertEqual(server.process.wait(timeout=TIMEOUT_S), 0, "".join(server.log))


if __name__ == "__main__":
    grpc_test.main()
