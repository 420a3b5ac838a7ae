#!/usr/bin/env python3
"""weft serve --grpc-port, asked by a foreign gRPC client: Debian's python3-grpcio.

The messages are made by protoc from proto/ when the test starts, so that names and
numbers are those that other clients see on the wire.
"""

import hashlib
import importlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
import zipfile

SYSTEM_PYTHON = "/usr/bin/python3"
try:
    import google.protobuf
    import grpc
except ImportError:
    # The packages are Debian's, so its own interpreter has them.
    if os.path.exists(SYSTEM_PYTHON) and os.path.realpath(sys.executable) != os.path.realpath(
            SYSTEM_PYTHON) and not os.environ.get("WEFT_GRPC_TEST_AGAIN"):
        os.environ["WEFT_GRPC_TEST_AGAIN"] = "1"
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    grpc = None

from weft_process import TIMEOUT_S, command_line, make_model, peak_kib, weft

PROTO = pathlib.Path(__file__).resolve().parents[2] / "proto"
SERVICE = "mlx.grpc.engine.MlxEngine"
PROMPT = "the weft travels"

# The parts of grpc.health.v1 and of reflection that are asked for here.
HEALTH_PROTO = """
syntax = "proto3";
package grpc.health.v1;
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse { int32 status = 1; }
"""
REFLECTION_PROTO = """
syntax = "proto3";
package grpc.reflection.v1alpha;
message ServerReflectionRequest { oneof r { string list_services = 7; } }
message ServiceResponse { string name = 1; }
message ListServiceResponse { repeated ServiceResponse service = 1; }
message ServerReflectionResponse { oneof r { ListServiceResponse list_services_response = 6; } }
"""
SERVING, NOT_SERVING = 1, 2
# An answer that comes to no end while somebody waits, and the context that it needs.
ENDLESS = {"max_tokens": 190000, "ignore_eos": True, "temperature": 1}
ROOM = ("--ctx", 200000)


def generate_messages(folder):
    """The modules of the engine's, the health and the reflection messages."""
    for proto in PROTO.glob("*.proto"):
        shutil.copy(proto, folder)
    (folder / "health.proto").write_text(HEALTH_PROTO)
    (folder / "reflection.proto").write_text(REFLECTION_PROTO)
    protos = [path.name for path in folder.glob("*.proto")]
    subprocess.run(["protoc", f"--proto_path={folder}", f"--python_out={folder}", *protos],
                   check=True, timeout=TIMEOUT_S)
    sys.path.insert(0, str(folder))
    return [importlib.import_module(name + "_pb2")
            for name in ("mlx_engine", "common", "health", "reflection")]


