#!/usr/bin/env python3
"""weft launch as its user meets it, with programs in the agents' place that tell what they got."""

import json
import os
import pathlib
import pty
import signal
import stat
import subprocess
import tempfile
import textwrap
import unittest
import urllib.request

from serve_test import Server
from weft_process import TIMEOUT_S, WEFT, make_model, weft

AGENTS = ["claude", "codex", "opencode", "qwen", "pi", "aider", "cn"]
CONTEXT = 512

# Tells its arguments, variables and the files that they name; then does as $AGENT_DOES says.
STUB = """\
    #!/usr/bin/env python3
    import json, os, signal, sys, time
    files = {}
    for word in [*sys.argv, *os.environ.values()]:
        if "/weft-launch-" in word and os.path.isfile(word):
            folder = os.path.dirname(word)
            files = {name: open(os.path.join(folder, name)).read() for name in os.listdir(folder)}
    does = os.environ.pop("AGENT_DOES", "")
    print(json.dumps({"args": sys.argv[1:], "env": dict(os.environ), "files": files}), flush=True)
    exec(does)
    """
# Counts the signals until it is told no more, and asks whether the server is still there.
COUNTS = """
import threading, urllib.request
seen = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda n, _: seen.append(signal.Signals(n).name))
print("READY", flush=True)
while not seen: time.sleep(0.02)
time.sleep(0.3)
alive = urllib.request.urlopen(os.environ["ANTHROPIC_BASE_URL"] + "/health").status
print("SEEN", *seen, alive, flush=True)
sys.exit(3)
"""


def is_there(url):
    try:
        return urllib.request.urlopen(url + "/health").status == 200
    except OSError:
        return False


class LaunchTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.model = make_model(cls.dir / "llama.gguf")
        cls.bin = cls.dir / "bin"
        cls.bin.mkdir()
        for name in AGENTS:
            stub = cls.bin / name
            stub.write_text(textwrap.dedent(STUB))
            stub.chmod(stub.stat().st_mode | stat.S_IXUSR)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.runtime = tempfile.TemporaryDirectory(dir=self.dir)
        self.addCleanup(self.runtime.cleanup)
        self.home = pathlib.Path(self.runtime.name) / "home"
        self.home.mkdir()
        self.env = {"XDG_RUNTIME_DIR": self.runtime.name, "HOME": str(self.home),
                    "TMPDIR": self.runtime.name, "PATH": f"{self.bin}:{os.environ['PATH']}"}
        for name in ("XDG_CONFIG_HOME", "WEFT_API_KEY", "CLAUDE_CONFIG_DIR"):
            self.env[name] = ""

    def server(self, *flags):
        return Server(self.model, "--ctx", CONTEXT, "--alias", "tiny", *flags, env=self.env)

    def launch(self, *args, code=0, **env):
        result = weft("launch", *args, env={**self.env, **env})
        self.assertEqual(result.code, code, result)
        return result

    def told(self, *args, **env):
        return json.loads(self.launch(*args, **env).text)

    def start(self, *args, **kwargs):
        return subprocess.Popen([WEFT, "launch", *map(str, args)], text=True,
                                env={**os.environ, **self.env, "AGENT_DOES": COUNTS}, **kwargs)

    def test_an_agent_gets_the_running_server_and_its_context(self):
        with self.server() as server:
            server.ready()
            told = self.told("claude", "--", "-p", "a  'b'", "[x,y]", "--json", "chat",
                             ANTHROPIC_API_KEY="mine", UNTOUCHED="1")
            self.assertEqual(told["args"], ["-p", "a  'b'", "[x,y]", "--json", "chat"])
            env = told["env"]
            self.assertEqual(env["ANTHROPIC_BASE_URL"], server.url)
            self.assertEqual(env["ANTHROPIC_MODEL"], "tiny")
            self.assertEqual(env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], str(CONTEXT))
            self.assertNotIn("ANTHROPIC_API_KEY", env)
            self.assertEqual(env["UNTOUCHED"], "1")
            for agent in AGENTS:
                told = self.told(agent, "--server", server.url + "/v1/")
                every = json.dumps(told)
                self.assertIn(server.url, every)
                self.assertIn(str(CONTEXT), every, agent)
        self.assertEqual(os.listdir(self.home), [])
        self.assertEqual([name for name in os.listdir(self.runtime.name) if "launch" in name], [])

    def test_the_exit_code_is_the_agents(self):
        with self.server() as server:
            server.ready()
            result = self.launch("codex", code=7, AGENT_DOES="sys.exit(7)")
            self.assertNotIn("weft:", result.err.replace("weft: Codex opens", ""), result)
            self.launch("codex", code=128 + signal.SIGKILL,
                        AGENT_DOES="os.kill(os.getpid(), signal.SIGKILL)")
            # A signal that this program ignores is one that the agent does not.
            self.launch("codex", code=128 + signal.SIGPIPE,
                        AGENT_DOES="signal.signal(13, signal.SIG_DFL); os.kill(os.getpid(), 13)")

    def test_a_model_gets_a_server_that_ends_with_the_agent(self):
        log = self.dir / "server.log"
        told = self.told("pi", "-m", self.model, "--ctx", "256", "--threads", "1", "--log", log,
                         "--", "hi")
        provider = json.loads(told["files"]["models.json"])["providers"]["weft"]
        self.assertEqual(provider["models"][0]["contextWindow"], 256)
        self.assertEqual(told["args"][-1], "hi")
        self.assertFalse(is_there(provider["baseUrl"].removesuffix("/v1")))
        self.assertIn("shut down", log.read_text())
        self.assertEqual(weft("ps", "--json", env=self.env).json_lines, [])

    def test_a_server_that_does_not_start_says_why(self):
        result = self.launch("pi", "-m", self.dir / "none.gguf", code=1)
        self.assertIn("the server did not start: ", result.err)
        self.assertIn("none.gguf", result.err)
        self.assertEqual(result.out, b"")
        self.assertEqual(len(result.err.splitlines()), 1, result)

    def test_what_is_printed_does_the_same(self):
        with self.server() as server:
            server.ready()
            for agent in AGENTS:
                args = [agent, "--server", server.url, "--", "-p", "it's"]
                script = self.launch(args[0], "--print", *args[1:]).text
                done = subprocess.run(["sh", "-c", script], capture_output=True, check=True,
                                      env={**os.environ, **self.env, "ANTHROPIC_API_KEY": "mine"})
                by_hand = json.loads(done.stdout)
                by_weft = self.told(*args, ANTHROPIC_API_KEY="mine")
                # Only the folder of the files has another name.
                self.assertEqual(by_hand["args"][-2:], by_weft["args"][-2:])
                self.assertEqual(len(by_hand["args"]), len(by_weft["args"]))
                for name in set(by_hand["env"]) | set(by_weft["env"]):
                    if name in ("_", "PWD", "OLDPWD", "SHLVL", "QWEN_CODE_SYSTEM_SETTINGS_PATH"):
                        continue
                    self.assertEqual(by_hand["env"].get(name), by_weft["env"].get(name), name)
                plan = json.loads(self.launch(args[0], "--print", "--json", *args[1:]).text)
                self.assertEqual(plan["context_tokens"], CONTEXT)
                self.assertEqual({file["name"]: file["content"] for file in plan["files"]},
                                 by_weft["files"])

    def test_settings_are_written_when_asked_for(self):
        settings = self.home / ".claude" / "settings.json"
        settings.parent.mkdir()
        settings.write_text('{"theme": "dark", "env": {"MINE": "1"}}')
        with self.server() as server:
            server.ready()
            self.assertIn("start it with: claude", self.launch("claude", "--write").text)
            written = json.loads(settings.read_text())
            self.assertEqual(written["theme"], "dark")
            self.assertEqual(written["env"]["MINE"], "1")
            self.assertEqual(written["env"]["CLAUDE_CODE_MAX_CONTEXT_TOKENS"], str(CONTEXT))
            self.launch("codex", "--write")
            config = self.home / ".codex" / "config.toml"
            self.assertIn(f"model_context_window = {CONTEXT}\n", config.read_text())
            self.assertEqual(config.stat().st_mode & 0o077, 0)
            result = self.launch("codex", "--write", code=1)
            self.assertIn("exists already", result.err)

    def test_a_program_that_is_missing_is_named_with_its_install_command(self):
        with self.server() as server:
            server.ready()
            result = self.launch("claude", code=127, PATH="/nonexistent")
            self.assertIn("npm install -g @anthropic-ai/claude-code", result.err)
            self.assertEqual(len(result.err.splitlines()), 1, result)
        listed = {line["agent"]: line for line in self.launch("--json").json_lines}
        self.assertEqual(sorted(listed), sorted(AGENTS))
        self.assertEqual(listed["aider"]["program"], str(self.bin / "aider"))
        self.assertIn("not installed: pip install aider-chat",
                      self.launch(PATH="/nonexistent").text)

    def test_what_cannot_be_is_refused(self):
        for agent in AGENTS:
            self.assertIn(agent, self.launch("emacs", code=2).err)
        self.assertIn("no server is running", self.launch("claude", code=1).err)
        self.assertIn("--ctx", self.launch("claude", "--ctx", "512", code=1).err)
        self.assertIn("running server",
                      self.launch("claude", "-m", self.model, "--print", code=1).err)
        self.assertIn("--json", self.launch("claude", "--json", code=1).err)
        with self.server() as one, self.server("--api-key-file", self.key_file()) as two:
            one.ready()
            two.ready()
            result = self.launch("claude", code=1)
            self.assertIn(one.url, result.err)
            self.assertIn(two.url, result.err)
            self.assertIn("API key", self.launch("claude", "--server", two.url, code=1).err)
            told = self.told("claude", "--server", two.url, "--api-key", "s" * 32)
            self.assertEqual(told["env"]["ANTHROPIC_AUTH_TOKEN"], "s" * 32)

    def key_file(self):
        path = self.dir / "keys.txt"
        path.write_text("s" * 32 + "\n")
        return path

    def test_ctrl_c_reaches_the_agent_once_and_not_its_server(self):
        agent, terminal = pty.fork()
        if agent == 0:
            os.execve(WEFT, [WEFT, "launch", "claude", "-m", str(self.model), "--ctx", "512"],
                      {**os.environ, **self.env, "AGENT_DOES": COUNTS})
        seen = self.read_terminal(terminal, until="READY")
        os.write(terminal, b"\x03")
        seen += self.read_terminal(terminal)
        self.assertIn("SEEN SIGINT 200", seen)
        _, status = os.waitpid(agent, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 3, seen)
        os.close(terminal)
        self.assertEqual(weft("ps", "--json", env=self.env).json_lines, [])

    def read_terminal(self, terminal, until=None):
        seen = ""
        while until is None or until not in seen:
            try:
                part = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part.decode()
        return seen

    def test_other_signals_are_passed_on(self):
        with self.server() as server:
            server.ready()
            for number in (signal.SIGTERM, signal.SIGINT):
                process = self.start("claude", stdout=subprocess.PIPE, start_new_session=True)
                while "READY" not in process.stdout.readline():
                    self.assertIsNone(process.poll())
                process.send_signal(number)
                self.assertEqual(process.stdout.read().split()[-2:], [number.name, "200"])
                self.assertEqual(process.wait(TIMEOUT_S), 3)
                process.stdout.close()

    def test_an_interrupted_start_leaves_no_server(self):
        process = self.start("claude", "-m", self.model, stderr=subprocess.PIPE,
                             start_new_session=True)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_S)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(weft("ps", "--json", env=self.env).json_lines, [])

    def test_an_agent_that_stops_itself_stops_the_job(self):
        with self.server() as server:
            server.ready()
            process = subprocess.Popen(
                [WEFT, "launch", "claude"], stdout=subprocess.PIPE, text=True,
                env={**os.environ, **self.env,
                     "AGENT_DOES": "os.kill(os.getpid(), signal.SIGSTOP); sys.exit(5)"})
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            self.assertTrue(os.WIFSTOPPED(status))
            process.send_signal(signal.SIGCONT)
            self.assertEqual(process.wait(TIMEOUT_S), 5)
            process.stdout.close()


if __name__ == "__main__":
    unittest.main()
