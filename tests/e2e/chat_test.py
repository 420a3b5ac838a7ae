#!/usr/bin/env python3
"""weft chat as its users meet it: through a pipe, and at a terminal.

What models of random weights say means nothing, but greedily they say the same whenever
they read the same; so equal answers show that a conversation is what it should be.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

from adapters_test import make_adapter
from weft_process import (BACKEND, TIMEOUT_S, Terminal, add_metadata, command_line, make_model,
                          weft)

GREEDY = ("-n", 16, "--temp", 0)


class ChatTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.qwen = make_model(cls.dir / "qwen.gguf", "tiny-qwen3")
        cls.llama = make_model(cls.dir / "llama.gguf", "tiny-llama")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.state = tempfile.TemporaryDirectory(dir=self.dir)
        self.addCleanup(self.state.cleanup)
        os.environ["XDG_STATE_HOME"] = self.state.name  # of chats at a terminal

    def chat(self, *lines, flags=GREEDY, model=None, code=0):
        """Types lines into a chat without a terminal."""
        result = weft("chat", "-m", model or self.qwen, *flags,
                      stdin="".join(f"{line}\n" for line in lines))
        self.assertEqual(result.code, code, result)
        return result

    def saved(self, name):
        """The messages in the state directory, as (role, content)."""
        text = (pathlib.Path(self.state.name) / "chat" / f"{name}.json").read_text()
        return [(m["role"], m["content"]) for m in json.loads(text)["messages"]]

    def stateful(self, *flags):
        return (*GREEDY, "--state-dir", self.state.name, *flags)


def table(text):
    """The rows of /list or /stats by name: columns by their titles."""
    rows = {}
    titles = None
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if line.startswith("  name  "):
            titles = cells
        elif titles and line[:2] in ("  ", "* ") and len(cells) == len(titles):
            row = dict(zip(titles, cells))
            row["current"] = line.startswith("* ")
            rows[row["name"].removeprefix("* ")] = row
    return rows


class PipeTest(ChatTest):
    def test_answers_come_on_stdout_alone(self):
        result = self.chat("hello")
        self.assertTrue(result.out.endswith(b"\n"))
        self.assertGreater(len(result.out), 1)
        self.assertNotIn(b"im_end", result.out)
        self.assertIn("[cut off after 16 tokens; ", result.err)
        self.assertEqual(self.chat("hello").out, result.out)

    def test_nothing_said_is_success(self):
        for lines in [(), ("",), ("  ", "\t"), ("/quit",), ("/exit", "/nonsense")]:
            result = self.chat(*lines)
            self.assertEqual((result.out, result.err), (b"", ""), lines)

    def test_a_last_line_without_its_end(self):
        result = weft("chat", "-m", self.qwen, *GREEDY, stdin="hello")
        self.assertEqual(result.out, self.chat("hello").out)

    def test_mistakes_are_told_and_nothing_ends(self):
        result = self.chat("/nwe", "/switch nowhere", "/undo", "/fork 7", "/save", "/park",
                           "/fork x y", "/drop nowhere", "/load nowhere", "/new chat", "/list")
        for part in ["no command /nwe", 'no conversation named "nowhere"', "nothing to undo",
                     "no message 7", "--state-dir", "/fork:", 'already a conversation named "chat"']:
            self.assertIn(part, result.err)
        self.assertEqual(list(table(result.text)), ["chat"])

    def test_help_names_the_commands(self):
        text = self.chat("/help").text
        for line in text.splitlines():
            self.assertLessEqual(len(line), 100, line)
        for command in ["new", "list", "switch", "fork", "undo", "save", "load", "stats", "help"]:
            self.assertIn(f"/{command}", text)

    def test_conversations_do_not_hear_each_other(self):
        apart = [self.chat(*said).text for said in (("red", "again"), ("blue", "again"))]
        together = self.chat("/rename a", "red", "/new b", "blue", "/switch a", "again",
                             "/switch b", "again").text
        answers = [text.splitlines() for text in apart]
        self.assertEqual([len(a) for a in answers], [2, 2])
        self.assertNotEqual(answers[0], answers[1])
        self.assertEqual(together.splitlines(),
                         [answers[0][0], answers[1][0], answers[0][1], answers[1][1]])

    def test_a_system_message_is_heard(self):
        plain = self.chat("hello").text
        cook = self.chat("hello", flags=(*GREEDY, "--system", "You cook.")).text
        self.assertNotEqual(cook, plain)
        self.assertEqual(self.chat("/system You cook.", "hello").text, cook)
        self.assertEqual(self.chat("/new k You cook.", "hello").text, cook)
        self.assertEqual(self.chat("/system", flags=(*GREEDY, "--system", "You cook.")).text,
                         "You cook.\n")

    def test_undo_is_as_if_it_was_never_said(self):
        for model in (self.qwen, self.llama):
            straight = self.chat("one", "two", model=model).text.splitlines()
            undone = self.chat("one", "wrong", "/undo", "two", "/undo 2", "one", "two",
                               model=model).text.splitlines()
            self.assertEqual(undone[:1] + undone[2:], straight[:1] + straight[1:] + straight)

    def test_undo_gives_the_memory_back(self):
        rows = table(self.chat("hello", "/undo", "/stats").text)
        self.assertEqual(rows["chat"]["tokens"], "0")
        self.assertEqual(rows["chat"]["pages"], "0+0")

    def test_a_fork_goes_its_own_way(self):
        for model in (self.qwen, self.llama):
            left = self.chat("one", "two", "left", model=model).text.splitlines()
            right = self.chat("one", "two", "right", model=model).text.splitlines()
            early = self.chat("one", "right", model=model).text.splitlines()
            both = self.chat("one", "two", "/fork side", "right", "/switch chat", "left",
                             "/fork early 2", "right", model=model).text.splitlines()
            self.assertEqual(both, left[:2] + [right[2], left[2], early[1]])

    def test_forks_end_with_answers(self):
        result = self.chat("one", "two", "/fork 3", "/fork", "/fork", "/list")
        self.assertIn("message 3 is a question", result.err)
        rows = table(result.text)
        self.assertEqual(sorted(rows), ["chat", "chat-2", "chat-2-2"])
        self.assertTrue(rows["chat-2-2"]["current"])
        self.assertEqual({row["messages"] for row in rows.values()}, {"4"})

    def test_a_fork_shares_and_a_second_turn_is_warm(self):
        rows = table(self.chat("hello " * 60, "again", "/fork side", "/stats").text)
        cached, prompt = map(int, rows["chat"]["cached"].split("/"))
        # All of the first turn but the last token, which was never put in.
        first = table(self.chat("hello " * 60, "/stats").text)["chat"]
        self.assertEqual(cached, int(first["tokens"]) - 1)
        self.assertGreater(prompt, cached)
        own, shared = map(int, rows["side"]["pages"].split("+"))
        self.assertEqual(own, 0)
        self.assertGreater(shared, 1)

    def test_stats_of_the_engine(self):
        text = self.chat("hello", "/new", "hello", "/stats").text
        self.assertIn("sessions: 2 ready", text)
        self.assertRegex(text, r"memory: weights [\d.]+ MiB, pages [\d.]+ KiB")
        self.assertRegex(text, r"tokens: \d+ of prompts computed, \d+ found computed, 32 generated")
        rate = float(table(text)["chat"]["tokens/s"])
        self.assertGreater(rate, 0)

    def test_history_and_lines_that_go_on(self):
        lines = self.chat("first\\", "second", "//slash", "/history").text.splitlines()
        self.assertIn("1 you: first", lines)
        self.assertIn("second", lines)
        self.assertIn("3 you: /slash", lines)

    def test_dropped_conversations_are_gone(self):
        result = self.chat("one", "/new b", "two", "/drop b", "/list", "/drop chat", "/list")
        first, second = [table("  name  " + part) for part in result.text.split("  name  ")[1:]]
        self.assertEqual((list(first), list(second)), (["chat"], ["chat"]))
        self.assertEqual((first["chat"]["messages"], second["chat"]["messages"]), ("2", "0"))

    def test_a_context_that_is_full(self):
        flags = ("--temp", 0, "--ctx", 64)
        result = self.chat("hello", "word " * 100, "/list", flags=flags)
        self.assertIn("exceeds the available context size of 64", result.err)
        self.assertEqual(table(result.text)["chat"]["messages"], "2")

    def test_the_way_out_of_a_full_context(self):
        flags = ("--temp", 0, "--ctx", 96, "-n", 16)
        lines = [f"question number {i} of those that fill it" for i in range(6)]
        result = self.chat(*lines, "/trim", "/history", flags=flags)
        refused = [line for line in result.err.splitlines() if "/trim removes" in line]
        self.assertTrue(refused, result)
        for way in ("/undo", "/new"):
            self.assertIn(way, refused[-1])
        self.assertRegex(result.err, r"\[removed the oldest (exchange|\d exchanges); there are \d messages\]")
        # The question that did not fit was asked again, behind what was left.
        self.assertIn(f" you: {lines[-1]}\n", result.text)
        self.assertNotIn(lines[0], result.text)
        self.assertNotIn("exceeds", result.err.split("removed the oldest")[1])

    def test_an_answer_that_fills_the_context_says_what_to_do(self):
        result = self.chat("hello", flags=("--temp", 0, "--ctx", 64, "-n", -1, "--keep-loops"))
        self.assertRegex(result.err, "the context of 64 is full: /trim .* /undo .* /new ")

    def test_trim_is_as_if_it_was_never_said(self):
        for model in (self.qwen, self.llama):
            short = self.chat("two", "three", "four", model=model).text.splitlines()
            # The answers before it were others; the question after it reads the same.
            flags = (*GREEDY, "--system", "x")
            trimmed = self.chat("one", "two", "/trim 1", "/history", flags=flags, model=model)
            history = trimmed.text.splitlines()
            self.assertEqual([line for line in history if " you: " in line], ["1 you: two"])
            self.assertIn("system: x", history)
            self.assertEqual(len(short), 3)
        result = self.chat("/trim", "one", "/trim 2", "/trim 0")
        for part in ("nothing to trim", "cannot remove 2 exchanges", "must be at least 1"):
            self.assertIn(part, result.err)

    def test_settings(self):
        result = self.chat("/set", "/set top_k 7", "/temp 0.25", "/temp", "/set top_k",
                           "/set warmth 3", "/set top_p 7", "/set temperature default", "/set",
                           flags=("--temp", 1.5))
        before, after = result.text.split("temperature ")[1:]
        self.assertTrue(before.strip().startswith("1.5"), result)
        self.assertTrue(after.strip().startswith("1.5"), result)
        self.assertRegex(after, r"top_k +7\n")
        for part in ("[top_k 7]", "[temperature 0.25]", "[there is no setting warmth; ",
                     "[top_p takes a number from 0 to 1, or 'default']"):
            self.assertIn(part, result.err)
        self.assertEqual(result.err.count("[temperature 0.25]"), 2)

    def test_settings_hold(self):
        greedy = self.chat("hello").text
        hot = ("-n", 16, "--temp", 5, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed", 1)
        self.assertNotEqual(self.chat("hello", flags=hot).text, greedy)
        self.assertEqual(self.chat("/temp 0", "hello", flags=hot).text, greedy)
        self.assertEqual(self.chat("/set max_tokens 16", "hello", flags=("--temp", 0)).text, greedy)

    def test_regenerate(self):
        hot = ("-n", 16, "--temp", 5, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--seed")
        # It is what the next seed says.
        first, second = (self.chat("hello", flags=(*hot, seed)).text for seed in (5, 6))
        self.assertNotEqual(first, second)
        self.assertEqual(self.chat("hello", "/regenerate", flags=(*hot, 5)).text, first + second)
        result = self.chat("hello", "/regenerate", "/history", flags=(*hot, 5))
        self.assertEqual(sum(" you: " in line for line in result.text.splitlines()), 1)
        self.assertIn("no answer to regenerate", self.chat("/regenerate").err)

    def test_lines_between_quotes_are_one_message(self):
        text = self.chat('"""', "first\\", "", "/new third", '"""', "/history").text
        self.assertIn("1 you: first\\\n\n/new third\n", text)
        text = self.chat('"""one', 'two"""', "/history").text
        self.assertIn("1 you: one\ntwo\n", text)
        # Where nothing follows, what was begun is said.
        self.assertEqual(self.chat('"""', "hello").out, self.chat("hello").out)

    def test_a_thought_that_is_not_wanted(self):
        template = ("{%- for m in messages -%}{{ m.content }}<|im_end|>{%- endfor -%}"
                    "{%- if add_generation_prompt -%}<think>{%- if enable_thinking is defined and "
                    "not enable_thinking -%}</think>{%- endif -%}{%- endif -%}")
        model = add_metadata(self.qwen, {"tokenizer.chat_template": template},
                             self.dir / "thinks.gguf")
        free = self.chat("hello", model=model).text
        ended = self.chat("hello", flags=(*GREEDY, "--reasoning-budget", 2), model=model).text
        self.assertNotIn("</think>", free)
        self.assertIn("</think>", ended)
        off = self.chat("hello", flags=(*GREEDY, "--reasoning", "off"), model=model).text
        self.assertNotIn("</think>", off)
        self.assertNotEqual(off, free)
        self.assertEqual(self.chat("/set reasoning off", "hello", model=model).text, off)
        variable = (*GREEDY, "--chat-template-kwargs", '{"enable_thinking": false}')
        self.assertEqual(self.chat("hello", flags=variable, model=model).text, off)
        answers = [weft("run", "-m", model, *flags, "hello").text
                   for flags in (GREEDY, (*GREEDY, "--reasoning", "off"), variable)]
        self.assertEqual(answers[1], answers[2])
        self.assertNotEqual(answers[0], answers[1])

    def test_escape_sequences_stay_text(self):
        result = self.chat("/system \x1b]0;owned\x07", "/system", "say \x1b[2J", "/history",
                           "/new \x1b[31m", "/list")
        for stream in (result.out, result.err.encode()):
            self.assertNotIn(b"\x1b", stream)
            self.assertNotIn(b"\x07", stream)
        self.assertIn("say \\x1B[2J", result.text)

    def test_equal_seeds_give_equal_answers(self):
        flags = ("-n", 16, "--temp", 1.5, "--top-k", 0, "--top-p", 1, "--seed", 5)
        first = self.chat("hi", "ho", flags=flags)
        self.assertEqual(self.chat("hi", "ho", flags=flags).out, first.out)

    def test_usage(self):
        self.assertEqual(weft("chat", "-m", "").code, 2)
        self.assertEqual(weft("chat", "-m", self.qwen, "--temp", "warm").code, 2)
        self.assertEqual(weft("chat", "-m", self.dir / "none.gguf").code, 1)
        self.assertEqual(weft("chat", "-m", self.qwen, "--kv", "f8").code, 2)

    def test_a_reader_that_goes_away(self):
        command = command_line("chat", "-m", self.qwen, "--temp", "0")
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            process.stdout.close()
            process.stdin.write(b"hello\nhello\n")
            process.stdin.flush()
            self.assertEqual(process.wait(TIMEOUT_S), 1)
            self.assertIn(b"stdout", process.stderr.read())


