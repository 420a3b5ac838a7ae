#!/usr/bin/env python3
"""The APIs of weft serve together: the same bits through all of them, the likelihoods that
evaluations ask for, clients that leave."""

import concurrent.futures
import json
import unittest

from serve_test import ServeTest
from weft_process import weft

PROMPT = "The loom stands in the room beside the kitchen. "
COMMON = {"temperature": 1, "seed": 7, "ignore_eos": True}


def from_completions(server):
    body = server.ask("POST", "/v1/completions", {
        "prompt": PROMPT * 3, "max_tokens": 48, "logprobs": 3, "echo": True, **COMMON}).json
    choice = body["choices"][0]
    return choice["text"], choice["logprobs"]


def from_chat(server):
    body = server.ask("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": PROMPT * 5}], "max_tokens": 40, "logprobs": True,
        "top_logprobs": 3, "reasoning_format": "none", **COMMON}).json
    choice = body["choices"][0]
    return choice["message"]["content"], choice["logprobs"]


def from_responses(server):
    body = server.ask("POST", "/v1/responses", {
        "input": PROMPT * 2, "max_output_tokens": 56, "top_logprobs": 3,
        "include": ["message.output_text.logprobs"], **COMMON}).json
    return [item["content"] for item in body["output"]]


def from_messages(server):
    body = server.ask("POST", "/v1/messages", {
        "messages": [{"role": "user", "content": PROMPT * 4}], "max_tokens": 44, **COMMON}).json
    return body["content"]


class SameBitsTest(ServeTest):
    def test_conversations_through_all_interfaces_at_once(self):
        ways = [from_completions, from_chat, from_responses, from_messages]
        with self.serve("--threads", 2) as server:
            server.ready()
            alone = [way(server) for way in ways]
            for result in alone:
                self.assertGreater(len(json.dumps(result)), 60)
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                together = list(pool.map(lambda way: way(server), ways * 3))
            for i, result in enumerate(together):
                self.assertEqual(result, alone[i % len(ways)], ways[i % len(ways)].__name__)
            self.assertIdle(server)
        with self.serve("--threads", 1, "--max-running", 2) as server:
            server.ready()
            self.assertEqual([way(server) for way in ways], alone)


class LikelihoodTest(ServeTest):
    CASES = [("The loom stands in the", " kitchen"), ("One two three", " four five"),
             ("", "Begin"), ("A b", "c d e f")]

    def test_echoed_logprobs_are_those_of_score(self):
        lines = "".join(json.dumps({"context": context, "continuation": more}) + "\n"
                        for context, more in self.CASES)
        done = weft("score", "-m", self.model, "--kv", "f16", stdin=lines)
        self.assertEqual(done.code, 0, str(done))
        with self.serve("--kv", "f16") as server:
            server.ready()
            for (context, more), score in zip(self.CASES, done.json_lines):
                def ids(text):
                    return server.ask("POST", "/tokenize", {
                        "content": text, "add_special": True}).json["tokens"]
                prompt = ids(context + more)
                body = server.ask("POST", "/v1/completions", {
                    "prompt": prompt, "max_tokens": 1, "echo": True, "logprobs": 1,
                    "temperature": 0}).json
                logprobs = body["choices"][0]["logprobs"]
                begin = len(prompt) - score["tokens"]
                tokens = logprobs["tokens"][begin:-1]
                self.assertEqual(len(tokens), score["tokens"])
                self.assertAlmostEqual(sum(logprobs["token_logprobs"][begin:-1]),
                                       score["logprob"], places=4)
                best = [max(top, key=top.get) for top in logprobs["top_logprobs"][begin:-1]]
                self.assertEqual(tokens == best, score["is_greedy"])


