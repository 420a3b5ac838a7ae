#!/usr/bin/env python3
"""weft serve with several models over gRPC: each has a port of its own, for as long as it runs."""

import pathlib
import re
import sys
import tempfile
import time
import unittest

import grpc_test
import models_test
import vllm_grpc_test
from weft_process import TIMEOUT_S, make_model, weft

grpc = grpc_test.grpc
SERVICE = vllm_grpc_test.SERVICE
PROMPT = "the weft travels"
# The tiny models need about 100 MB each.
ROOM = "400M"


class Server(models_test.Server):
    """A server whose models "one" and "two" have ports."""

    def __init__(self, file, *flags):
        super().__init__("--models", file, "--memory", ROOM, "--threads", 1, "--grpc-port", "one=0",
                         "--grpc-port", "two=0", *flags)
        self.channels = {}

    def __enter__(self):
        super().__enter__()
        try:
            self.until(lambda: len(self.ports()) == 2, "no gRPC ports")
        except BaseException:
            super().__exit__(*sys.exc_info())
            raise
        for name, port in self.ports().items():
            self.channels[name] = grpc.insecure_channel(
                f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
        return self

    def __exit__(self, *error):
        for channel in self.channels.values():
            channel.close()
        super().__exit__(*error)

    def ports(self):
        return dict(re.findall(r"the model (\w+) is served over gRPC on port (\d+)", self.log))


@unittest.skipIf(grpc is None, "python3-grpcio and python3-protobuf are not installed")
class GrpcModelsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.dir = pathlib.Path(cls.folder.name)
        grpc_test.generate_messages(cls.dir)
        import common_pb2
        import vllm_engine_pb2
        cls.pb, cls.common = vllm_engine_pb2, common_pb2
        cls.models = {name: make_model(cls.dir / f"{name}.gguf", "tiny-llama", "F32", "--seed", seed)
                      for seed, name in enumerate(("one", "two", "three"), 7)}
        cls.prompt = weft("tokenize", "-m", cls.models["one"], "--add-bos", "--json",
                          PROMPT).json["tokens"]

    def write(self, **flags):
        """The file of the models, with these flags of them."""
        file = self.dir / "models.toml"
        file.write_text("".join(
            f'[{name}]\nmodel = "{path}"\n{flags[name]}\n'
            for name, path in self.models.items() if flags.setdefault(name, "") is not None))
        return file

    def ask(self, server, model, name):
        call = server.channels[model].unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=getattr(self.pb, f"{name}Request").SerializeToString,
            response_deserializer=getattr(self.pb, f"{name}Response").FromString)
        return call(getattr(self.pb, f"{name}Request")(), timeout=TIMEOUT_S)

    def context_of(self, server, model):
        """0 while nobody answers."""
        try:
            return self.ask(server, model, "GetModelInfo").max_context_length
        except grpc.RpcError:
            return 0

    def generate(self, server, model, ids, max_tokens=12):
        call = server.channels[model].unary_stream(
            f"/{SERVICE}/Generate", request_serializer=self.pb.GenerateRequest.SerializeToString,
            response_deserializer=self.pb.GenerateResponse.FromString)
        [answer] = call(self.pb.GenerateRequest(
            tokenized=self.pb.TokenizedInput(input_ids=ids),
            sampling_params=self.pb.SamplingParams(temperature=0, max_tokens=max_tokens)),
            timeout=TIMEOUT_S)
        return list(answer.complete.output_ids)

    def subscribe(self, server, model):
        call = server.channels[model].unary_stream(
            f"/{SERVICE}/SubscribeKvEvents",
            request_serializer=self.common.SubscribeKvEventsRequest.SerializeToString,
            response_deserializer=self.common.KvEventBatch.FromString)
        return call(self.common.SubscribeKvEventsRequest(), timeout=10 * TIMEOUT_S)

    def read_until(self, batches, reader, condition):
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline, (reader.pages, reader.sequence)
            reader.read(next(batches))

    def test_each_port_is_one_model(self):
        with Server(self.write()) as server:
            batches, reader = self.subscribe(server, "one"), vllm_grpc_test.Reader()
            for name in ("two", "one"):
                self.assertEqual(self.ask(server, name, "GetModelInfo").served_model_name, name)
                alone = weft("run", "-m", self.models[name], "--raw", "--temp", "0", "-n", "12",
                             "--json", PROMPT).json["tokens"]
                self.assertEqual(self.generate(server, name, self.prompt), alone)
            # A port tells only what its own model has cached. "two" is asked first: a port that
            # told everything would begin with it.
            texts = {name: [100 + (3 * i + seed) % 200 for i in range(100)]
                     for seed, name in enumerate(("two", "one"))}
            for name, ids in texts.items():
                self.generate(server, name, ids, max_tokens=1)
            self.read_until(batches, reader, lambda: reader.known(texts["one"]) >= 64)
            self.assertEqual(reader.known(texts["two"]), 0)

            metrics = server.get("/metrics")[1]
            for name, loads in (("one", 1), ("two", 1), ("three", 0)):
                self.assertIn(f'weft_model_loads_total{{model="{name}"}} {loads}\n', metrics)
            seconds = re.search(r'weft_model_load_seconds_total{model="one"} (\S+)', metrics)[1]
            self.assertGreater(float(seconds), 0)
            # A port is no request, but whoever looks at a model is one for a moment.
            server.until(lambda: 'weft_model_requests{model="one"} 0\n' in server.get("/metrics")[1],
                         "a port counts as a request")

            server.post("/drain")
            for name in ("one", "two"):
                self.assertFalse(self.ask(server, name, "HealthCheck").healthy)
            server.post("/undrain")
            self.assertTrue(self.ask(server, "two", "HealthCheck").healthy)
            batches.cancel()

    def test_a_model_with_a_port_stays_loaded(self):
        with Server(self.write(), "--idle-unload", "1") as server:
            batches, reader = self.subscribe(server, "two"), vllm_grpc_test.Reader()
            server.complete("three", PROMPT)
            # By then, the others have been idle for longer.
            server.wait_for(three="unloaded")
            self.assertEqual(server.states(), {"one": "loaded", "two": "loaded",
                                               "three": "unloaded"})
            status, answer = server.post("/models/unload", model="one")
            self.assertEqual(status, 400, answer)
            self.assertIn("pinned", answer["error"]["message"])
            n = reader.batches + reader.heartbeats
            self.read_until(batches, reader, lambda: reader.batches + reader.heartbeats > n + 1)
            batches.cancel()

    def test_a_model_that_is_replaced_keeps_its_port(self):
        with Server(self.write()) as server:
            stays, goes = self.subscribe(server, "one"), self.subscribe(server, "two")
            next(stays)
            next(goes)
            self.write(two="ctx = 128")
            self.assertEqual(server.get("/models?reload=1")[0], 200)
            with self.assertRaises(grpc.RpcError):
                while True:
                    next(goes)
            # While it ends, the old port answers.
            server.until(lambda: self.context_of(server, "two") == 128, "the new one does not come")
            self.assertEqual(self.ask(server, "one", "GetModelInfo").served_model_name, "one")
            next(stays)

            self.write(two=None)
            status, answer = server.get("/models?reload=1")
            self.assertEqual(status, 400, answer)
            self.assertIn("not two=0; there are one, three", answer["error"]["message"])
            self.assertEqual(self.context_of(server, "two"), 128)
            stays.cancel()

    def test_ports_that_mean_no_model_are_refused(self):
        one, two = self.models["one"], self.models["two"]
        several = "--grpc-port NAME=PORT, such as one=50051"
        for models, port, says in (((one, two), "0", several), ((one, two), "five=0", several),
                                   ((one, two), "one=", "is no port"),
                                   ((one, two), "one=70000", "is no port"),
                                   ((one, two), "=7", "is no port"),
                                   ((one,), "one=0", "with one model, write --grpc-port 0")):
            result = weft("serve", *(flag for path in models for flag in ("-m", path)), "--port", 0,
                          "--grpc-port", port)
            self.assertNotEqual(result.code, 0)
            self.assertIn(says, result.err)


if __name__ == "__main__":
    grpc_test.main()