class Server:
    """A server on free ports, with a channel to it."""

    def __init__(self, model, *flags):
        self.process = subprocess.Popen(
            command_line("serve", "-m", model, "--port", "0", "--grpc-port", "0", *flags),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.port = None
        for line in self.process.stderr:
            self.log.append(line)
            if match := re.search(r"gRPC server listening on 127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                break
        assert self.port, "".join(self.log)
        self.reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,),
                                       daemon=True)
        self.reader.start()
        self.channel = grpc.insecure_channel(
            f"127.0.0.1:{self.port}",
            options=[("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)])

    def stop(self):
        self.channel.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=TIMEOUT_S)
        self.reader.join()
        self.process.stderr.close()
        return code


@unittest.skipIf(grpc is None, "python3-grpcio and python3-protobuf are not installed")
class GrpcTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.pb, cls.common, cls.health, cls.reflection = generate_messages(folder)
        cls.model = make_model(folder / "llama.gguf")
        cls.server = Server(cls.model, "--alias", "loom")
        run = weft("run", "-m", cls.model, "--raw", "--temp", "0", "-n", "12", "--json",
                   PROMPT).json
        cls.expected = run["tokens"]
        cls.prompt = weft("tokenize", "-m", cls.model, "--add-bos", "--json", PROMPT).json["tokens"]

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, "".join(cls.server.log)

    def unary(self, method, request, response, server=None, **kwargs):
        call = (server or self.server).channel.unary_unary(
            method, request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString)
        return call(request, timeout=TIMEOUT_S, **kwargs)

    def ask(self, name, server=None, **kwargs):
        request = getattr(self.pb, name + "Request")(**kwargs)
        return self.unary(f"/{SERVICE}/{name}", request, getattr(self.pb, name + "Response"),
                          server)

    def request(self, ids=None, **kwargs):
        params = dict(temperature=0, max_tokens=12)
        params.update(kwargs.pop("sampling", {}))
        return self.pb.GenerateRequest(
            tokenized=self.pb.TokenizedInput(input_ids=self.prompt if ids is None else ids),
            sampling_params=self.pb.SamplingParams(**params), **kwargs)

    def generate(self, request, server=None, timeout=TIMEOUT_S, metadata=None):
        call = (server or self.server).channel.unary_stream(
            f"/{SERVICE}/Generate", request_serializer=self.pb.GenerateRequest.SerializeToString,
            response_deserializer=self.pb.GenerateResponse.FromString)
        return call(request, timeout=timeout, metadata=metadata)

    def refusal(self, call):
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        return caught.exception.code(), caught.exception.details()

    def test_greedy_is_what_run_says(self):
        answers = list(self.generate(self.request(stream=True, request_id="a")))
        chunks = [answer.chunk for answer in answers[:-1]]
        self.assertEqual([list(chunk.token_ids) for chunk in chunks],
                         [[token] for token in self.expected])
        self.assertEqual([chunk.completion_tokens for chunk in chunks], list(range(1, 13)))
        complete = answers[-1].complete
        self.assertEqual(list(complete.output_ids), [])
        self.assertEqual(complete.finish_reason, "length")
        self.assertEqual((complete.prompt_tokens, complete.completion_tokens),
                         (len(self.prompt), 12))

        [whole] = self.generate(self.request(stream=False))
        self.assertEqual(list(whole.complete.output_ids), self.expected)

    def test_many_at_once_say_the_same(self):
        calls = [self.generate(self.request(stream=True, request_id=f"many {i}"))
                 for i in range(24)]
        for call in calls:
            tokens = [token for answer in call for token in answer.chunk.token_ids]
            self.assertEqual(tokens, self.expected)

    def test_cached_tokens_are_real(self):
        ids = [300 + i % 50 for i in range(200)]
        [first] = self.generate(self.request(ids))
        [second] = self.generate(self.request(ids))
        self.assertEqual(first.complete.cached_tokens, 0)
        self.assertGreater(second.complete.cached_tokens, 100)
        self.assertLess(second.complete.cached_tokens, 200)
        self.assertEqual(first.complete.output_ids, second.complete.output_ids)

    def test_info(self):
        info = self.ask("GetModelInfo")
        self.assertEqual(info.served_model_name, "loom")
        self.assertEqual(info.model_path, self.model.name)
        self.assertTrue(info.is_generation)
        self.assertEqual(info.bos_token_id, self.prompt[0])
        server = self.ask("GetServerInfo")
        self.assertEqual(server.server_type, "mlx-grpc")
        self.assertGreater(server.uptime_seconds, 0)

    def test_refusals(self):
        invalid = grpc.StatusCode.INVALID_ARGUMENT
        text = self.pb.GenerateRequest(text="hello")
        for request, says in ((text, "input_ids"), (self.request([]), "empty prompt"),
                              (self.request([99999999]), "vocabulary"),
                              (self.request(sampling={"top_p": 7}), "top_p"),
                              (self.request(sampling={"stop_token_ids": [300] * 5000}), "4096"),
                              (self.request([300] * 1_000_000), "context")):
            code, details = self.refusal(self.generate(request))
            self.assertEqual(code, invalid, details)
            self.assertIn(says, details)
        # No prompt that fits the context is as large as that.
        code, _ = self.refusal(self.generate(self.request([300] * 9_000_000)))
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_abort_and_deadline(self):
        server = Server(self.model, *ROOM)
        self.addCleanup(server.stop)
        self.ask("Abort", server, request_ids=["never seen", "never seen"])
        call = self.generate(self.request(stream=True, request_id="long", sampling=ENDLESS), server)
        next(call)
        code, _ = self.refusal(self.generate(self.request(request_id="long"), server))
        self.assertEqual(code, grpc.StatusCode.ALREADY_EXISTS)
        self.ask("Abort", server, request_ids=["long"])
        self.assertFalse(any(answer.HasField("complete") for answer in call))
        self.ask("Abort", server, request_ids=["long"])

        call = self.generate(self.request(stream=True, sampling=ENDLESS), server, timeout=0.5)
        self.assertEqual(self.refusal(call)[0], grpc.StatusCode.DEADLINE_EXCEEDED)
        self.until_idle(server)

    def test_dropped_streams_end(self):
        server = Server(self.model, *ROOM)
        self.addCleanup(server.stop)
        calls = [self.generate(self.request(stream=True, sampling=ENDLESS), server)
                 for _ in range(8)]
        for call in calls:
            next(call)
            call.cancel()
        self.until_idle(server)

    def until_idle(self, server):
        deadline = time.monotonic() + TIMEOUT_S
        while self.ask("GetServerInfo", server).active_requests > 0:
            self.assertLess(time.monotonic(), deadline, "requests of nobody still run")
            time.sleep(0.02)

    def test_tokenizer(self):
        call = self.server.channel.unary_stream(
            f"/{SERVICE}/GetTokenizer",
            request_serializer=self.common.GetTokenizerRequest.SerializeToString,
            response_deserializer=self.common.GetTokenizerChunk.FromString)
        chunks = list(call(self.common.GetTokenizerRequest(), timeout=TIMEOUT_S))
        self.assertTrue(all(not chunk.sha256 for chunk in chunks[:-1]))
        data = b"".join(chunk.data for chunk in chunks)
        self.assertEqual(chunks[-1].sha256, hashlib.sha256(data).hexdigest())
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.assertEqual(sorted(archive.namelist()),
                             ["config.json", "tokenizer.json", "tokenizer_config.json"])
            model = json.loads(archive.read("config.json"))
            self.assertEqual((model["model_type"], model["architectures"]),
                             ("llama", ["LlamaForCausalLM"]))
            config = json.loads(archive.read("tokenizer_config.json"))
            self.assertIn("<|im_start|>", config["chat_template"])
            spec = json.loads(archive.read("tokenizer.json"))
        self.assertEqual(spec["model"]["vocab"][config["bos_token"]], self.prompt[0])

    def check_health(self, service, server=None):
        return self.unary("/grpc.health.v1.Health/Check",
                          self.health.HealthCheckRequest(service=service),
                          self.health.HealthCheckResponse, server).status

    def test_health_and_reflection(self):
        self.assertTrue(self.ask("HealthCheck").healthy)
        self.assertEqual(self.check_health(""), SERVING)
        self.assertEqual(self.check_health(SERVICE), SERVING)
        with self.assertRaises(grpc.RpcError) as caught:
            self.check_health("some.other.Service")
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

        reflect = self.server.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=self.reflection.ServerReflectionRequest.SerializeToString,
            response_deserializer=self.reflection.ServerReflectionResponse.FromString)
        ask = iter([self.reflection.ServerReflectionRequest(list_services="")])
        [answer] = reflect(ask, timeout=TIMEOUT_S)
        names = [service.name for service in answer.list_services_response.service]
        self.assertIn(SERVICE, names)
        self.assertIn("grpc.health.v1.Health", names)

    def http(self, server, method, path):
        port = re.search(r"http://127\.0\.0\.1:(\d+)", "".join(server.log))[1]
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def test_drain(self):
        server = Server(self.model, *ROOM)
        self.addCleanup(server.stop)
        running = self.generate(self.request(stream=True, sampling={**ENDLESS, "max_tokens": 600}),
                                server)
        next(running)
        self.assertEqual(self.http(server, "POST", "/drain")["drained"], True)
        health = self.ask("HealthCheck", server)
        self.assertFalse(health.healthy)
        self.assertIn("drained", health.message)
        self.assertEqual(self.check_health(SERVICE, server), NOT_SERVING)
        code, details = self.refusal(self.generate(self.request(), server))
        self.assertEqual(code, grpc.StatusCode.UNAVAILABLE)
        self.assertIn("POST /undrain", details)
        self.assertTrue(self.end_of(running))
        self.http(server, "POST", "/undrain")
        self.assertTrue(self.ask("HealthCheck", server).healthy)
        self.assertEqual(self.check_health(SERVICE, server), SERVING)
        [answer] = self.generate(self.request(), server)
        self.assertEqual(list(answer.complete.output_ids), self.expected)

    def test_foreign_services_are_unimplemented(self):
        for method in ("/sglang.grpc.scheduler.SglangScheduler/HealthCheck",
                       "/trtllm.grpc.engine.TrtllmEngine/HealthCheck", f"/{SERVICE}/Embed"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.unary(method, self.pb.HealthCheckRequest(), self.pb.HealthCheckResponse)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_keys(self):
        keys = pathlib.Path(self.folder.name) / "keys"
        keys.write_text("secret-key\n")
        server = Server(self.model, "--api-key-file", keys)
        self.addCleanup(server.stop)
        code, _ = self.refusal(self.generate(self.request(), server))
        self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED)
        for metadata in ([("authorization", "Bearer secret-key")],
                         [("authorization", "bearer  secret-key")], [("x-api-key", "secret-key")]):
            [answer] = self.generate(self.request(), server, metadata=metadata)
            self.assertEqual(list(answer.complete.output_ids), self.expected)
        self.assertTrue(self.ask("HealthCheck", server).healthy)

    def test_no_key_no_memory(self):
        keys = pathlib.Path(self.folder.name) / "large_keys"
        keys.write_text("secret-key\n")
        server = Server(self.model, "--api-key-file", keys)
        self.addCleanup(server.stop)

        code, _ = self.refusal(self.generate(self.request(), server))
        self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED)
        before = peak_kib(server.process)
        large = self.request([300] * 50_000_000)  # 100 MB
        code, _ = self.refusal(self.generate(large, server))
        self.assertEqual(code, grpc.StatusCode.UNAUTHENTICATED)
        self.assertLess(peak_kib(server.process) - before, 20_000)

    def test_log(self):
        keys = pathlib.Path(self.folder.name) / "named_keys"
        keys.write_text("secret-key kitchen\n")
        server = Server(self.model, "--api-key-file", keys, "--log-text")
        key = [("x-api-key", "secret-key")]
        list(self.generate(self.request(request_id="first one"), server, metadata=key))
        list(self.generate(self.request(request_id="second"), server, metadata=key))
        self.refusal(self.generate(self.request(), server))
        self.assertEqual(server.stop(), 0)
        log = "".join(server.log)
        path = f"gRPC /{SERVICE}/Generate"
        n = len(self.prompt)
        self.assertRegex(log, rf"{path} OK [0-9.]+ms in={n} cached=0 out=12 key=kitchen "
                              rf'id=[0-9a-f]+ request=".*{PROMPT}" answer="')
        self.assertRegex(log, rf"{path} OK [0-9.]+ms in={n} cached=\d+ out=12 key=kitchen "
                              r"id=second request=")
        self.assertRegex(log, rf"{path} UNAUTHENTICATED [0-9.]+ms id=[0-9a-f]+ ")

    def test_open_port(self):
        keys = pathlib.Path(self.folder.name) / "open_keys"
        keys.write_text("secret-key\n")
        server = Server(self.model, "--api-key-file", keys, "--grpc-open")
        self.addCleanup(server.stop)
        [answer] = self.generate(self.request(), server)
        self.assertEqual(list(answer.complete.output_ids), self.expected)
        port = re.search(r"http://127\.0\.0\.1:(\d+)", "".join(server.log))[1]
        with self.assertRaises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/sessions", timeout=TIMEOUT_S)
        self.assertEqual(caught.exception.code, 401)
        caught.exception.close()
        # Others must not reach a port without keys.
        result = weft("serve", "-m", self.model, "--host", "0.0.0.0", "--port", "0", "--grpc-port",
                      "0", "--grpc-open")
        self.assertEqual(result.code, 1, result)
        self.assertIn("--grpc-open serves without keys", result.err)
        self.assertIn("--grpc-host 127.0.0.1", result.err)
        self.assertEqual(weft("serve", "-m", self.model, "--grpc-open").code, 2)

    def test_shutdown_while_requests_run(self):
        server = Server(self.model, *ROOM, "--drain-seconds", 0, "--max-running", 1)
        self.addCleanup(server.stop)
        watch = server.channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            request_serializer=self.health.HealthCheckRequest.SerializeToString,
            response_deserializer=self.health.HealthCheckResponse.FromString)(
                self.health.HealthCheckRequest(service=SERVICE), timeout=TIMEOUT_S)
        self.assertEqual(next(watch).status, SERVING)
        request = self.request(stream=True, sampling=ENDLESS)
        calls = [self.generate(request, server)]
        next(calls[0])
        calls += [self.generate(request, server) for _ in range(5)]
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual([self.end_of(call) for call in calls], [False] * 6)
        self.assertEqual([status.status for status in self.until_error(watch)][:1], [NOT_SERVING])
        self.assertEqual(server.stop(), 0, server.log)

    @staticmethod
    def until_error(call):
        try:
            yield from call
        except grpc.RpcError:
            pass

    @staticmethod
    def end_of(call):
        """Whether it came to its completion."""
        try:
            return any(answer.HasField("complete") for answer in list(call))
        except grpc.RpcError:
            return False

    def test_no_port_after_a_failed_load(self):
        broken = pathlib.Path(self.folder.name) / "broken.gguf"
        broken.write_bytes(self.model.read_bytes()[:10000])
        result = weft("serve", "-m", broken, "--port", "0", "--grpc-port", "0")
        self.assertEqual(result.code, 1, result)
        self.assertNotIn("gRPC server listening", result.err)


def main():
    if grpc is None or shutil.which("protoc") is None:
        print("skipped: needs python3-grpcio, python3-protobuf and protobuf-compiler")
        sys.exit(77)
    unittest.main()


if __name__ == "__main__":
    main()