class ShapesTest(ServeTest):
    """Parts of requests that are more than messages and functions."""

    LOOK = {"name": "look", "input_schema": {"type": "object"}}

    def ask(self, server, path, body):
        answer = server.ask("POST", path, body)
        self.assertEqual(answer.status, 200, answer)
        return answer

    def messages(self, *content, **more):
        return {"max_tokens": 4, "messages": [{"role": "user", "content": list(content)}], **more}

    def test_deferred_tools_take_no_room(self):
        count = "/v1/messages/count_tokens"
        hidden = {**self.LOOK, "name": "DeferredToolPlaceholder", "defer_loading": True,
                  "description": "Never call this tool. " * 20}
        hello = {"type": "text", "text": "Hello"}
        with self.serve("--threads", 1) as server:
            server.ready()
            sizes = [self.ask(server, count, self.messages(hello, tools=tools)).json["input_tokens"]
                     for tools in ([self.LOOK], [hidden, self.LOOK],
                                   [{**hidden, "defer_loading": False}, self.LOOK])]
            self.assertEqual(sizes[0], sizes[1])
            self.assertGreater(sizes[2], sizes[1] + 50)
            document = {"type": "document", "title": "Looms",
                        "source": {"type": "text", "media_type": "text/plain", "data": PROMPT}}
            size = self.ask(server, count, self.messages(document, hello)).json["input_tokens"]
            self.assertGreater(size, 20)
            document["source"] = {"type": "url", "url": "https://a.b/c.pdf"}
            refused = server.ask("POST", "/v1/messages", self.messages(document, hello))
            self.assertEqual(refused.status, 400)
            self.assertIn("document of type url", str(refused))

    def test_a_third_identical_call_is_told(self):
        conversation = [{"role": "user", "content": "Hello"}]
        for i in range(3):
            call = {"id": f"c{i}", "type": "function",
                    "function": {"name": "look", "arguments": "{}"}}
            conversation += [{"role": "assistant", "tool_calls": [call]},
                             {"role": "tool", "tool_call_id": f"c{i}", "content": "nothing"}]
        body = {"messages": conversation, "max_tokens": 4, "verbose": True}
        told = "the model has called look 3 times in a row with the same result"
        for flags, has_note in (((), False), (("--on-repeated-call", "note"), True)):
            with self.serve("--threads", 1, *flags) as server:
                server.ready()
                answer = self.ask(server, "/v1/chat/completions", body)
                self.assertEqual(answer.headers["X-Weft-Warning"], told)
                prompt = answer.json["__verbose"]["prompt"]
                self.assertEqual("This call has been made 3 times" in prompt, has_note)
                server.until(lambda: told in server.log, "the log does not tell it")

    def test_ollamas_conversations_are_truncated(self):
        turns = [{"role": role, "content": f"{i}: {PROMPT}"}
                 for i in range(30) for role in ("user", "assistant")]
        body = {"model": "llama", "stream": False, "options": {"num_predict": 4},
                "messages": turns + [{"role": "user", "content": "Hello"}]}
        with self.serve("--threads", 1, "--ctx", 512, "--alias", "llama") as server:
            server.ready()
            answer = self.ask(server, "/api/chat", body)
            self.assertIn("messages were dropped", answer.headers["X-Weft-Warning"])
            self.assertLess(answer.json["prompt_eval_count"], 512)
            server.until(lambda: "messages were dropped" in server.log, "the log does not tell it")
            refused = server.ask("POST", "/api/chat", {**body, "truncate": False})
            self.assertEqual(refused.status, 400)


class LeavingTest(ServeTest):
    LONG = {"max_tokens": 190000, "ignore_eos": True}

    def test_a_client_that_leaves_ends_its_turn_and_no_other(self):
        chat = {"messages": [{"role": "user", "content": "x"}], **self.LONG}
        requests = [("/v1/chat/completions", chat),
                    ("/v1/chat/completions", {**chat, "stream": True}),
                    ("/v1/completions", {"prompt": "x", **self.LONG}),
                    ("/v1/messages", chat), ("/v1/messages", {**chat, "stream": True}),
                    ("/v1/responses", {"input": "x", "max_output_tokens": 190000,
                                       "ignore_eos": True})]
        with self.serve(*self.ROOM, "--max-running", 1) as server:
            server.ready()
            for path, body in requests:
                first = server.send(path, body)
                server.until(lambda: server.metric("weft_turns_running") == 1, "nothing runs")
                queued = server.send(path, body)
                server.until(lambda: server.metric("weft_turns_queued") == 1, "nothing waits")
                queued.close()
                server.until(lambda: server.metric("weft_turns_queued") == 0, "it still waits")
                self.assertEqual(server.metric("weft_turns_running"), 1)
                first.close()
                self.assertIdle(server)


if __name__ == "__main__":
    unittest.main(verbosity=2)
