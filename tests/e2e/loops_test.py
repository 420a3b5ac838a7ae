#!/usr/bin/env python3
"""Agent loops over HTTP whose clients change what the model said, with real templates: every prompt
computes only what is new."""

import json
import os
import pathlib
import tempfile
import unittest

from serve_test import Server
from weft_process import make_model

GOLDENS = pathlib.Path(os.environ.get(
    "WEFT_GOLDENS", pathlib.Path(__file__).resolve().parents[3] / "shared" / "goldens"))
# Those whose control tokens the test's vocabulary has.
TEMPLATES = ["Qwen-Qwen3-0.6B", "Qwen3.5-4B", "HuggingFaceTB-SmolLM3-3B",
             "Qwen-Qwen2.5-7B-Instruct"]
TURNS = 12
# The last known token may be computed again.
SLACK = 2

PARAMETERS = {"type": "object", "additionalProperties": False, "required": ["city", "at"],
              "properties": {"city": {"enum": ["Bonn", "Rome"], "description": "Where"},
                             "at": {"type": "integer", "minimum": 0, "maximum": 99,
                                    "description": "When"}}}
FUNCTION = {"name": "get_weather", "description": "The weather", "parameters": PARAMETERS}


def rewritten(arguments):
    """The same arguments in another order and with other white space."""
    return json.dumps(dict(reversed(list(json.loads(arguments).items()))), indent=1)


class ChatClient:
    """OpenAI's chat completions."""
    path = "/v1/chat/completions"

    def __init__(self, habit):
        self.habit = habit
        self.messages = []

    def ask(self, text):
        self.messages.append({"role": "user", "content": text})

    def body(self, calls):
        return {"messages": self.messages, "tools": [{"type": "function", "function": FUNCTION}],
                "tool_choice": "required" if calls else "none", "max_tokens": 240 if calls else 60,
                "parallel_tool_calls": False, "reasoning_budget_tokens": 8, "temperature": 0}

    def take(self, answer):
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        if self.habit != "keeps":
            message.pop("reasoning_content", None)
        if self.habit == "rewrites":
            message["content"] = (message.get("content") or "").strip() or None
            for call in calls:
                call["function"]["arguments"] = rewritten(call["function"]["arguments"])
        self.messages.append(message)
        for call in calls:
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": "sunny"})
        usage = answer["usage"]
        return (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
                usage["completion_tokens"])


class MessagesClient:
    """Anthropic's messages."""
    path = "/v1/messages"

    def __init__(self, habit):
        self.habit = habit
        self.messages = []

    def ask(self, text):
        content = {"type": "text", "text": text}
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"].append(content)
        else:
            self.messages.append({"role": "user", "content": [content]})

    def body(self, calls):
        return {"messages": self.messages,
                "tools": [{"name": "get_weather", "description": "The weather",
                           "input_schema": PARAMETERS}],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True} if calls
                               else {"type": "none"},
                "thinking": {"type": "enabled", "budget_tokens": 8},
                "max_tokens": 240 if calls else 60, "temperature": 0}

    def take(self, answer):
        content = answer["content"]
        if self.habit != "keeps":
            content = [block for block in content if block["type"] != "thinking"]
        for block in content:
            if self.habit == "rewrites" and block["type"] == "tool_use":
                block["input"] = json.loads(rewritten(json.dumps(block["input"])))
        self.messages.append({"role": "assistant", "content": content or "-"})
        results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "sunny"}
                   for block in content if block["type"] == "tool_use"]
        if results:
            self.messages.append({"role": "user", "content": results})
        usage = answer["usage"]
        prompt = (usage["input_tokens"] + usage["cache_read_input_tokens"] +
                  usage["cache_creation_input_tokens"])
        return prompt, usage["cache_read_input_tokens"], usage["output_tokens"]


class ResponsesClient:
    """OpenAI's responses, without anything stored."""
    path = "/v1/responses"

    def __init__(self, habit):
        self.habit = habit
        self.input = []

    def ask(self, text):
        self.input.append({"role": "user", "content": text})

    def body(self, calls):
        return {"input": self.input, "tools": [{"type": "function", **FUNCTION}],
                "tool_choice": "required" if calls else "none", "parallel_tool_calls": False,
                "max_output_tokens": 240 if calls else 60, "temperature": 0,
                "reasoning_budget_tokens": 8}

    def take(self, answer):
        for item in answer["output"]:
            if item["type"] == "reasoning" and self.habit != "keeps":
                continue
            if item["type"] == "function_call" and self.habit == "rewrites":
                item["arguments"] = rewritten(item["arguments"])
            self.input.append(item)
        for item in answer["output"]:
            if item["type"] == "function_call":
                self.input.append({"type": "function_call_output", "call_id": item["call_id"],
                                   "output": "sunny"})
        usage = answer["usage"]
        return (usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"],
                usage["output_tokens"])


