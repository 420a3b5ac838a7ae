#!/usr/bin/env python3
"""The commands of the binary: what they print, how they fail, and the same bits.

Each test runs `weft` as a user would, on small models of random weights made for the
purpose. Exit codes: 0 success, 1 failure with one sentence on stderr, 2 wrong usage.
"""

import json
import math
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

from weft_process import BACKEND, WEFT, add_metadata, make_model, read_floats, weft

COMPUTING = "cpu (scalar|avx2|avxvnni|avx512)" if BACKEND == "cpu" else BACKEND
COMMANDS = ["run", "inspect", "tokenize", "detokenize", "imatrix", "logits", "score", "embed",
            "constrain", "devices"]
TEXT = "The weft travels; the warp stays. 12 + 34 = 46"
# Of the model file, beside the vocabulary of tiny-llama.
VOCABULARY = 1024


class CliTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.llama = make_model(cls.dir / "llama.gguf")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def succeed(self, *args, **kwargs):
        result = weft(*args, **kwargs)
        self.assertEqual(result.code, 0, result)
        return result

    def fail(self, *args, says=(), **kwargs):
        """Expects exit code 1, nothing but whole results on stdout, one sentence on stderr."""
        result = weft(*args, **kwargs)
        self.assertEqual(result.code, 1, result)
        lines = result.err.splitlines()
        self.assertEqual(len(lines), 1, result)
        self.assertTrue(lines[0].startswith("weft: "), result)
        self.assertLess(len(lines[0]), 600, result)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, result.err, result)
        return result

    def misuse(self, *args, says=()):
        result = weft(*args)
        self.assertEqual(result.code, 2, result)
        self.assertEqual(result.out, b"", result)
        self.assertTrue(result.err.strip(), result)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, result.err, result)
        return result

    def write(self, name, content):
        path = self.dir / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def tokens(self, text=TEXT, model=None):
        return self.succeed("tokenize", "-m", model or self.llama, "--json", text).json["tokens"]


