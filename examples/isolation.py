#!/usr/bin/env python3
"""See for yourself that conversations are isolated: runs dozens of conversations with different
names through weft serve at once.

Each conversation states a name and a colour and is asked for both later. First the conversations
run one after another, each alone; then, on a fresh server, all at once and with disturbances:
every third is forked after its first answer, so that two continue with the same name and different
colours; in every third a client requests a long answer and leaves in the middle of it. Finally the
two runs are compared, token by token, with the log-probabilities of each token and its nearest
alternatives: every bit must be equal.

    examples/isolation.py                           # with the built-in model
    examples/isolation.py -- -m model.gguf          # arguments after -- are for weft serve
    examples/isolation.py --names -- -m model.gguf  # every answer must recall its own name too

--names needs a model that can recall a name. The exit code is 0 if everything is as expected.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import re
import subprocess
import sys
import threading
import time

NAMES = """Mira Tom Anna Ben Clara David Ella Felix Grace Hugo Ida Jonas Kate Leo Maya Nora Oscar
Paula Rosa Sam Tessa Victor Wanda Xavier Yara Zoe Alma Boris Dora Emil Fiona Gustav Hanna Igor
Jana Karl Lena Marco Nina Otto Petra Ravi Sofia Theo Ulla Vera Willem Yusuf""".split()
COLOURS = "red blue green yellow black white brown grey orange purple pink silver".split()
ALTERNATIVES = 3  # per token, whose log-probabilities are compared too
LIMIT_S = 300  # for one answer, on a busy machine


@dataclasses.dataclass
class Conversation:
    id: str  # the session's
    name: str
    colour: str
    parent: "Conversation | None" = None  # begins as a fork of this one
    is_disturbed: bool = False  # a client leaves in the middle of an answer
    messages: list = dataclasses.field(default_factory=list)
    tokens: list = dataclasses.field(default_factory=list)  # of each answer

    def questions(self):
        return [f"My name is {self.name}.", f"My boat is {self.colour}.", "What is my name?",
                "What colour is my boat?"]

    def answers(self):
        return [m["content"] for m in self.messages if m["role"] == "assistant"]


def make_conversations(count):
    """`count` conversations, including forks; a fork comes after its parent."""
    conversations = []
    for i in range(len(NAMES)):
        conversation = Conversation(NAMES[i].lower(), NAMES[i], COLOURS[i % len(COLOURS)],
                                    is_disturbed=i % 3 == 1)
        conversations.append(conversation)
        if i % 3 == 0:
            conversations.append(Conversation(
                conversation.id + "-fork", conversation.name,
                COLOURS[(i + 5) % len(COLOURS)], parent=conversation))
    return conversations[:count]


class Server:
    """A separate weft serve on a free port, stopped at the end of the with block."""

    def __init__(self, weft, flags):
        self.process = subprocess.Popen([weft, "serve", "--port", "0", *flags],
                                        stderr=subprocess.PIPE, text=True)
        self.log = []
        for line in self.process.stderr:
            self.log.append(line)
            if match := re.match(r"listening on http://127\.0\.0\.1:(\d+)$", line):
                self.port = int(match[1])
                break
        else:
            raise SystemExit("weft serve did not start: " + "".join(self.log))
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()

    def __enter__(self):
        deadline = time.monotonic() + LIMIT_S
        while self.ask("GET", "/health")[0] != 200:
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.__exit__()
                raise SystemExit("weft serve did not load its model: " + "".join(self.log))
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()

    @contextlib.contextmanager
    def open(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            yield connection.getresponse()
        except ConnectionError as error:
            raise SystemExit(f"weft serve went away ({error}): " + "".join(self.log)) from error
        finally:
            connection.close()

    def ask(self, method, path, body=None):
        with self.open(method, path, body) as response:
            return response.status, json.loads(response.read() or b"null")

    def chat(self, conversation, sampling, **fields):
        """Status and body of the next answer; waits while the session is still ending another."""
        body = {"messages": conversation.messages, "session_id": conversation.id, "logprobs": True,
                "top_logprobs": ALTERNATIVES, "reasoning_format": "none", **sampling, **fields}
        while True:
            status, answer = self.ask("POST", "/v1/chat/completions", body)
            if status == 200:
                return answer
            if status != 409:
                raise SystemExit(f"{conversation.id}: status {status}, {answer}")
            time.sleep(0.01)

    def leave_in_the_middle(self, conversation, sampling):
        """Requests a long answer and leaves after a few tokens."""
        body = {"messages": conversation.messages, "session_id": conversation.id, "stream": True,
                **sampling, "max_tokens": 2000, "ignore_eos": True}
        with self.open("POST", "/v1/chat/completions", body) as response:
            for _ in range(8):
                response.readline()


def say(server, conversation, question, sampling):
    conversation.messages.append({"role": "user", "content": question})
    choice = server.chat(conversation, sampling)["choices"][0]
    conversation.messages.append({"role": "assistant", "content": choice["message"]["content"]})
    conversation.tokens.append(choice["logprobs"]["content"])


def run_alone(server, conversations, sampling):
    """One after another; future forks are ordinary conversations here."""
    for conversation in conversations:
        for question in conversation.questions():
            say(server, conversation, question, sampling)
        server.ask("DELETE", f"/v1/sessions/{conversation.id}")


def run_together(server, conversations, sampling):
    """All at once, each in a thread. Returns how many answers were in progress at once."""
    told = {c.id: threading.Event() for c in conversations}  # the first answer has arrived
    forked = {c.parent.id: threading.Event() for c in conversations if c.parent}
    under_way, most, lock, failures = 0, 0, threading.Lock(), []

    def begin(conversation):
        parent = conversation.parent
        if parent is None:
            say(server, conversation, conversation.questions()[0], sampling)
            told[conversation.id].set()
            if conversation.id in forked and not forked[conversation.id].wait(LIMIT_S):
                raise SystemExit(f"{conversation.id} was not forked in {LIMIT_S} s")
            return
        if not told[parent.id].wait(LIMIT_S):
            raise SystemExit(f"{parent.id} had no answer in {LIMIT_S} s")
        try:
            status, answer = server.ask("POST", f"/v1/sessions/{parent.id}/fork",
                                        {"session_id": conversation.id})
            if status != 200:
                raise SystemExit(f"{conversation.id}: status {status}, {answer}")
            conversation.messages = list(parent.messages)
            conversation.tokens = list(parent.tokens)
        finally:
            forked[parent.id].set()

    def hold(conversation):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        try:
            begin(conversation)
            for i, question in enumerate(conversation.questions()[1:]):
                if conversation.is_disturbed and i == 1:
                    conversation.messages.append({"role": "user", "content": question})
                    server.leave_in_the_middle(conversation, sampling)
                    conversation.messages.pop()
                say(server, conversation, question, sampling)
        except BaseException as error:  # any kind; ends the program below
            failures.append(f"{conversation.id}: {error!r}")
        finally:
            with lock:
                under_way -= 1

    threads = [threading.Thread(target=hold, args=(c,)) for c in conversations]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit("\n".join(failures))
    return most


def has_word(text, word):
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def differing_answers(alone, together):
    """The numbers, from 1, of the answers that are not bit-identical."""
    pairs = zip(alone.tokens, together.tokens, strict=True)
    return [i + 1 for i, (a, b) in enumerate(pairs) if a != b]


def foreign_names(conversation):
    """Other conversations' names in its answers."""
    text = " ".join(conversation.answers())
    return [n for n in NAMES if n != conversation.name and has_word(text, n)]