class OllamaClient:
    """Ollama's chat, whose calls have no ids for most clients."""
    path = "/api/chat"

    def __init__(self, habit):
        self.habit = habit
        self.messages = []

    def ask(self, text):
        self.messages.append({"role": "user", "content": text})

    def body(self, calls):
        # No choice of tools: a model of random weights calls none.
        if self.messages[-1]["role"] == "assistant":
            self.ask("Go on.")
        return {"messages": self.messages, "stream": False,
                "tools": [{"type": "function", "function": FUNCTION}],
                "options": {"num_predict": 240 if calls else 60, "temperature": 0}}

    def take(self, answer):
        message = answer["message"]
        calls = message.get("tool_calls") or []
        if self.habit != "keeps":
            message.pop("thinking", None)
        for call in calls:
            call.pop("id", None)
            if self.habit == "rewrites":
                arguments = call["function"]["arguments"]
                call["function"]["arguments"] = json.loads(rewritten(json.dumps(arguments)))
        self.messages.append(message)
        for _ in calls:
            self.messages.append({"role": "tool", "tool_name": "get_weather", "content": "sunny"})
        return answer["prompt_eval_count"], answer["cached_tokens"], answer["eval_count"]


CLIENTS = [ChatClient, MessagesClient, ResponsesClient, OllamaClient]


@unittest.skipUnless((GOLDENS / "chat").is_dir(), f"no templates in {GOLDENS}/chat")
class LoopsTest(unittest.TestCase):
    name = "tiny"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = make_model(pathlib.Path(cls.folder.name) / "tiny.gguf", "tiny-qwen3", "F32",
                               "--context", "32768")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def turn(self, server, client, turn, known):
        """Asks; returns what is computed by now: the prompt and the reply."""
        calls = turn % 4 != 3
        if turn % 4 == 0:
            client.ask(f"Do thing {turn}.")
        answer = server.ask("POST", client.path, {"model": self.name, **client.body(calls)})
        self.assertEqual(answer.status, 200, answer)
        prompt, cached, written = client.take(answer.json)
        self.assertLessEqual(prompt - cached, prompt - known + SLACK,
                             f"turn {turn}: {prompt} tokens, {cached} found, {known} known")
        self.assertLessEqual(known, prompt + SLACK, f"turn {turn}: the prompt became shorter")
        return prompt + written

    def loop(self, server, client, turns=range(TURNS), known=0):
        for turn in turns:
            known = self.turn(server, client, turn, known)
        return known

    def test_every_client_computes_only_what_is_new(self):
        for template in TEMPLATES:
            file = GOLDENS / "chat" / f"{template}.jinja"
            with Server(self.model, "--template", file, "--ctx", "8192", "--alias", self.name) as server:
                habits = ["keeps", "drops", "rewrites"] if template == TEMPLATES[0] else ["rewrites"]
                for kind in CLIENTS:
                    for habit in habits:
                        with self.subTest(template=template, client=kind.__name__, habit=habit):
                            client = kind(habit)
                            client.ask(f"Hello from {kind.__name__}, which {habit}.")
                            self.loop(server, client)

    def test_replies_outlive_a_restart(self):
        file = GOLDENS / "chat" / "Qwen-Qwen3-0.6B.jinja"
        flags = ["--template", file, "--ctx", "8192", "--state-dir",
                 os.path.join(self.folder.name, "state")]
        client = ChatClient("rewrites")
        with Server(self.model, *flags) as server:
            known = self.loop(server, client, range(6))
        with Server(self.model, *flags, "--restore-reasoning", "on") as server:
            # The prompt is short, so that its state is computed again, but it is the same prompt.
            client.ask("Go on.")
            answer = server.ask("POST", client.path, client.body(True))
            prompt, _, _ = client.take(answer.json)
            self.assertGreaterEqual(prompt, known)


if __name__ == "__main__":
    unittest.main()