class HelpTest(CliTest):
    def test_a_draft_model_changes_no_answer(self):
        def said(*more):
            out = self.succeed("run", "-m", self.llama, "--json", "-n", "40", "--temp",
                               "0.8", "--seed", "3", *more, TEXT).out
            return json.loads(out)["tokens"]
        plain = said("--speculate", "off")
        for flag in ("-md", "--draft-model"):
            self.assertEqual(said(flag, self.llama), plain)
        self.assertEqual(said("-md", self.llama, "--speculate", "draft"), plain)
        other = make_model(self.dir / "other.gguf", "tiny-qwen3")
        self.fail("run", "-m", self.llama, "-md", other, TEXT,
                  says=["draft model", "vocabulary"])
        self.fail("run", "-m", self.llama, "-md", self.dir / "none.gguf", TEXT,
                  says="draft model")
        self.fail("run", "-m", self.llama, "--speculate", "draft", TEXT, says="--draft-model")

    def test_a_spec_file_describes_a_model(self):
        specs = pathlib.Path(__file__).resolve().parents[2] / "examples/specs"
        tokens = self.write("spec_tokens.json", json.dumps(self.tokens()))

        def logits(model, *more):
            out = self.dir / "spec.f32"
            self.succeed("logits", "-m", model, *more, "--tokens", tokens, "--out", out)
            return out.read_bytes()
        spec = specs / "llama.weft.json"
        self.assertEqual(logits(self.llama, "--spec", spec), logits(self.llama))
        # Of an architecture that nobody has built in, with its spec file next to it.
        loom = self.write("loom.gguf", self.llama.read_bytes().replace(b"llama", b"loomy"))
        self.assertIn("'loomy' is not one of", self.succeed("inspect", "-m", loom).text)
        self.write("loom.weft.json", spec.read_text().replace("llama", "loomy"))
        self.assertIn("for       text", self.succeed("inspect", "-m", loom).text)
        self.fail("logits", "-m", loom, "--spec", specs / "qwen2.weft.json", "--tokens", tokens,
                  "--out", self.dir / "spec.f32", says="architecture is 'qwen2'")

    def test_every_command_explains_itself(self):
        overview = self.succeed("--help").text
        for command in COMMANDS:
            self.assertIn(command, overview)
            text = self.succeed(command, "--help").text
            self.assertIn("Usage: weft " + command, text)
            flag = "--threads" if command in ("imatrix", "logits", "score", "embed") else "--json"
            self.assertIn(flag, text)

    def test_the_version(self):
        self.assertRegex(self.succeed("--version").text, r"^weft \d+\.\d+\.\d+")
        self.assertEqual(self.succeed("-v").text, self.succeed("--version").text)

    def test_help_as_people_ask_for_it(self):
        self.assertEqual(self.succeed().text, self.succeed("--help").text)
        self.assertEqual(self.succeed("help").text, self.succeed("--help").text)
        self.assertEqual(self.succeed("help", "run").text, self.succeed("run", "--help").text)

    def test_a_model_and_a_question_need_no_command(self):
        asked = self.succeed("run", "-m", self.llama, "-n", 4, "--temp", 0, "Why?").text
        for words in (["-m", self.llama], [f"--model={self.llama}"]):
            self.assertEqual(self.succeed(*words, "-n", 4, "--temp", 0, "Why?").text, asked)
        self.assertEqual(self.succeed("-p", "Why?", "-m", self.llama, "-n", 4, "--temp", 0).text, asked)
        self.misuse("--modle", self.llama, "Why?", says="--modle")

    def commands(self, *path):
        """Every command with its flags, as --help has them: ("sessions", "fork"): {"--json"}."""
        text = self.succeed(*path, "--help").text
        flags = re.findall(r"^  ((?:-[-\w]+,?)+) ", text, re.MULTILINE)
        found = {path: {name for names in flags for name in names.split(",")}}
        below = text.partition("Subcommands:\n")[2]
        for name in re.findall(r"^  (\w+)  ", below.split("\n\n")[0], re.MULTILINE):
            found |= self.commands(*path, name)
        return found

    def test_manual_and_completions_have_every_command_and_flag(self):
        commands = self.commands()
        self.assertGreater(len(commands), len(COMMANDS) + 6)
        self.assertIn("--position", commands["sessions", "fork"])
        manual = self.succeed("manual").text.replace("\\", "")
        self.assertEqual(manual.count("explains a command"), 1)  # what is true of all, once
        zsh = self.succeed("completion", "zsh").text
        fish = self.succeed("completion", "fish").text
        bash = self.succeed("completion", "bash").text
        for path, flags in commands.items():
            name = " ".join(["weft", *path])
            section = manual.partition(f".S{'S ' + name if path else 'H OPTIONS'}\n")[2]
            section = section.partition("\n.S")[0]
            function = zsh.partition(f"\n{name.replace(' ', '_')}() {{\n".replace("weft", "_weft", 1))[2]
            function = function.partition("\n}\n")[0]
            words = re.search(rf"^ +'{name}'\) words='(.*)'", bash, re.MULTILINE)[1].split()
            seen = " and ".join(f"__fish_seen_subcommand_from {word};" for word in path).rstrip(";")
            lines = [line for line in fish.splitlines() if seen in line]
            for flag in flags:
                self.assertIn(f"fB{flag}fR", section, name)
                self.assertRegex(function, rf"['{{,*]{flag}[=\[,}}]", name)
                self.assertIn(flag, words, name)
                letter = f" -l {flag[2:]} " if flag.startswith("--") else f" -s {flag[1:]} "
                self.assertTrue(any(letter in line for line in lines), f"{name} {flag}")
            for sub in commands:
                if sub[:-1] == path and sub != path:
                    self.assertIn(f"'{sub[-1]}:", function)
                    self.assertIn(sub[-1], words)
                    self.assertTrue(any(f" -a {sub[-1]} " in line for line in lines), name)

    def test_bash_completes(self):
        script = self.write("weft.bash", self.succeed("completion", "bash").text)
        for line, words in ((["se"], ["serve", "sessions"]), (["serve", "--backe"], ["--backend"]),
                            (["embed", "--pooling", ""], ["mean", "cls", "last", "none"]),
                            (["serve", "--backend", "=", "c"], ["cpu"]),
                            (["serve", "--port", ""], []), (["sessions", "fo"], ["fork"]),
                            (["sessions", "fork", "--pos"], ["--position"]),
                            (["run", "-m", "serve", "--por"], [])):
            done = subprocess.run(
                ["bash", "-c", 'source "$0"; COMP_WORDS=(weft "$@"); COMP_CWORD=$#; _weft; '
                 'printf "%s\\n" "${COMPREPLY[@]}"', str(script), *line],
                capture_output=True, text=True, timeout=60)
            self.assertEqual((done.stdout.split(), done.stderr), (words, ""), line)

    def test_the_manual_is_one_that_man_can_print(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        done = subprocess.run(["groff", "-man", "-ww", "-Tutf8"], capture_output=True, timeout=60,
                              input=self.succeed("manual").out)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(b"weft sessions fork", done.stdout)

    def test_models_are_named_as_people_type_them(self):
        greedy = ("-n", 8, "--temp", 0)
        said = self.succeed("run", "-m", "box", *greedy, "The boat is old").text
        for words in (("box", "The", "boat", "is", "old"), ("box", "The boat is old"),
                      ("The boat", "is old"), ("-m", "box", "-p", "The boat is old")):
            self.assertEqual(self.succeed("run", *greedy, *words).text, said, words)
        self.assertEqual(self.succeed("run", "box", *greedy, stdin="The boat is old").text, said)
        self.succeed("run", self.llama, *greedy, "The", "boat")
        self.assertIn("two prompts", self.fail("run", "-p", "one", "two").err)
        self.fail("run", "smolm2", says=["did you mean -m smollm2?", "-p smolm2"])
        self.assertEqual(self.succeed("chat", "box", *greedy, stdin="/stats\n").code, 0)
        self.assertEqual(self.succeed("ls", "--help").text, self.succeed("list", "--help").text)
        self.assertRegex(self.succeed("version").text, r"^weft \d+\.")

    def test_models_that_this_computer_could_run(self):
        text = self.succeed("models", "embedding").text
        self.assertRegex(text, r"(?s)embeddings\n.*  Qwen/Qwen3-Embedding-0.6B-GGUF:Q8_0\n .*Apache-2.0: ")
        self.assertLess(max(map(len, text.splitlines())), 80)
        self.assertNotIn("gpt-oss", text)
        known = [line for line in self.succeed("models", "--json").json_lines if "use" in line]
        self.assertEqual({line["use"] for line in known}, {"chat", "code", "embeddings"})
        largest = max(known, key=lambda line: line["bytes"])
        smallest = min(known, key=lambda line: line["bytes"])
        self.assertGreaterEqual(smallest["conversations"], largest["conversations"])

    def test_without_a_model_the_last_one_is_taken(self):
        with tempfile.TemporaryDirectory() as home:
            env = {"WEFT_MODEL": "", "HOME": home, "XDG_STATE_HOME": "", "WEFT_CACHE": "",
                   "HF_HOME": "", "HF_HUB_CACHE": "", "WEFT_MODELS_DIR": ""}
            self.fail("run", "Hello", env=env, says=["-m smollm2", "-m box"])
            self.succeed("run", "-m", self.llama, "-n", 1, "Hello", env=env)
            self.succeed("run", "-m", "box", "-n", 1, "Hello", env=env)
            self.assertIn(str(self.llama), self.succeed("show", env=env).text)
            self.assertIn("weft-box", self.succeed("inspect", env={**env, "WEFT_MODEL": "box"}).text)

    def test_files_that_are_no_models_for_it_are_named_as_such(self):
        def text(value):
            return struct.pack("<Q", len(value)) + value.encode()

        for architecture, says in (("clip", "mmproj"), ("rwkv9", "architecture 'rwkv9'")):
            path = self.write(f"{architecture}.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) +
                              text("general.architecture") + struct.pack("<I", 8) +
                              text(architecture))
            self.fail("run", "-m", path, "Hello", says=says)
            self.fail("show", path, says=says)

    def test_wrong_usage(self):
        self.misuse("weave", says="weave")
        self.fail("run", stdin="", says="the prompt is empty")
        for command in ("tokenize", "detokenize", "logits"):
            self.misuse(command)  # the model would be the one in the box, but there is nothing to do
        self.misuse("run", "-m", "", "x", says="omit -m")
        self.misuse("run", "-m", self.llama, "x", "--no-such-flag", says="--no-such-flag")
        self.misuse("inspect", self.llama, "--no-such-flag", says="--no-such-flag")
        self.misuse("tokenize", "-m", self.llama, "two", "texts", says="texts")
        self.misuse("serve", "--no-built-in", says="name a model")

    def test_values_that_no_flag_takes(self):
        run = ["run", "-m", self.llama, "x"]
        self.misuse(*run, "-n", "many", says="many is not a number")
        self.misuse(*run, "-n", "1.5", says="1.5 is not a whole number")
        self.misuse(*run, "-n", "-2")
        self.misuse(*run, "--threads", "-1", says="--threads")
        self.misuse(*run, "--temp", "warm", says="--temp")
        self.misuse(*run, "--ctx", "-5", says="--ctx")
        self.misuse(*run, "--seed", "9" * 30, says="--seed")
        self.misuse(*run, "--temp", "-1", says="--temp")
        self.misuse(*run, "--top-k", "-2", says="--top-k")
        self.misuse(*run, "--top-p", "2", says="--top-p")
        self.misuse(*run, "--min-p", "2", says="--min-p")
        self.misuse(*run, "--backend", "abacus", says=["abacus", "cpu", "reference"])
        self.misuse(*run, "--kv", "f8", says=["f8", "q8_0"])
        self.misuse(*run, "--kv", "q8_0,f9", says=["f9", "q4_0"])
        self.misuse(*run, "--kv", "q8_0,f16", says=["q8_0,f16", "two of q8_0"])
        self.misuse(*run, "--gpu-layers", "some", says=["some", "auto"])
        self.misuse("inspect", self.llama, "--tensor", "output_norm.weight", says="--out")
        self.misuse("inspect", self.llama, "--out", self.dir / "o.f32", says="--tensor")
        self.misuse("detokenize", "-m", self.llama, "ten")
        logits = ["logits", "-m", self.llama, "--tokens", "t.json", "--out", self.dir / "o.f32"]
        self.misuse(*logits, "--chunk", "0", says="--chunk")
        self.misuse(*logits, "--chunk", "7,x", says="--chunk")
        self.misuse("run", "-m", says="-m")
        self.misuse("logits", "-m", self.llama, "--out", self.dir / "o.f32", says="--tokens")


class BenchTest(CliTest):
    # So many tokens that the second session begins before the first has all of its own.
    FEW = ("--threads", 1, "--repeat", 1, "--prompt", 16, "--decode", 64, "--sessions", "1,2")

    def test_its_lines_fit_a_terminal(self):
        for flags in (self.FEW, (*self.FEW, "--burst", "--fanout"), (*self.FEW, "--intruder", 1024)):
            text = self.succeed("bench", "-m", self.llama, *flags).text
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)
            self.assertRegex(text.splitlines()[1], r"^loaded .* in .* s \(.*/s, limited by .*\)$")
            self.assertRegex(text.splitlines()[2], f"^1 thread, {COMPUTING}, KV cache f16$")
            self.assertRegex(text.splitlines()[0], r", context \d+$")
        result = self.succeed("bench", "-m", self.llama, *self.FEW)
        self.assertEqual(result.err, "")  # progress is for terminals

    def test_json_is_results_alone(self):
        lines = self.succeed("bench", "-m", self.llama, *self.FEW, "--json").json_lines
        self.assertEqual([line["work"] for line in lines], ["prompt", "decode", "decode"])
        self.assertEqual(lines[0]["backend"], BACKEND)
        self.assertEqual("isa" in lines[0], BACKEND == "cpu")
        self.assertIn(lines[0].get("isa", "scalar"), ("scalar", "avx2", "avxvnni", "avx512"))

    def test_progress_on_a_terminal(self):
        process, terminal = pty.fork()
        if process == 0:
            os.execv(WEFT, [WEFT, "bench", "-m", str(self.llama), *map(str, self.FEW)])
        output = b""
        try:
            while read := os.read(terminal, 65536):
                output += read
        except OSError:  # how a terminal ends
            pass
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), 0)
        os.close(terminal)
        for part in (b"measuring the machine ...", b"a prompt of 16 tokens, run 1 of 1 ...",
                     b"2 decoding, run 1 of 1 ..."):
            self.assertIn(part, output)