def forgotten(conversation):
    """What the last two answers should contain but do not."""
    wanted = zip(("name", "colour"), (conversation.name, conversation.colour),
                 conversation.answers()[-2:])
    return [what for what, value, answer in wanted if not has_word(answer, value)]


def report(alone, together, most, check_names):
    """Prints the table and returns the number of faulty conversations."""
    print(f"{'conversation':<14}{'boat':<9}{'tokens':>6}  {'alone = together':<18}"
          f"{'other names':<16}answers about its name and its boat")
    bad = 0
    for a, b in zip(alone, together, strict=True):
        differing, foreign = differing_answers(a, b), foreign_names(b)
        lost = forgotten(b) if check_names else []
        bad += bool(differing or lost or (check_names and foreign))
        same = "answers " + ",".join(map(str, differing)) if differing else "same bits"
        heard = (", ".join(foreign) or "none") if check_names else "-"
        said = " | ".join(" ".join(text.split())[:36] for text in b.answers()[-2:])
        mark = " (client left)" if b.is_disturbed else ""
        print(f"{b.id:<14}{b.colour:<9}{sum(map(len, b.tokens)):>6}  {same:<18}{heard:<16}{said}"
              f"{mark}{'  FORGOT ' + ', '.join(lost) if lost else ''}")
    print(f"\n{len(together)} conversations, {most} at a time, "
          f"{sum(c.parent is not None for c in together)} of them forks, "
          f"{sum(c.is_disturbed for c in together)} with a client that left: "
          + (f"{bad} differ from their runs alone" if bad else "all equal to their runs alone")
          + (" or mix up names." if bad and check_names else "."))
    return bad


def run_both(args):
    """The conversations run alone, those run together, and how many ran at once."""
    sampling = {"temperature": args.temperature, "seed": 1, "max_tokens": args.tokens}
    alone, together = make_conversations(args.conversations), make_conversations(args.conversations)
    with Server(args.weft, args.flags) as server:
        run_alone(server, alone, sampling)
    with Server(args.weft, args.flags) as server:
        most = run_together(server, together, sampling)
    return alone, together, most


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/release/weft", help="path of the weft binary")
    parser.add_argument("--conversations", type=int, default=48)
    parser.add_argument("--tokens", type=int, default=40, help="limit per answer")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--names", action="store_true",
                        help="answers must contain their own name and colour, and no other name")
    parser.add_argument("flags", nargs="*", default=["-m", "box"],
                        help="flags for weft serve, after --: -m FILE ... (the built-in model)")
    args = parser.parse_args(arguments)
    if not 2 <= args.conversations <= len(make_conversations(None)):
        parser.error(f"--conversations is 2 to {len(make_conversations(None))}")
    return args


def main():
    args = parse()
    alone, together, most = run_both(args)
    return 1 if report(alone, together, most, args.names) else 0


if __name__ == "__main__":
    sys.exit(main())