class StateTest(ChatTest):
    def test_a_restart_is_not_noticed(self):
        for model in (self.qwen, self.llama):
            name = f"{model.stem} kitchen"
            flags = self.stateful("--session", name)
            straight = self.chat("one", "two", model=model).text.splitlines()
            self.assertEqual(self.chat("one", flags=flags, model=model).text.splitlines(),
                             straight[:1])
            result = self.chat("/stats", "two", "/stats", flags=flags, model=model)
            self.assertIn("2 messages", result.err)
            self.assertEqual([l for l in result.text.splitlines() if l == straight[1]],
                             straight[1:])
            stats = result.text.rsplit("  name  ", 1)[1]
            cached = int(table("  name  " + stats)[name]["cached"].split("/")[0])
            self.assertGreater(cached, 10, "the saved state was not used")

    @unittest.skipIf(BACKEND != "cpu", "only the cpu backend computes adapters")
    def test_a_conversation_keeps_the_adapters_that_it_was_begun_with(self):
        law = make_adapter(self.qwen, self.dir / "law.gguf", 1, "F32")

        def chat(*lines, session="kitchen", lora=(), code=0):
            flags = [flag for one in lora for flag in ("--lora", f"law={law}{one}")]
            return self.chat(*lines, flags=self.stateful("--session", session, *flags), code=code)

        straight = chat("one", "two", session="straight", lora=[""]).text
        first = chat("one", lora=[""]).text
        refused = chat("two", code=1)
        self.assertIn("start with --lora law=FILE", refused.err)
        second = chat("two", lora=[":0.5"])
        self.assertIn('"kitchen" was begun with law at 1 and goes on with it; /new begins a '
                      "conversation with law at 0.5", second.err)
        self.assertEqual(first + second.text, straight)
        self.assertNotIn("was begun with", chat("three", lora=[""]).err)
        # One without adapters stays without.
        chat("one", session="plain")
        self.assertIn("with no adapter", chat("two", session="plain", lora=[""]).err)

    def test_files_are_for_the_user_alone(self):
        self.chat("one", "/new ../up", "two", "/save", flags=self.stateful("--session", "k"))
        found = []
        for folder, _, files in os.walk(self.state.name):
            self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700, folder)
            for file in files:
                path = pathlib.Path(folder) / file
                self.assertEqual(path.stat().st_mode & 0o777, 0o600, path)
                found.append(path.suffix)
        self.assertEqual((found.count(".json"), found.count(".session")), (2, 2))

    def test_save_park_load_rename_and_drop(self):
        flags = self.stateful("--session", "a")
        result = self.chat("one", "/save", "/park", "/list", "two", "/rename b", "/list",
                           "/new c", "three", "/park b", "/load b", "/list", flags=flags)
        straight = self.chat("one", "two").text.splitlines()
        self.assertIn(straight[1], result.text.splitlines())
        for part in ["[saved]", "[parked]", "[in b, 4 messages]"]:
            self.assertIn(part, result.err)
        parts = [table("  name  " + part) for part in result.text.split("  name  ")[1:]]
        self.assertEqual(parts[0]["a"]["state"], "parked")
        self.assertEqual(list(parts[1]), ["b"])
        self.assertEqual(list(parts[2]), ["b", "c"])
        self.assertTrue(parts[2]["b"]["current"])

        result = self.chat("/list", "/load b", "/drop b", "/drop c", "/list",
                           flags=self.stateful("--session", "new"))
        before, after = [table("  name  " + part) for part in result.text.split("  name  ")[1:]]
        self.assertEqual({name: row["state"] for name, row in before.items()},
                         {"b": "parked", "c": "parked", "new": "ready"})
        self.assertEqual(list(after), ["new"])
        left = [p.name for p in pathlib.Path(self.state.name).rglob("*.*") if p.is_file()]
        self.assertEqual(left, [])

    def test_messages_survive_a_kill(self):
        command = command_line("chat", "-m", self.qwen, *self.stateful("--session", "k"))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as process:
            process.stdin.write(b"one\n/help\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            process.stdout.readline()  # of the help: the turn is over
            process.kill()
        result = self.chat("two", "/list", flags=self.stateful("--session", "k"))
        straight = self.chat("one", "two").text.splitlines()
        self.assertEqual(answer.decode().rstrip("\n"), straight[0])
        self.assertEqual(result.text.splitlines()[0], straight[1])
        self.assertEqual([role for role, _ in self.saved("k")], ["user", "assistant"] * 2)

    def test_without_its_messages_a_session_goes_on_raw(self):
        flags = self.stateful("--session", "k")
        self.chat("one", flags=flags)
        (pathlib.Path(self.state.name) / "chat" / "k.json").unlink()
        result = self.chat("two", "/list", flags=flags)
        self.assertIn('the messages of "k" are unknown', result.err)
        self.assertEqual(table(result.text)["k"]["messages"], "2")
        result = self.chat("three", flags=flags)
        self.assertNotIn("are unknown", result.err)
        self.assertEqual(len(self.saved("k")), 4)

    def test_a_damaged_session_file_costs_time_alone(self):
        flags = self.stateful("--session", "k")
        self.chat("one", flags=flags)
        for path in pathlib.Path(self.state.name).rglob("*.session"):
            data = bytearray(path.read_bytes())
            data[len(data) // 3:] = bytes(len(data) - len(data) // 3)
            path.write_bytes(data)
        result = self.chat("two", flags=flags)
        self.assertEqual(result.text.splitlines(), self.chat("one", "two").text.splitlines()[1:])
        self.assertGreater(len(result.err.splitlines()), 2, "the damage is not told")

    def test_another_model_reads_the_messages(self):
        flags = self.stateful("--session", "k")
        self.chat("one", flags=flags)
        for path in pathlib.Path(self.state.name).rglob("*.session"):
            path.unlink()
        result = self.chat("two", flags=flags, model=self.llama)
        self.assertIn("2 messages", result.err)
        self.assertEqual(len(self.saved("k")), 4)

    def test_another_models_session_is_refused(self):
        flags = self.stateful("--session", "k")
        self.chat("one", flags=flags)
        result = weft("chat", "-m", self.llama, *flags, stdin="two\n")
        self.assertEqual(result.code, 1, result)
        self.assertIn("model", result.err)

    def test_damaged_messages_are_refused(self):
        self.chat("one", flags=self.stateful("--session", "k"))
        path = pathlib.Path(self.state.name) / "chat" / "k.json"
        path.write_text(path.read_text()[:-20])
        result = weft("chat", "-m", self.qwen, *self.stateful("--session", "k"))
        self.assertEqual(result.code, 1, result)
        self.assertIn("k.json", result.err)

    def test_a_directory_serves_one(self):
        command = command_line("chat", "-m", self.qwen, *self.stateful())
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdin.write(b"/help\n")
            process.stdin.flush()
            process.stdout.readline()
            result = weft("chat", "-m", self.qwen, *self.stateful())
            process.stdin.close()
        self.assertEqual(result.code, 1, result)
        self.assertIn("in use by another process", result.err)


class TerminalTest(ChatTest):
    # Answers of any length.
    LONG = ("--temp", 2, "--top-k", 0, "--top-p", 1, "--min-p", 0, "--ctx", 30000)

    def open(self, *flags):
        return Terminal("chat", "-m", self.llama, *flags)

    def test_ctrl_c_ends_an_answer_and_not_the_chat(self):
        # An answer of random words ends by chance; one that was not cancelled in time says
        # nothing, and the next is asked for.
        terminal = self.open(*self.LONG)
        terminal.expect("chat> ")
        for attempt in range(50):
            terminal.type("tell me everything\n")
            terminal.expect("\n")
            time.sleep(0.02)
            terminal.type("\x03")
            if "[cancelled]" in terminal.expect("chat> "):
                break
        else:
            self.fail("no answer was cancelled")
        terminal.type("/list\n")
        listed = terminal.expect("chat> ")
        while "ready" not in listed:
            listed += terminal.expect("chat> ")
        self.assertIn("ready", listed)
        terminal.type("/quit\n")
        self.assertEqual(terminal.end(), 0)

    def test_ctrl_c_at_the_prompt_clears_the_line(self):
        terminal = self.open(*GREEDY)
        terminal.expect("chat> ")
        terminal.type("nonsense")
        terminal.expect("nonsense")
        terminal.type("\x03")
        terminal.expect("Ctrl-C again")
        terminal.expect("chat> ")
        terminal.type("/history\n")
        terminal.expect("no messages yet")
        terminal.expect("chat> ")
        terminal.type("\x03")
        terminal.expect("Ctrl-C again")
        terminal.expect("chat> ")
        terminal.type("\x03")
        self.assertEqual(terminal.end(), 0)

    def test_conversations_are_kept_without_being_asked(self):
        for greeted, typed in ((False, "/rename kitchen\n"), (True, "/load kitchen\n")):
            terminal = self.open(*GREEDY)
            said = terminal.expect("chat> ")
            self.assertEqual("[saved: kitchen; /load NAME continues one]" in said, greeted, said)
            terminal.type(typed)
            terminal.expect("kitchen> ")
            if not greeted:
                terminal.type("The loom\n")
                terminal.expect("kitchen> ")
            terminal.type("/history\n")
            terminal.expect("The loom")
            terminal.type("/quit\n")
            self.assertEqual(terminal.end(), 0)

    def test_ctrl_d_leaves(self):
        terminal = self.open(*GREEDY)
        terminal.expect("chat> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_editing_and_history(self):
        terminal = self.open(*GREEDY)
        terminal.expect("chat> ")
        terminal.type("/system wörlds\x1b[D\x7f\n")  # back over s, and d gone
        terminal.expect("has been changed")
        terminal.expect("chat> ")
        terminal.type("/system\n")
        terminal.expect("wörls")
        terminal.expect("chat> ")
        terminal.type("\x1b[A\x1b[A\n")  # the line before the last, again
        terminal.expect("has been changed")
        terminal.type("/quit\n")
        self.assertEqual(terminal.end(), 0)

    def test_a_banner_says_where_one_is(self):
        terminal = self.open(*GREEDY)
        said = terminal.expect("chat> ")
        self.assertRegex(said, r"context of \d+ tokens; /help\s+lists\s+the\s+commands")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_what_is_pasted_is_one_message(self):
        terminal = self.open(*GREEDY)
        self.assertIn("\x1b[?2004h", terminal.expect("chat> "))
        terminal.type("say \x1b[200~one\r/new two\n\tthr\x07ee\r\x1b[201~!\n")
        terminal.expect("cut off after")
        terminal.expect("chat> ")
        terminal.type("/history\n")
        said = terminal.expect("2 model: ")
        self.assertIn("1 you: say one\r\n/new two\r\n    three!\r\n", said)
        terminal.expect("chat> ")  # before it reads keys, an end of input is lost
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)
        self.assertIn(b"\x1b[?2004l", terminal.output)

    def test_tab_completes_commands_and_names(self):
        terminal = self.open(*GREEDY)
        terminal.expect("chat> ")
        terminal.type("/rena\tgarden shed\n")
        terminal.expect("in garden shed")
        terminal.expect("garden shed> ")
        terminal.type("/new kitchen\n")
        terminal.expect("kitchen> ")
        terminal.type("/sw\tgar\t\n")
        terminal.expect("in garden shed")
        terminal.expect("garden shed> ")
        terminal.type("/s\t")
        self.assertIn("save  set  stats  switch  system", terminal.expect("system"))
        terminal.type("\x03")
        terminal.expect("Ctrl-C again")
        terminal.expect("garden shed> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_the_prompt_names_the_conversation(self):
        terminal = self.open(*GREEDY)
        terminal.expect("chat> ")
        terminal.type("/new kitchen\n")
        terminal.expect("kitchen> ")
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_a_signal_to_end_saves(self):
        terminal = self.open(*self.stateful("--session", "k"))
        terminal.expect("k> ")
        terminal.type("one\n")
        terminal.expect("cut off after")
        terminal.expect("k> ")
        os.kill(terminal.process, signal.SIGTERM)
        self.assertEqual(terminal.end(), 0)
        self.assertEqual(len(list(pathlib.Path(self.state.name).rglob("k.session"))), 1)
        self.assertEqual(len(self.saved("k")), 2)


if __name__ == "__main__":
    unittest.main()