class FileTest(CliTest):
    def test_files_that_are_no_models(self):
        missing = self.dir / "missing.gguf"
        for path, says in [
            (missing, "missing.gguf"),
            (self.dir, str(self.dir)),
            (self.write("empty.gguf", b""), "empty.gguf"),
            (self.write("text.gguf", b"#!/bin/sh\necho this is no model\n" * 9), "text.gguf"),
            (self.write("half.gguf", self.llama.read_bytes()[:200000]), "half.gguf"),
            (self.write("head.gguf", self.llama.read_bytes()[:9]), "head.gguf"),
        ]:
            self.fail("run", "-m", path, "x", says=says)
            self.fail("inspect", path, says=says)
            self.fail("tokenize", "-m", path, "x", says=says)
            self.fail("score", "-m", path, says=says)

    def test_an_architecture_that_nobody_knows(self):
        data = self.llama.read_bytes()
        # The same length, so that the file stays well-formed.
        self.assertIn(b"\x05\x00\x00\x00\x00\x00\x00\x00llama", data)
        path = self.write("strange.gguf", data.replace(b"llama", b"lhama"))
        self.fail("run", "-m", path, "x", says=["lhama", "inspect --architectures"])
        known = self.succeed("inspect", "--architectures").text.split()
        self.assertIn("llama", known)
        self.assertNotIn("lhama", known)
        self.assertEqual(json.loads(self.succeed("inspect", "--architectures", "--json").text), known)

    def test_token_files(self):
        out = self.dir / "bad.f32"
        for content, says in [
            ("[1, 2", "not valid JSON"),
            ('{"ids": [1]}', "tokens"),
            ('{"tokens": "1 2 3"}', "array"),
            ("[]", "no tokens"),
            ("[1, 2.5]", "item 1"),
            ("[1, -3]", "item 1"),
            ('["1"]', "item 0"),
            ("[1, 99999999999]", "item 1"),
            (f"[1, {VOCABULARY}]", str(VOCABULARY)),
        ]:
            path = self.write("bad.json", content)
            self.fail("logits", "-m", self.llama, "--tokens", path, "--out", out, says=says)
            self.assertFalse(out.exists(), f"{content}: a partial result was left behind")
        self.fail("logits", "-m", self.llama, "--tokens", self.dir / "none.json", "--out", out,
                  says="none.json")

    def test_what_cannot_be_read_is_told_with_the_reason(self):
        self.fail("template", "--template", self.dir, says="Is a directory")
        folder = os.open(self.dir, os.O_RDONLY)
        try:
            done = subprocess.run([WEFT, "tokenize", "-m", str(self.llama), "-"], stdin=folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
        finally:
            os.close(folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot read stdin: Is a directory", done.stderr)

    def test_an_error_that_nobody_reads_ends_the_program_all_the_same(self):
        reader, writer = os.pipe()
        try:
            os.set_blocking(writer, False)
            with self.assertRaises(BlockingIOError):
                while True:
                    os.write(writer, b"x" * 4096)
            os.set_blocking(writer, True)
            done = subprocess.run([WEFT, "run", "-m", "missing.gguf", "x"], stderr=writer,
                                  timeout=60)
        finally:
            os.close(reader)
            os.close(writer)
        self.assertEqual(done.returncode, 1)

    def test_places_that_cannot_be_written(self):
        tokens = self.write("ok.json", "[1, 300]")
        self.fail("logits", "-m", self.llama, "--tokens", tokens, "--out",
                  self.dir / "no" / "such.f32", says="such.f32")
        if os.path.exists("/dev/full"):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([WEFT, "inspect", str(self.llama), "--tensors"],
                                      stdout=full, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(b"stdout", done.stderr)


class InspectTest(CliTest):
    def test_text(self):
        text = self.succeed("inspect", self.llama, "--tensors").text
        for part in ["llama.block_count = 4", "general.architecture", "token_embd.weight", "F32"]:
            self.assertIn(part, text)

    def test_json(self):
        result = self.succeed("inspect", self.llama, "--json", "--tensors").json
        self.assertEqual(result["file_bytes"], self.llama.stat().st_size)
        self.assertEqual(result["metadata"]["llama.embedding_length"], 256)
        self.assertEqual(len(result["metadata"]["tokenizer.ggml.tokens"]), VOCABULARY)
        by_name = {tensor["name"]: tensor for tensor in result["tensors"]}
        embedding = by_name["token_embd.weight"]
        self.assertEqual(embedding["dims"], [256, VOCABULARY])
        self.assertEqual(embedding["bytes"], 4 * 256 * VOCABULARY)
        self.assertNotIn("tensors", self.succeed("inspect", self.llama, "--json").json)

    def test_a_decoded_tensor(self):
        out = self.dir / "norm.f32"
        self.succeed("inspect", self.llama, "--tensor", "output_norm.weight", "--out", out)
        self.assertEqual(len(read_floats(out)), 256)
        quantized = make_model(self.dir / "q4.gguf", "tiny-llama", "Q4_0")
        self.succeed("inspect", quantized, "--tensor", "blk.0.attn_q.weight", "--out", out)
        values = read_floats(out)
        self.assertEqual(len(values), 256 * 256)
        self.assertTrue(all(math.isfinite(value) for value in values))
        self.assertGreater(len(set(values)), 100)

    def test_tensors_that_are_not_there(self):
        self.fail("inspect", self.llama, "--tensor", "blk.9.attn_q.weight", "--out",
                  self.dir / "x.f32", says="blk.9.attn_q.weight")
        code = weft("inspect", self.llama, "--tensor", "output_norm.weight").code
        self.assertIn(code, (1, 2))


class TokenizeTest(CliTest):
    def test_there_and_back(self):
        for text in [TEXT, "", " ", "\n\n  x\t", "naïve 漢字 🧵🪡", "a" * 5000]:
            ids = self.tokens(text)
            # SentencePiece puts a space before the text, and takes it away again.
            back = self.succeed("detokenize", "-m", self.llama, "--json", *ids) if ids else None
            self.assertEqual(back.json["text"] if back else "", text)

    def test_plain_and_json_agree(self):
        plain = self.succeed("tokenize", "-m", self.llama, TEXT).text
        self.assertEqual([int(word) for word in plain.split()], self.tokens())
        result = self.succeed("tokenize", "-m", self.llama, "--json", TEXT).json
        self.assertEqual(len(result["pieces"]), len(result["tokens"]))

    def test_stdin(self):
        from_stdin = self.succeed("tokenize", "-m", self.llama, "-", stdin=TEXT).text
        self.assertEqual(from_stdin, self.succeed("tokenize", "-m", self.llama, TEXT).text)
        self.succeed("tokenize", "-m", self.llama, "-", stdin=b"\xff\xfe\x80 bytes \xc3")

    def test_special_tokens(self):
        with_bos = self.succeed("tokenize", "-m", self.llama, "--add-bos", "--json", TEXT).json
        self.assertEqual(with_bos["tokens"], [1] + self.tokens())
        parsed = self.tokens("</s>")
        plain = self.succeed("tokenize", "-m", self.llama, "--no-special", "--json", "</s>").json
        self.assertEqual(parsed[-1], 2)
        self.assertNotIn(2, plain["tokens"])

    def test_ids_outside_the_vocabulary(self):
        self.fail("detokenize", "-m", self.llama, VOCABULARY, says=str(VOCABULARY))


class LogitsTest(CliTest):
    def logits(self, model, tokens, *flags):
        path = self.write("tokens.json", json.dumps(tokens))
        out = self.dir / "logits.f32"
        self.succeed("logits", "-m", model, "--tokens", path, "--out", out, *flags)
        data = out.read_bytes()
        out.unlink()
        return data

    def test_shape_and_forms_of_input(self):
        tokens = self.tokens()
        data = self.logits(self.llama, tokens)
        self.assertEqual(len(data), 4 * VOCABULARY * len(tokens))
        self.assertEqual(self.logits(self.llama, {"tokens": tokens, "note": "ignored"}), data)
        # A prefix's logits do not know what follows.
        self.assertEqual(self.logits(self.llama, tokens[:5]), data[:4 * VOCABULARY * 5])

    def test_the_same_bits_however_it_is_computed(self):
        for shape, kind in [("tiny-llama", "F32"), ("tiny-llama", "Q4_0"), ("tiny-qwen3", "Q8_0"),
                            ("tiny-gemma3", "Q4_K_M"), ("tiny-moe", "F16")]:
            model = make_model(self.dir / "model.gguf", shape, kind)
            tokens = [(7 * i * i + 300 + i) % VOCABULARY for i in range(100)]
            expected = self.logits(model, tokens)
            for flags in [("--chunk", 1), ("--chunk", 7), ("--chunk", 64), ("--chunk", "1,30,2"),
                          ("--threads", 1), ("--threads", 2), ("--chunk", 7, "--threads", 2)]:
                same = self.logits(model, tokens, *flags) == expected
                self.assertTrue(same, f"{shape} {kind}: other bits with {flags}")

    @unittest.skipUnless(BACKEND == "cpu", "only the cpu backend packs on the host")
    def test_a_packed_copy_gives_the_same_bits(self):
        model = make_model(self.dir / "copied.gguf", "tiny-qwen3", "Q4_K_M")
        path = self.write("tokens.json", json.dumps([5 * i * i + i for i in range(14)]))
        out, folder, outputs = self.dir / "logits.f32", self.dir / "copies", []
        copying = ("--packed-cache", folder)
        for flags, says in [((), "^$"), (copying, f"was written to {folder}"), (copying, "^$")]:
            result = self.succeed("logits", "-m", model, "--tokens", path, "--out", out, *flags)
            self.assertRegex(result.err, says, result)
            outputs.append(out.read_bytes())
        self.assertEqual(len(list(folder.glob("*.packed"))), 1)
        self.assertEqual(outputs, outputs[:1] * 3)

    @unittest.skipUnless(BACKEND == "cpu", "only the cpu backend packs on the host")
    def test_large_models_have_packed_copies_by_default(self):
        model = make_model(self.dir / "large.gguf", "tiny-llama", "Q8_0")
        path = self.write("tokens.json", "[1, 2, 3]")
        cache = self.dir / "cache"

        def says(pattern, *flags, cache=cache):
            env = {"WEFT_CACHE": str(cache)}
            result = self.succeed("logits", "-m", model, "--tokens", path, "--out",
                                  self.dir / "logits.f32", *flags, env=env)
            self.assertRegex(result.err, pattern, result)

        says("^$")
        os.truncate(model, 256 << 20)  # large enough for a copy; the added bytes are unused
        says("^$", "--packed-cache", "none")
        self.assertFalse(cache.exists())
        says(f"^[^\\n]*was written to {cache}/packed: [^\\n]*--packed-cache none[^\\n]*\\n$")
        self.assertEqual(len(list(cache.glob("packed/*.packed"))), 1)
        says("^$")

        env = {"WEFT_CACHE": str(cache)}
        self.assertRegex(self.succeed("show", model, env=env).text, f"packed copy .* in {cache}/packed")
        removed = self.succeed("rm", "--packed", env=env).text
        self.assertRegex(removed, f"^the packed copies in {cache}/packed are removed, .* are free$")
        self.assertEqual(list(cache.glob("packed/*.packed")), [])
        self.assertRegex(self.succeed("rm", "--packed", env=env).text, "^there are no packed copies")
        self.assertEqual(weft("rm", env=env).code, 2)
        self.assertEqual(weft("rm", "--packed", "tiny", env=env).code, 2)
        says("^[^\\n]*no packed copy[^\\n]*\\n$", cache="/dev/null/cache")

    def test_what_can_compute_here_is_listed(self):
        rows = self.succeed("devices", "--json").json_lines
        for row in rows:
            self.assertTrue("problem" in row or row["memory_bytes"] >= row["free_bytes"] > 0, row)
        usable = {row["backend"] for row in rows if row.get("device") == 0}
        self.assertLessEqual({"cpu", "emu", "reference"}, usable)
        text = self.succeed("devices").text
        self.assertRegex(text, r"BACKEND +DEVICE +MEMORY +FREE +NAME\n")
        for row in rows:
            self.assertIn(row.get("name") or row["problem"], text)

    def test_devices_that_are_not_there(self):
        self.fail("run", "-m", self.llama, "--device", "1", "x", says="has one device, 0, and no 1")
        problem = next((row["problem"] for row in self.succeed("devices", "--json").json_lines
                        if row["backend"] == "cuda" and "problem" in row), None)
        if problem is None:
            self.skipTest("there is a device")
        # Not compiled in: wrong usage. Compiled in, and no device: a failure.
        done = weft("run", "-m", self.llama, "--backend", "cuda", "x")
        self.assertIn(done.code, [1, 2], done)
        self.assertIn(problem, " ".join(done.err.split()))

    def test_backends_agree(self):
        tokens = self.tokens()
        self.write("tokens.json", json.dumps(tokens))
        rows = []
        for backend in ["cpu", "reference", "emu"]:
            out = self.dir / f"{backend}.f32"
            self.succeed("logits", "-m", self.llama, "--tokens", self.dir / "tokens.json",
                         "--backend", backend, "--out", out)
            rows.append(read_floats(out))
        for other in rows[1:]:
            self.assertLess(max(abs(a - b) for a, b in zip(rows[0], other)), 1e-3)
        self.assertGreater(max(map(abs, rows[0])), 0.1)

    @unittest.skipUnless(BACKEND == "cpu", "names the backends itself")
    def test_a_device_computes_as_many_layers_as_it_is_told(self):
        tokens = self.tokens()
        path = self.write("tokens.json", json.dumps(tokens))
        out = self.dir / "logits.f32"

        def computed(*flags, by):
            result = self.succeed("logits", "-m", self.llama, "--tokens", path, "--out", out,
                                  "--backend", "emu", *flags)
            self.assertIn(f"layers computed by {by}\n", result.err)
            return out.read_bytes()

        half = computed("--gpu-layers", 1, by="cpu:3+emu:1")
        self.assertEqual(computed("-ngl", 1, "--chunk", 5, by="cpu:3+emu:1"), half)
        self.assertEqual(computed("--n-gpu-layers", 0, by="cpu"), self.logits(self.llama, tokens))
        self.assertEqual(computed("-ngl", 99, by="emu"),
                         self.logits(self.llama, tokens, "--backend", "emu"))
        computed("--gpu-layers", "auto", by="emu")
        self.fail("logits", "-m", self.llama, "--tokens", path, "--out", out, "--gpu-layers", 1,
                  says="--backend cuda")

    @unittest.skipUnless(BACKEND == "cpu", "names the backends itself")
    def test_experts_are_computed_where_the_flags_say(self):
        moe = make_model(self.dir / "moe.gguf", "tiny-moe")
        path = self.write("moe.json", json.dumps(self.tokens(moe)))
        out = self.dir / "moe.f32"
        command = ["logits", "-m", moe, "--tokens", path, "--out", out, "--backend"]

        def computed(*flags, by):
            result = self.succeed(*command, "emu", *flags)
            self.assertIn(f"layers computed by {by}\n", result.err)
            return out.read_bytes()

        metadata = self.succeed("inspect", moe, "--json").json["metadata"]
        layers = next(value for key, value in metadata.items() if key.endswith(".block_count"))
        every = computed("--cpu-moe", by=f"emu+cpu-experts:{layers}")
        for flags in [["-cmoe", "--chunk", 5], ["-ncmoe", 99]]:
            self.assertEqual(computed(*flags, by=f"emu+cpu-experts:{layers}"), every)
        computed("--n-cpu-moe", 1, by="emu+cpu-experts:1")
        computed("--n-cpu-moe", layers, "-ngl", 1, by=f"cpu:{layers - 1}+emu+cpu-experts:1:1")
        self.misuse(*command, "emu", "--cpu-moe", "--n-cpu-moe", 1, says="--cpu-moe")
        self.fail(*command, "cpu", "--cpu-moe", says="--backend cuda")
        command[2] = self.llama
        self.fail(*command, "emu", "--cpu-moe", says="no mixtures of experts")

    def test_other_instruction_sets_give_the_same_bits(self):
        tokens = self.write("isa.json", json.dumps(self.tokens()))
        results = set()
        for isa in ["scalar", "avx2", "avxvnni", "avx512"]:
            out = self.dir / "isa.f32"
            self.succeed("logits", "-m", self.llama, "--tokens", tokens, "--out", out,
                         env={"WEFT_ISA": isa})
            results.add(out.read_bytes())
        self.assertEqual(len(results), 1)


class RunTest(CliTest):
    def run_json(self, *flags, prompt=TEXT):
        return self.succeed("run", "-m", self.llama, "--raw", "--json", *flags, prompt).json

    def test_text_arrives_on_stdout_alone(self):
        result = self.succeed("run", "-m", self.llama, "-n", 8, "--temp", 0, TEXT)
        self.assertEqual(result.err, "")
        self.assertTrue(result.out.endswith(b"\n"))

    def test_json(self):
        result = self.run_json("-n", 8, "--temp", 0)
        self.assertEqual(result["prompt_tokens"], len(self.tokens()) + 1)  # and BOS
        self.assertLessEqual(result["completion_tokens"], 8)
        self.assertIn(result["finish_reason"], ("stop", "length"))
        answer = self.succeed("run", "-m", self.llama, "-n", 8, "--json", TEXT).json
        self.assertGreater(answer["prompt_tokens"], result["prompt_tokens"])

    def test_a_model_with_a_template_answers(self):
        question = "My name is Mira. What is my name?"
        answer = self.succeed("run", "--temp", 0, "--json", question).json
        self.assertIn("Mira", answer["text"])
        self.assertEqual(answer["finish_reason"], "stop")
        raw = self.succeed("run", "--temp", 0, "--json", "--raw", "-n", 4, question).json
        text = self.succeed("tokenize", "--add-bos", "--json", question).json["tokens"]
        self.assertEqual(raw["prompt_tokens"], len(text))
        self.assertLess(raw["prompt_tokens"], answer["prompt_tokens"])
        # As people try it.
        for arguments in ([question], ["run", "-p", question]):
            said = self.succeed(*arguments, "--temp", 0).text
            self.assertEqual(said.strip(), answer["text"].strip())
        piped = self.succeed("run", "--temp", 0, stdin=question)
        self.assertEqual(piped.text.strip(), answer["text"].strip())

    def test_an_answer_of_a_given_form(self):
        question = "My name is Mira. What is my name?"
        for raw in ([], ["--raw"]):
            self.assertIn(self.succeed("run", *raw, "--regex", "Mira|Zoe", question).text.strip(),
                          ("Mira", "Zoe"))
            schema = json.dumps({"properties": {"name": {"enum": ["Mira", "Zoe"]}},
                                 "required": ["name"], "additionalProperties": False,
                                 "type": "object"})
            answer = json.loads(self.succeed("run", *raw, "--json-schema", schema, question).text)
            self.assertIn(answer["name"], ("Mira", "Zoe"))
        grammar = self.write("yes.gbnf", 'root ::= "yes" | "no"')
        self.assertIn(self.succeed("run", "--grammar", grammar, question).text.strip(),
                      ("yes", "no"))
        self.fail("run", "--regex", "(a", question, says="regular expression")

    def test_a_cut_that_nobody_asked_for_is_told(self):
        cut = self.succeed("run", "-m", self.llama, "--ctx", 64, "--temp", 2, "--seed", 1, TEXT)
        self.assertRegex(cut.err, r"^weft: cut off after \d+ tokens, because the context is full; --ctx")
        self.assertEqual(self.succeed("run", "-m", self.llama, "-n", 3, TEXT).err, "")

    def test_equal_seeds_give_equal_output(self):
        flags = ["-n", 24, "--temp", 1.5, "--top-k", 0, "--top-p", 1]
        first = self.run_json(*flags, "--seed", 7)
        self.assertEqual(first["seed"], 7)
        self.assertEqual(self.run_json(*flags, "--seed", 7, "--threads", 1)["tokens"],
                         first["tokens"])
        others = [self.run_json(*flags, "--seed", seed)["tokens"] for seed in (8, 9, 10)]
        self.assertTrue(any(tokens != first["tokens"] for tokens in others))

    def test_a_seed_that_was_drawn_can_be_given(self):
        flags = ["-n", 12, "--temp", 2]
        drawn = self.run_json(*flags)
        again = self.run_json(*flags, "--seed", drawn["seed"])
        self.assertEqual(again["tokens"], drawn["tokens"])

    def test_greedy_is_what_the_logits_say(self):
        result = self.run_json("-n", 6, "--temp", 0, "--kv", "f32")
        tokens = [1] + self.tokens() + result["tokens"]
        path, out = self.write("greedy.json", json.dumps(tokens)), self.dir / "greedy.f32"
        self.succeed("logits", "-m", self.llama, "--tokens", path, "--out", out)
        values = read_floats(out)
        for i, token in enumerate(result["tokens"]):
            row = len(tokens) - len(result["tokens"]) + i - 1
            logits = values[row * VOCABULARY:(row + 1) * VOCABULARY]
            self.assertEqual(token, logits.index(max(logits)), f"token {i}")

    def test_stdin(self):
        flags = ["-n", 8, "--temp", 0]
        piped = self.succeed("run", "-m", self.llama, *flags, "-", stdin=TEXT)
        self.assertEqual(piped.out, self.succeed("run", "-m", self.llama, *flags, TEXT).out)

    def test_every_kv_type(self):
        types = ["f32", "f16", "bf16"] + (["q8_0"] if BACKEND != "mlx" else [])
        if BACKEND in ("cpu", "reference"):
            types += ["q5_0", "q4_0", "q5_0,q4_0", "q8_0,q4_0"]
        else:
            refused = weft("run", "-m", self.llama, "--kv", "q5_0,q4_0", "-n", "1", "x")
            self.assertIn("it has", refused.err)
        for kv in types:
            self.assertEqual(self.run_json("-n", 4, "--temp", 0, "--kv", kv)["prompt_tokens"],
                             len(self.tokens()) + 1)

    @unittest.skipUnless(BACKEND == "cpu", "KV types of levels")
    def test_show_tells_what_each_kv_type_costs(self):
        path = self.dir / "accuracy.txt"
        path.write_text(TEXT * 20)
        shown = self.succeed("show", self.llama, "--backend", BACKEND, "--json", "--accuracy", path,
                             "--accuracy-tokens", 200).json["accuracy"]
        types = {row["kv"]: row for row in shown}
        self.assertEqual((types["f32"]["kl"], types["f32"]["same_best"]), (0, 1))
        self.assertLessEqual(3 * types["q5_0,q4_0"]["bytes_per_token"],
                             types["f16"]["bytes_per_token"])
        self.assertLess(types["f16"]["kl"], types["q4_0"]["kl"])
        self.assertLess(types["q5_0"]["kl"], types["q4_0"]["kl"])
        told = self.succeed("show", self.llama, "--backend", BACKEND, "--accuracy", path,
                            "--accuracy-tokens", 20).text
        self.assertIn("same best token", told)
        path.write_text("")
        self.fail("show", self.llama, "--backend", BACKEND, "--accuracy", path,
                  says="less than two tokens")

    def test_a_prompt_longer_than_the_context(self):
        self.fail("run", "-m", self.llama, "--ctx", 32, "word " * 400, says="context")

    def test_the_models_own_sampling(self):
        advised = add_metadata(self.llama, {
            "general.sampling.temp": 0.0, "general.sampling.top_k": 7,
            "general.sampling.mirostat": 2}, self.dir / "advised.gguf")
        greedy = self.succeed("run", "-m", self.llama, "--json", "-n", 12, "--temp", 0, TEXT).json
        for seed in (1, 2):
            own = self.succeed("run", "-m", advised, "--json", "-n", 12, "--seed", seed, TEXT).json
            self.assertEqual(own["tokens"], greedy["tokens"])
        hot = ("--json", "-n", 12, "--seed", 1, "--temp", 9, "--top-k", 0, "--top-p", 1,
               "--min-p", 0, TEXT)
        self.assertEqual(self.succeed("run", "-m", advised, *hot).json["tokens"],
                         self.succeed("run", "-m", self.llama, *hot).json["tokens"])
        shown = self.succeed("show", advised).text
        self.assertIn("sampling      temperature 0, top_k 7 (file); top_p 0.95, min_p 0.05 "
                      "(Weft's own)\n", shown)
        self.assertIn("not used      mirostat 2\n", shown)
        self.assertEqual(self.succeed("show", "--json", advised).json["sampling"],
                         {"by": ["file"], "values": {"temperature": 0.0, "top_k": 7}, "stop": [],
                          "not_used": ["mirostat 2"]})

    def test_show_tells_whether_thoughts_are_kept(self):
        thinks = "{% for m in messages %}{% if m.reasoning_content and (KEPT or loop.last) %}<think>" \
                 "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}{% endfor %}"
        for kept, text, variable in (("not clear_thinking", "yes, kept between turns by clear_thinking",
                                      "clear_thinking"),
                                     ("true", "yes, kept between turns", None),
                                     ("false", "yes, dropped at the next user message", None)):
            model = add_metadata(self.llama, {"tokenizer.chat_template": thinks.replace("KEPT", kept)},
                                 self.dir / "thinks.gguf")
            self.assertIn(f"reasoning     {text}\n", self.succeed("show", model).text)
            told = self.succeed("show", "--json", model).json["chat"]["past_thoughts"]
            self.assertEqual((told["kept"], told["variable"]), (kept != "false", variable))

    def test_sampling_values_that_make_no_sense(self):
        for flags in [("--temp", "nan"), ("--temp", "-1"), ("--top-p", "2"), ("--min-p", "-0.5"),
                      ("--top-k", "-3")]:
            result = weft("run", "-m", self.llama, "-n", 1, *flags, "x")
            self.assertIn(result.code, (1, 2), result)
            self.assertTrue(result.err.strip(), result)

    def test_a_reader_that_goes_away(self):
        process = subprocess.Popen([WEFT, "run", "-m", str(self.llama), "-n", "2000", "--temp", "2",
                                    "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        process.stderr.read()
        process.stderr.close()
        self.assertIn(process.wait(timeout=60), (0, 1))


class ConstrainTest(CliTest):
    SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 12},
                                               "s": {"enum": ["warp", "weft"]}},
              "required": ["n"], "additionalProperties": False}

    def constrain(self, *args, stdin):
        return self.succeed("constrain", "-m", self.llama, *args, stdin=stdin).json_lines

    def test_values_are_walked_through_masks(self):
        schema = self.write("schema.json", json.dumps(self.SCHEMA))
        lines = ['{"n": 12, "s": "weft"}', '{"n":-3}', '{"n": 13}', '{"s": "warp"}', '{"n": 1',
                 '{"s": "weft", "n": 5}']
        stdin = "".join(line + "\n" for line in lines)
        results = self.constrain("--json-schema", schema, stdin=stdin)
        self.assertEqual([r["accepted"] for r in results], [True, True, False, False, False, True])
        self.assertEqual([r["at"] for r in results], [None, None, 7, 12, 7, None])
        for result in results:
            self.assertGreater(result["masks"], 0)
            self.assertGreaterEqual(result["max_us"], result["mask_us"])
        # The schema may be the first line, and the order may be the schema's.
        again = self.constrain("--json-schema", "-", "--order", "schema",
                               stdin=json.dumps(self.SCHEMA) + "\n" + stdin)
        self.assertEqual([r["at"] for r in again], [None, None, 7, 2, 7, 2])

    def test_grammars_and_expressions(self):
        grammar = self.write("sum.gbnf", 'root ::= n ("+" n)*\nn ::= [0-9]+\n')
        walked = self.constrain("--grammar", grammar, stdin="1+23\n1+\n1-2\n")
        self.assertEqual([r["at"] for r in walked], [None, 2, 1])
        walked = self.constrain("--regex", "(weft|warp)s?", stdin="wefts\nwoof\n")
        self.assertEqual([r["at"] for r in walked], [None, 1])

    def test_answers_are_made_of_what_is_allowed(self):
        schema = self.write("schema.json", json.dumps(self.SCHEMA))
        args = ["--json-schema", schema, "--generate", "20", "--temp", "1", "-n", "60"]
        answers = self.constrain(*args, stdin="")
        self.assertEqual(len(answers), 20)
        for answer in answers:
            self.assertEqual(answer["finish_reason"], "stop", answer)
            value = json.loads(answer["text"])
            self.assertLessEqual(value["n"], 12)
            self.assertLessEqual(set(value), {"n", "s"})
        self.assertGreater(len({answer["text"] for answer in answers}), 1)
        self.assertEqual(self.constrain(*args, stdin=""), answers)
        # An answer that is cut is the beginning of one.
        cut = self.constrain("--regex", "(ab){40}", "--generate", "1", "-n", "9", stdin="")[0]
        self.assertEqual(cut["finish_reason"], "length")
        self.assertEqual(cut["tokens"], 9)
        self.assertTrue(("ab" * 40).startswith(cut["text"]), cut)

    def test_a_refusal_has_its_own_exit_code(self):
        result = weft("constrain", "-m", self.llama, "--json-schema", "-",
                      stdin='{"properties": {"l": {"type": "array", "uniqueItems": true}}}\n')
        self.assertEqual(result.code, 3, result)
        self.assertIn("uniqueItems at #/properties/l", result.err)
        self.assertEqual(result.out, b"", result)
        self.fail("constrain", "-m", self.llama, says="--json-schema")

    def test_errors_name_the_flag_and_the_file(self):
        bad = self.write("bad.json", '{"type": "nothing"}')
        for command in (["run"], ["run", "--raw"]):
            self.fail(*command, "-m", self.llama, "--json-schema", bad, "Hello",
                      says=f"--json-schema {bad}: ")
        result = weft("constrain", "-m", self.llama, "--json-schema", bad, stdin="")
        self.assertEqual(result.code, 3, result)
        self.assertIn(f"--json-schema {bad}: ", result.err)
        self.fail("run", "-m", self.llama, "--grammar", "/nope", "Hello",
                  says="--grammar: cannot open /nope: No such file")
        for flag in ("--api-key-file", "--metrics-key-file"):
            self.fail("serve", "-m", self.llama, "--port", "0", flag, "/nope",
                      says=f"{flag}: cannot open /nope: No such file")
        for flag in ("--memory", "--state-disk"):
            self.misuse("serve", "-m", self.llama, flag, "12Q",
                        says=[flag, "12Q is not a number of bytes"])


class ScoreTest(CliTest):
    def score(self, *lines):
        return self.succeed("score", "-m", self.llama,
                            stdin="".join(json.dumps(line) + "\n" for line in lines)).json_lines

    def test_log_likelihoods(self):
        line = {"context": "The warp stays and", "continuation": " the weft travels"}
        one = self.score(line)[0]
        self.assertLess(one["logprob"], 0)
        self.assertGreater(one["tokens"], 0)
        self.assertIsInstance(one["is_greedy"], bool)
        # Order and company change nothing, not even a bit.
        other = {"context": "Other", "continuation": " words entirely"}
        many = self.score(other, line, *[other] * 20, line)
        self.assertEqual(many[1], one)
        self.assertEqual(many[22], one)
        self.assertEqual(many[0], many[2])

    def expected(self, model, tokens, n_context):
        """The log-likelihood of tokens[n_context:], from the logits."""
        path, out = self.write("score.json", json.dumps(tokens)), self.dir / "score.f32"
        self.succeed("logits", "-m", model, "--tokens", path, "--kv", "f16", "--out", out)
        values = read_floats(out)
        width = len(values) // len(tokens)
        total = 0.0
        for i in range(n_context, len(tokens)):
            row = values[(i - 1) * width:i * width]
            top = max(row)
            total += row[tokens[i]] - top - math.log(sum(math.exp(v - top) for v in row))
        return total

    def test_it_agrees_with_the_logits(self):
        context, continuation = "The warp", " stays here"
        tokens = [1] + self.tokens(context + continuation)
        n_context = 1 + len(self.tokens(context))
        scored = self.score({"context": context, "continuation": continuation})[0]
        self.assertEqual(scored["tokens"], len(tokens) - n_context)
        self.assertAlmostEqual(scored["logprob"], self.expected(self.llama, tokens, n_context),
                               places=3)

    def test_a_token_that_spans_the_border_counts_to_the_continuation(self):
        context, continuation = "The warp", "t is"
        tokens = [1] + self.tokens(context + continuation)
        before = [1] + self.tokens(context)
        self.assertNotEqual(tokens[:len(before)], before, "this pair of texts tests nothing")
        n_context = next(i for i, (a, b) in enumerate(zip(before, tokens)) if a != b)
        scored = self.score({"context": context, "continuation": continuation})[0]
        self.assertEqual(scored["tokens"], len(tokens) - n_context)
        self.assertAlmostEqual(scored["logprob"], self.expected(self.llama, tokens, n_context),
                               places=3)

    def test_nothing_is_certain(self):
        self.assertEqual(self.score({"context": "The warp", "continuation": ""})[0],
                         {"logprob": 0, "is_greedy": True, "tokens": 0})

    def test_the_end_of_a_text_stands_before_a_first_token_without_bos(self):
        qwen = make_model(self.dir / "qwen3.gguf", "tiny-qwen3")
        end = self.succeed("inspect", qwen, "--json").json["metadata"][
            "tokenizer.ggml.eos_token_id"]
        tokens = [end] + self.tokens("stays", qwen)
        line = json.dumps({"context": "", "continuation": "stays"})
        scored = self.succeed("score", "-m", qwen, stdin=line + "\n").json
        self.assertEqual(scored["tokens"], len(tokens) - 1)
        self.assertAlmostEqual(scored["logprob"], self.expected(qwen, tokens, 1), places=3)

    def test_the_likeliest_continuation_is_greedy(self):
        context = "The warp stays"
        made = self.succeed("run", "-m", self.llama, "--raw", "--json", "-n", 1, "--temp", 0,
                            context).json
        if made["text"] and self.tokens(context + made["text"]) == \
                self.tokens(context) + made["tokens"]:
            self.assertTrue(self.score({"context": context, "continuation": made["text"]})[0]
                            ["is_greedy"])

    def test_empty_lines_and_no_lines(self):
        self.assertEqual(self.succeed("score", "-m", self.llama, stdin="").out, b"")
        self.assertEqual(self.succeed("score", "-m", self.llama, stdin="\n \n").out, b"")

    def test_lines_that_are_wrong(self):
        for line in ["not json", "[]", '{"context": "x"}', '{"context": 1, "continuation": "y"}']:
            self.fail("score", "-m", self.llama, stdin=line + "\n", says="line 1")


if __name__ == "__main__":
    unittest.main()
