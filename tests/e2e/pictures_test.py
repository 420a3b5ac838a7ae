#!/usr/bin/env python3
"""Pictures, as clients of every API send them: what the model reads, what is found again, what is
refused. The models are tiny and random, so their answers differ with every pixel."""

import concurrent.futures
import pathlib
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import zlib

from seeing_model import coded, large_png, make_seeing, png
from serve_test import Server, ServeTest
from weft_process import TIMEOUT_S, Terminal, command_line, make_model, thread_count, weft


def bomb():
    """A picture that says it has 3.6 billion pixels."""
    data = png(1)
    head = data[12:16] + struct.pack(">II", 60000, 60000) + data[24:29]
    return data[:12] + head + struct.pack(">I", zlib.crc32(head)) + data[33:]


def openai(data, text="What is it?"):
    url = data if isinstance(data, str) else "data:image/png;base64," + coded(data)
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}},
                                        {"type": "text", "text": text}]}


def chat(*messages, **more):
    return {"messages": list(messages), "max_tokens": 4, "temperature": 0, "logprobs": True,
            "ignore_eos": True, **more}


def likelihoods(answer):
    return [token["logprob"] for token in answer["choices"][0]["logprobs"]["content"]]


class PicturesTest(unittest.TestCase):
    projector = "tiny-idefics3-mmproj"
    shape = "tiny-llama"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.model, cls.mmproj = make_seeing(cls.dir, cls.shape, cls.projector)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *flags):
        return Server(self.model, "--mmproj", self.mmproj, *flags)

    def ok(self, server, path, body):
        answer = server.ask("POST", path, body)
        self.assertEqual(answer.status, 200, answer)
        return answer.json

    def cached(self, answer):
        usage = answer["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


class ApiTest(PicturesTest):
    def test_every_api_shows_the_model_the_same(self):
        with self.serve() as server:
            server.ready()
            asked = self.ok(server, "/v1/chat/completions", chat(openai(png(1))))
            plain = self.ok(server, "/v1/chat/completions",
                            chat({"role": "user", "content": "What is it?"}))
            n = asked["usage"]["prompt_tokens"]
            self.assertGreater(n, plain["usage"]["prompt_tokens"] + 8, "a picture counts as tokens")
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                 "data": coded(png(1))}}
            text = {"type": "text", "text": "What is it?"}
            messages = [{"role": "user", "content": [image, text]}]
            usage = self.ok(server, "/v1/messages", {"messages": messages, "max_tokens": 4})["usage"]
            self.assertEqual((usage["input_tokens"], usage["cache_read_input_tokens"]), (1, n - 1))
            count = self.ok(server, "/v1/messages/count_tokens", {"messages": messages})
            self.assertEqual(count["input_tokens"], n)
            told = self.ok(server, "/api/chat", {
                "model": self.name(server), "stream": False, "options": {"num_predict": 4},
                "messages": [{"role": "user", "content": "What is it?",
                              "images": [coded(png(1))]}]})
            self.assertEqual(told["prompt_eval_count"], n)
            told = self.ok(server, "/api/generate", {
                "model": self.name(server), "stream": False, "prompt": "What is it?",
                "images": [coded(png(1))], "options": {"num_predict": 4}})
            self.assertEqual(told["prompt_eval_count"], n)
            url = openai(png(1))["content"][0]["image_url"]["url"]
            usage = self.ok(server, "/v1/responses", {"max_output_tokens": 4, "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": url},
                                             {"type": "input_text", "text": "What is it?"}]}]})["usage"]
            self.assertEqual(usage["input_tokens"], n)
            self.assertEqual(usage["input_tokens_details"]["cached_tokens"], n - 1)
            self.assertEqual(server.metric("weft_pictures_encoded_total"), 1)
            stream = server.ask("POST", "/v1/chat/completions",
                                chat(openai(png(7, 300, 200)), stream=True))
            self.assertTrue(stream.body.endswith(b"data: [DONE]\n\n"), stream)

    def name(self, server):
        return server.ask("GET", "/v1/models").json["data"][0]["id"]

    def test_llama_servers_prompts_have_pictures(self):
        with self.serve() as server:
            server.ready()
            marker = server.ask("GET", "/props").json["media_marker"]
            body = {"prompt": {"prompt_string": f"A {marker} and {marker}: ",
                               "multimodal_data": [coded(png(1)), coded(png(2))]},
                    "n_predict": 4, "temperature": 0}
            first = self.ok(server, "/completion", body)
            again = self.ok(server, "/completion", body)
            self.assertEqual(again["content"], first["content"])
            self.assertEqual(again["tokens_cached"], again["tokens_evaluated"] - 1)
            self.assertEqual(again["prompt"], body["prompt"]["prompt_string"])
            self.assertEqual(server.metric("weft_pictures_encoded_total"), 2)
            body["prompt"]["multimodal_data"].pop()
            answer = server.ask("POST", "/completion", body)
            self.assertEqual(answer.status, 400)
            self.assertIn("as often", answer.json["error"]["message"])
            body["prompt"] = {"prompt_string": "no picture", "multimodal_data": []}
            self.ok(server, "/completion", body)

    def test_addresses_of_this_machine_are_not_fetched(self):
        with self.serve("--image-urls") as server:
            server.ready()
            port = server.url.rsplit(":", 1)[1]
            for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "10.0.0.1"):
                answer = server.ask("POST", "/v1/chat/completions",
                                    chat(openai(f"http://{host}:{port}/health")))
                self.assertEqual(answer.status, 400, answer)
                self.assertIn("not of the open internet", answer.json["error"]["message"])

    def test_tools_return_pictures(self):
        call = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": coded(png(3))}}
        body = {"max_tokens": 4, "messages": [
            {"role": "user", "content": "look"}, {"role": "assistant", "content": [call]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": [image]}]}]}
        with self.serve() as server:
            server.ready()
            answer = server.ask("POST", "/v1/messages", body)
            self.assertEqual(answer.status, 200, answer)
            self.assertIsNone(answer.headers["X-Weft-Warning"])
            self.assertEqual(server.metric("weft_pictures_encoded_total"), 1)
        with Server(self.model) as server:
            server.ready()
            answer = server.ask("POST", "/v1/messages", body)
            self.assertEqual(answer.status, 200, answer)
            self.assertIn("image in tool_result", answer.headers["X-Weft-Warning"])

    def test_who_sees_is_told(self):
        for sees, flags in ((True, ("--mmproj", self.mmproj)), (False, ())):
            with Server(self.model, *flags) as server:
                server.ready()
                model = server.ask("GET", "/v1/models").json["data"][0]
                self.assertEqual("image" in model["input_modalities"], sees)
                shown = self.ok(server, "/api/show", {"model": model["id"]})
                self.assertEqual("vision" in shown["capabilities"], sees)
                self.assertEqual(server.ask("GET", "/props").json["modalities"]["vision"], sees)

    def test_refusals_say_what_to_do(self):
        def refusal(server, message, status=400):
            answer = server.ask("POST", "/v1/chat/completions", chat(message))
            self.assertEqual(answer.status, status, answer)
            return answer.json["error"]["message"]

        with Server(self.model) as server:
            server.ready()
            self.assertIn("--mmproj", refusal(server, openai(png(1))))
            answer = server.ask("POST", "/api/chat", {"model": self.name(server), "messages": [
                {"role": "user", "content": "x", "images": [coded(png(1))]}]})
            self.assertIn("--mmproj", answer.json["error"])
        with self.serve() as server:
            server.ready()
            for url, why in (("https://example.com/a.png", "fetches nothing"),
                             ("file:///etc/passwd", "are not read"),
                             ("data:image/png,abc", "base64"),
                             (coded(b"no picture at all"), "messages[0].content[0]"),
                             (coded(png(1)[:-200]), "PNG"),
                             (coded(png(1, 2000, 3)), "longer side"),
                             (coded(bomb()), "60000")):
                self.assertIn(why, refusal(server, openai(url)), url)
            many = openai(png(1))
            many["content"] = many["content"][:1] * 101
            self.assertIn("at most 100", refusal(server, many))
            self.assertEqual(server.metric("weft_pictures_encoded_total"), 0)
        done = weft("serve", "-m", self.model, "--port", "0", "--mmproj", self.model)
        self.assertEqual(done.code, 1)
        self.assertIn("it is no projector", done.err)
        other = make_model(self.dir / "wide.gguf", "tiny-llama")
        done = weft("serve", "-m", other, "--port", "0", "--mmproj", self.mmproj)
        self.assertIn("the projector of another model", done.err)

    def test_a_projector_next_to_the_model_is_found_if_it_is_the_models(self):
        with tempfile.TemporaryDirectory(dir=self.dir) as folder:
            model = pathlib.Path(folder) / "llama.gguf"
            model.write_bytes(self.model.read_bytes())
            (pathlib.Path(folder) / "mmproj-x.gguf").write_bytes(self.mmproj.read_bytes())
            with Server(model) as server:
                server.ready()
                self.assertIn("the model's vocabulary has no token", server.log)
                self.assertFalse(server.ask("GET", "/props").json["modalities"]["vision"])

    def test_run_takes_files(self):
        one, other = self.dir / "one.png", self.dir / "other.png"
        one.write_bytes(png(1))
        other.write_bytes(png(2))

        def run(*args):
            return weft("run", "-m", self.model, "--mmproj", self.mmproj, "-n", "8", "--temp", "0",
                        "--json", *args)

        with_one = run("--image", one, "What is it?")
        self.assertEqual(with_one.code, 0, with_one)
        both = run("--image", one, "--image", other, "What is it?")
        self.assertGreater(both.json["prompt_tokens"], with_one.json["prompt_tokens"] + 8)
        done = weft("run", "-m", self.model, "--image", one, "What is it?")
        self.assertEqual(done.code, 1)
        self.assertIn("--mmproj", done.err)


class ChatTest(PicturesTest):
    def chat(self, lines, *flags):
        done = weft("chat", "-m", self.model, "--temp", "0", "-n", "6", *flags,
                    stdin="\n".join([*lines, "/quit", ""]))
        self.assertEqual(done.code, 0, done)
        return done

    def test_a_picture_is_shown_with_a_message_and_kept(self):
        cat = self.dir / "my cat.png"
        cat.write_bytes(png(1))
        flags = ("--mmproj", self.mmproj)
        with tempfile.TemporaryDirectory(dir=self.dir) as state:
            keep = (*flags, "--state-dir", state, "--session", "zoo")
            done = self.chat([f"/image {cat}", "What is it?", "And now?", "/history"], *keep)
            self.assertIn("sees my cat.png with your next message", done.err)
            self.assertIn("1 you: [my cat.png] What is it?", done.text)
            self.assertIn("4 model: ", done.text)
            again = self.chat(["/history", "/undo", "/regenerate", "/fork", "And then?"], *keep)
            self.assertIn("1 you: [my cat.png] What is it?", again.text)
            without = self.chat(["/load zoo"], "--state-dir", state)
            self.assertIn("--mmproj", without.err)
        # As a terminal pastes a file that is dropped on it.
        for pasted in (f"'{cat}'", str(cat).replace(" ", "\\ "), f"/image '{cat}' What is it?"):
            done = self.chat([pasted, "/history"], *flags)
            self.assertNotIn("there is no command", done.err)
        blank = self.chat(["What is it?"], *flags)
        seen = self.chat([f"/image {cat}", "What is it?"], *flags)
        self.assertNotEqual(seen.out, blank.out)

    def test_what_cannot_be_shown_says_why(self):
        text = self.dir / "no.png"
        text.write_text("no picture")
        flags = ("--mmproj", self.mmproj)
        self.assertIn("no.png", self.chat([f"/image {text}"], *flags).err)
        self.assertIn("/nowhere.png", self.chat(["/image /nowhere.png"], *flags).err)
        self.assertIn("needs a picture's file", self.chat(["/image"], *flags).err)
        self.assertIn("--mmproj", self.chat([f"/image {text}"]).err)


class InterruptTest(PicturesTest):
    """Ctrl-C while pictures are encoded, which takes this encoder seconds each."""

    shape, projector = "tiny-qwen2vl", "tiny-qwen2.5vl-mmproj"
    flags = ("--ctx", "40000", "-n", "4", "--temp", "0")

    def large_pictures(self, first):
        paths = [self.dir / f"large{first + i}.png" for i in range(8)]
        for i, path in enumerate(paths):
            path.write_bytes(large_png(first + i))
        return paths

    def attempts(self):
        """Pictures for each: on a fast machine an answer may be there before Ctrl-C is."""
        return (self.large_pictures(8 * attempt) for attempt in range(20))

    def test_it_ends_a_run(self):
        for paths in self.attempts():
            images = [word for path in paths for word in ("--image", path)]
            process = subprocess.Popen(
                command_line("run", "-m", self.model, "--mmproj", self.mmproj, *self.flags,
                             *images, "What is it?"),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            while process.poll() is None and thread_count(process) < 3:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            if process.wait(TIMEOUT_S) == -signal.SIGINT:
                return
            self.assertEqual(process.returncode, 0)
        self.fail("no run was ended")

    def test_it_ends_the_answer_and_not_the_chat(self):
        for paths in self.attempts():
            terminal = Terminal("chat", "-m", self.model, "--mmproj", self.mmproj, *self.flags,
                                columns=300)
            terminal.expect("chat> ")
            for path in paths:
                terminal.type(f"/image {path}\n")
                terminal.expect("with your next message")
                terminal.expect("chat> ")
            terminal.type("What is it?\n")
            terminal.expect("What is it?")
            terminal.expect("\n")
            terminal.type("\x03")
            cancelled = "[cancelled]" in terminal.expect("chat> ")
            if cancelled:
                terminal.type("/history\n")
                terminal.expect("no messages yet")
                terminal.expect("chat> ")
            terminal.type("/quit\n")
            self.assertEqual(terminal.end(), 0)
            if cancelled:
                return
        self.fail("no answer was cancelled")


class CacheTest(PicturesTest):
    after = 30  # tokens after a picture's first one, at least

    def test_a_b_a_finds_its_prefix_and_no_other_picture_has_it(self):
        with self.serve() as server:
            server.ready()
            first = self.ok(server, "/v1/chat/completions", chat(openai(png(1))))
            other = self.ok(server, "/v1/chat/completions", chat(openai(png(2))))
            again = self.ok(server, "/v1/chat/completions", chat(openai(png(1))))
            n, found = self.cached(again)
            self.assertEqual(found, n - 1)
            self.assertEqual(likelihoods(again), likelihoods(first))
            n_other, found = self.cached(other)
            self.assertEqual(n_other, n, "of the same size")
            self.assertLess(found, n - self.after, "only what comes before the picture")
            self.assertNotEqual(likelihoods(other), likelihoods(first))
            # The answer's own words are found as well.
            said = first["choices"][0]["message"]
            longer = self.ok(server, "/v1/chat/completions", chat(
                openai(png(1)), {"role": "assistant", "content": said["content"]},
                {"role": "user", "content": "And now?"}))
            self.assertGreaterEqual(self.cached(longer)[1], n + 2)

    def test_more_pictures_than_the_context_holds_are_refused(self):
        with self.serve("--ctx", 1024) as server:
            server.ready()
            many = openai(png(1))
            many["content"] *= 50
            answer = server.ask("POST", "/v1/chat/completions", chat(many))
            self.assertEqual(answer.status, 400, answer)
            self.assertEqual(answer.json["error"]["code"], "context_length_exceeded", answer)

    def test_a_full_queue_refuses_pictures_before_they_are_encoded(self):
        with self.serve(*ServeTest.ROOM, "--max-running", 1, "--max-queue", 0) as server:
            server.ready()
            with server.open("POST", "/completion", ServeTest.ENDLESS) as stream:
                self.assertIn(b"data:", stream.readline())
                answer = server.ask("POST", "/v1/chat/completions", chat(openai(png(1))))
                self.assertEqual(answer.status, 429, answer)
                self.assertIn("the queue is full", answer.json["error"]["message"])
            self.assertEqual(server.metric("weft_pictures_encoded_total"), 0)

    def test_four_children_of_one_parent_encode_once(self):
        parent = openai(png(5, 200, 150), "You share this screenshot.")
        with self.serve() as server:
            server.ready()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                answers = list(pool.map(
                    lambda i: self.ok(server, "/v1/chat/completions",
                                      chat(parent, {"role": "user", "content": f"Child {i}"})),
                    range(4)))
            self.assertEqual(server.metric("weft_pictures_encoded_total"), 1)
            n = answers[0]["usage"]["prompt_tokens"]
            computed = sum(n - self.cached(answer)[1] for answer in answers)
            self.assertLess(computed, 2 * n, "the parent's prompt is computed once")

    def test_the_bits_are_the_same_beside_others(self):
        bodies = [chat(openai(png(seed, 90 + 40 * seed, 100)), max_tokens=12) for seed in range(4)]
        with self.serve() as server:
            server.ready()
            alone = [self.ok(server, "/v1/chat/completions", body) for body in bodies]
        with self.serve("--image-cache", "1") as server:
            server.ready()
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                together = list(pool.map(
                    lambda body: self.ok(server, "/v1/chat/completions", body), bodies * 3))
            for answer, expected in zip(together, alone * 3):
                self.assertEqual(likelihoods(answer), likelihoods(expected))

    def test_the_disk_keeps_pictures_apart(self):
        for ends_well in (True, False):
            with tempfile.TemporaryDirectory(dir=self.dir) as state:
                self.check_disk(("--state-dir", state, "--state-disk", "50M"), ends_well)

    def check_disk(self, flags, ends_well):
        one = chat(openai(png(1, 300, 300)), session_id="kitchen")
        with self.serve(*flags) as server:
            server.ready()
            first = self.ok(server, "/v1/chat/completions", one)
            self.ok(server, "/v1/chat/completions", chat(openai(png(1, 300, 300))))
            server.until(lambda: b"weft_state_disk_pending 0" in
                         server.ask("GET", "/metrics").body, "it is never written")
            if ends_well:
                self.assertEqual(server.end(), 0, server.log)
            else:
                server.process.kill()
                server.process.wait()
        with self.serve(*flags) as server:
            server.ready()
            other = self.ok(server, "/v1/chat/completions", chat(openai(png(2, 300, 300))))
            n, found = self.cached(other)
            self.assertLess(found, n - self.after, "another picture of the same size")
            self.assertNotEqual(likelihoods(other), likelihoods(first))
            again = self.ok(server, "/v1/chat/completions", one)
            self.assertEqual(likelihoods(again), likelihoods(first))
            if ends_well:
                n, found = self.cached(again)
                self.assertGreaterEqual(found, n - 40, "the session's file has it")
            listed = server.ask("GET", "/v1/sessions").json["data"]
            self.assertIn("kitchen", [session["id"] for session in listed])


class GemmaTest(CacheTest):
    """A picture's embeddings attend to each other."""
    projector = "tiny-gemma3-mmproj"
    shape = "tiny-gemma3"
    after = 12


class Qwen25Test(CacheTest):
    """A picture's embeddings stand on a plane."""
    projector = "tiny-qwen2.5vl-mmproj"
    shape = "tiny-qwen2vl"
    after = 12


class Qwen3Test(CacheTest):
    """And layers add to them."""
    projector = "tiny-qwen3vl-mmproj"
    shape = "tiny-qwen3vl"
    after = 12


class PixtralTest(PicturesTest):
    projector = "tiny-mistral3-mmproj"

    def test_pictures_of_many_sizes(self):
        with self.serve() as server:
            server.ready()
            sizes = set()
            for width, height in ((56, 56), (120, 40), (333, 500)):
                body = chat(openai(png(1, width, height)))
                first = self.ok(server, "/v1/chat/completions", body)
                again = self.ok(server, "/v1/chat/completions", body)
                n, found = self.cached(again)
                self.assertEqual(found, n - 1)
                self.assertEqual(likelihoods(again), likelihoods(first))
                count = self.ok(server, "/v1/messages/count_tokens", {"messages": [
                    {"role": "user", "content": [
                        {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                     "data": coded(png(1, width, height))}},
                        {"type": "text", "text": "What is it?"}]}]})
                self.assertEqual(count["input_tokens"], n)
                sizes.add(n)
            self.assertEqual(len(sizes), 3)


if __name__ == "__main__":
    unittest.main()
