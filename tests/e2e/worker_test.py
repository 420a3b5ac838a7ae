#!/usr/bin/env python3
"""weft worker as a control plane drives it: lines in, lines out, and nothing else on stdout."""

import json
import pathlib
import queue
import signal
import subprocess
import tempfile
import threading
import unittest

from weft_process import TIMEOUT_S, add_metadata, command_line, make_model, weft

PROMPT = "the weft travels"


class Worker:
    """A worker process. Its stdout is read by a thread, so that silence can be noticed."""

    def __init__(self, model, *flags):
        self.process = subprocess.Popen(
            command_line("worker", "--model_path", model, *flags),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        self.log = []
        self.readers = [threading.Thread(target=self.read, args=(stream, put), daemon=True)
                        for stream, put in ((self.process.stdout, self.lines.put),
                                            (self.process.stderr, self.log.append))]
        for reader in self.readers:
            reader.start()
        self.ready = self.next()

    @staticmethod
    def read(stream, put):
        for line in stream:
            put(line)

    def next(self):
        return json.loads(self.lines.get(timeout=TIMEOUT_S))

    def send(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def ask(self, **request):
        """The text that came, and the last answer."""
        self.send(json.dumps(request))
        text = ""
        while True:
            answer = self.next()
            if "token" not in answer:
                return text, answer
            assert answer["token"], "an empty token line"
            text += answer["token"]

    def close(self):
        """Closes stdin; the exit code, and lines that nobody asked for."""
        self.process.stdin.close()
        return self.end()

    def end(self):
        """Once it has ended: the exit code, and lines that nobody has read."""
        code = self.process.wait(timeout=TIMEOUT_S)
        for reader in self.readers:
            reader.join(TIMEOUT_S)
        lines = []
        while not self.lines.empty():
            lines.append(self.lines.get())
        return code, lines


class WorkerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = make_model(pathlib.Path(cls.folder.name) / "llama.gguf")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def start(self, *flags, model=None):
        worker = Worker(model or self.model, *flags)
        self.addCleanup(worker.process.stdin.close)
        self.addCleanup(worker.process.stderr.close)
        self.addCleanup(worker.process.stdout.close)
        self.addCleanup(worker.process.wait)
        self.addCleanup(worker.process.kill)
        return worker

    def test_life(self):
        worker = self.start("--tokenizer_path", "/no/such/tokenizer.json")
        self.assertEqual(worker.ready["ready"], True)
        self.assertEqual(worker.ready["max_named_sessions"], worker.ready["max_sessions"] - 1)
        self.assertNotIn("supports_cancel", worker.ready)
        self.assertEqual(worker.close(), (0, []))
        self.assertIn("/no/such/tokenizer.json is ignored", "".join(worker.log))

    def test_thoughts_and_sampling_are_what_the_flags_say(self):
        template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>"
        model = add_metadata(self.model, {"tokenizer.chat_template": template,
                                          "general.sampling.temp": 5.0},
                             pathlib.Path(self.folder.name) / "thinks.gguf")

        def said(*flags, **request):
            worker = self.start(*flags, model=model)
            text, done = worker.ask(prompt=PROMPT + "<think>", max_new_tokens=14, **request)
            self.assertTrue(done["done"], done)
            self.assertEqual(worker.close()[0], 0)
            return text

        greedy = said(temperature=0)
        self.assertNotIn("</think>", greedy)
        self.assertEqual(said("--temp", 0), greedy)
        self.assertNotEqual(said("--seed", 1), greedy)  # the model recommends 5
        self.assertEqual(said("--temp", 0, temperature=None), greedy)
        off = said("--reasoning", "off", temperature=0)
        self.assertTrue(off.lstrip().startswith("</think>"), off)
        self.assertIn("</think>", said("--reasoning-budget", 2, temperature=0))

    def test_flags_of_the_launchers(self):
        for flags in (["--tokenizer_path=T", "--max_sessions=3", "--warm_resume=false"],
                      ["--tokenizer_path", "T", "--max_sessions", "3", "--warm_resume=true",
                       "--bos_id", "1", "--eos_id", "2", "--data_path", "D"]):
            worker = self.start(*flags)
            self.assertEqual(worker.ready,
                             {"ready": True, "max_sessions": 3, "max_named_sessions": 2})
            self.assertEqual(worker.close(), (0, []))

    def test_flags_of_the_launcher_for_images_and_drafts(self):
        worker = self.start("--artifact_mode", "auto", "--dflash_block_length", "4",
                            "--dflash_n_draft=3", "--dflash_draft_argmax=true",
                            "--cuda_graph=false", "--max_image_bytes", 1 << 20,
                            "--pos_embed_path", "P")
        self.assertIs(worker.ready["supports_image"], False)
        self.assertEqual(worker.close(), (0, []))

    def test_a_draft_changes_no_answer(self):
        alone = self.start("--temp", 0).ask(prompt=PROMPT, max_new_tokens=30)[0]
        for mode in ("auto", "dflash"):
            worker = self.start("--temp", 0, "--artifact_mode", mode, "--draft-model", self.model)
            self.assertEqual(worker.ask(prompt=PROMPT, max_new_tokens=30)[0], alone)
            self.assertEqual(worker.close(), (0, []))
        result = weft("worker", "--model_path", self.model, "--artifact_mode", "dflash")
        self.assertEqual((result.code, result.out), (1, b""), result)
        self.assertIn("--draft-model", result.err)

    def test_wrong_launches_say_nothing_on_stdout(self):
        for args, code in (((), 2), (("--model_path", "/no/such/file"), 1),
                           (("--model_path", self.model, "--max_sessions", "0"), 2),
                           (("--model_path", self.model, "--eos_id", "99999999"), 1)):
            result = weft("worker", *args)
            self.assertEqual((result.code, result.out), (code, b""), result)
            self.assertTrue(result.err.strip(), result)

    def test_greedy_is_what_run_says(self):
        expected = weft("run", "-m", self.model, "--raw", "--temp", "0", "-n", "12", "--json",
                        PROMPT).json
        worker = self.start("--bos_id", "1")
        text, done = worker.ask(prompt=PROMPT, max_new_tokens=12)
        self.assertEqual(text, expected["text"])
        self.assertEqual(done["generated_token_ids"], expected["tokens"])
        self.assertEqual(done["prompt_tokens"], expected["prompt_tokens"])
        self.assertEqual((done["finish_reason"], done["completion_tokens"]), ("length", 12))
        ids = weft("tokenize", "-m", self.model, "--json", PROMPT).json["tokens"]
        segments, split = worker.ask(prompt_segments=[{"ids": ids[:2]}, {"ids": ids[2:]}],
                                     max_new_tokens=12)
        self.assertEqual(segments, text)
        self.assertEqual(split["generated_token_ids"], done["generated_token_ids"])
        self.assertEqual(worker.close(), (0, []))

    def test_seeds(self):
        worker = self.start()
        request = dict(prompt=PROMPT, max_new_tokens=16, temperature=1.5, top_k=50, top_p=0.95)
        replies = [worker.ask(seed=seed, **request)[1]["generated_token_ids"] for seed in (5, 5, 6)]
        self.assertEqual(replies[0], replies[1])
        self.assertNotEqual(replies[0], replies[2])
        free = [worker.ask(**request)[1]["generated_token_ids"] for _ in range(2)]
        self.assertNotEqual(free[0], free[1])

    def test_warm_resume_over_segments(self):
        worker = self.start()
        _, first = worker.ask(session_id="s", prompt=PROMPT, max_new_tokens=6)
        self.assertEqual(first["session_reset_reason"], "new")
        segments = [{"text": PROMPT}, {"ids": first["generated_token_ids"]}, {"text": " on"}]
        _, second = worker.ask(session_id="s", prompt_segments=segments, max_new_tokens=6)
        self.assertEqual(second["session_reset_reason"], "exact_prefix")
        self.assertEqual(second["reused_prompt_tokens"],
                         first["prompt_tokens"] + first["completion_tokens"])
        self.assertEqual(second["reused_prompt_tokens"] + second["prefilled_prompt_tokens"],
                         second["prompt_tokens"])
        for key in ("prefill_ms", "decode_ms", "total_ms", "prefill_tok_s", "decode_tok_s"):
            self.assertGreater(second[key], 0, key)
        _, cold = self.start("--warm_resume=false").ask(prompt_segments=segments, max_new_tokens=6)
        self.assertEqual(cold["generated_token_ids"], second["generated_token_ids"])

    def test_capacity(self):
        worker = self.start("--max_sessions", 2)
        self.assertEqual(worker.ask(op="open", session_id="a")[1],
                         {"opened": True, "session_id": "a"})
        self.assertEqual(worker.ask(op="open", session_id="b")[1],
                         {"error": "cannot open session", "code": "capacity_exhausted",
                          "session_id": "b"})
        self.assertEqual(worker.ask(op="close", session_id="a")[1],
                         {"closed": True, "session_id": "a"})
        self.assertEqual(worker.ask(op="reset", session_id="never seen")[1],
                         {"reset": True, "session_id": "never seen"})
        single = self.start("--max_sessions", 1)
        self.assertEqual(single.ready["max_named_sessions"], 0)
        self.assertEqual(single.ask(op="open", session_id="a")[1]["code"], "unsupported_session")
        self.assertEqual(single.ask(prompt=PROMPT, max_new_tokens=1)[1]["done"], True)

    def test_errors_are_answers(self):
        worker = self.start()
        for line, error in (
                ("nonsense", "no valid JSON"),
                ("[" * 100_000, "nested deeper"),
                ('{"prompt": "a", "prompt_segments": []}', "exactly one of"),
                ('{"op": "open"}', "session_id required for op"),
                ('{"prompt": ""}', "empty prompt"),
                ('{"prompt": "a", "top_p": 0}', "top_p must be finite and in (0, 1]"),
                ('{"prompt_segments": [{"image": {"data": ""}}]}', "takes text only"),
                ('{"prompt_segments": [{"ids": [99999999]}]}', "vocabulary")):
            worker.send(line)
            self.assertIn(error, worker.next()["error"], line[:80])
        worker.send("")
        worker.send("  ")
        self.assertEqual(worker.ask(prompt=PROMPT, max_new_tokens=1)[1]["done"], True)
        self.assertEqual(worker.close(), (0, []))

    def test_stop_string(self):
        worker = self.start()
        text, _ = worker.ask(prompt=PROMPT, max_new_tokens=24)
        stop = text[len(text) // 2:][:3]
        trimmed, done = worker.ask(session_id="s", prompt=PROMPT, max_new_tokens=24, stop=[stop])
        self.assertEqual(trimmed, text[:text.index(stop)])
        self.assertEqual(done["finish_reason"], "stop")
        self.assertNotIn("generated_token_ids", done)
        _, after = worker.ask(session_id="s", prompt=PROMPT + " on", max_new_tokens=1)
        self.assertEqual(after["session_reset_reason"], "dirty")

    def test_sigterm(self):
        idle = self.start()
        idle.process.send_signal(signal.SIGTERM)
        self.assertEqual(idle.end(), (0, []))

        busy = self.start()
        busy.send(json.dumps({"prompt": PROMPT, "max_new_tokens": 1000, "stop": ["\u0000none"]}))
        self.assertIn("token", busy.next())
        busy.process.send_signal(signal.SIGTERM)
        code, lines = busy.end()
        self.assertEqual(code, 0)
        last = json.loads(lines[-1])
        self.assertTrue("error" in last or "done" in last, last)

    def test_a_reader_that_is_gone_ends_the_worker(self):
        process = subprocess.Popen(command_line("worker", "--model_path", self.model),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        self.assertIn("ready", process.stdout.readline())
        process.stdout.close()
        _, log = process.communicate(json.dumps({"prompt": PROMPT, "max_new_tokens": 100}) + "\n",
                                     timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 1)
        self.assertIn("cannot write to stdout", log)


if __name__ == "__main__":
    unittest.main()
