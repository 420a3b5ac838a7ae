#!/usr/bin/env python3
"""Several models on one server that holds two of them, over HTTP: what swaps cost, and whether they show.

  bench/swap.py --server 'NAME=COMMAND' [--server ...] [--works LIST] [--requests N] MODEL MODEL ...

COMMAND starts a server of several models with OpenAI's API; in it are replaced {port}, {models} (a
file for weft's --models), {folder} (one that has the models alone), {memory} and {state} (a folder
of its own), as in
  'weft=build/release/weft serve --models {models} --memory {memory} --port {port} --threads 2
        --state-dir {state}'
A MODEL is a GGUF file or a folder of Hugging Face's files, and is called by its file's name. One that
writes no text is asked for embeddings. The works:

  swap      clients that alternate over all models, in an order that --seed gives. Each answer is
            compared with that of the model alone on a server: the text with its log probabilities,
            or the vector. One prompt in eight is of --long tokens, the others are short
  together  the first two models that write text decode at once. The share of a model is the time
            that its tokens take alone, of the time that they took; the shares' sum is 1 if nothing
            is lost
  adapters  eight sessions of the first model that writes text: with no adapter, with one, with
            eight. The adapters are those of --lora, or random ones by --make-model

--memory is the budget of all models; by default it holds the two largest. The memory that is told is
what the system counts as resident at its most, with the pages of mapped files: weights are among
these, and must be there for each step. Its own part is what no file holds. Prints Markdown tables;
--out appends them to a file, with the machine, the commit and the command.
"""
import collections
import contextlib
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from serving import Report, Server, arguments, chosen, events, status_of, words
from waits import Stream, gaps, percentile, tokens_in

ANSWER_TOKENS = 16
PROMPTS = 8  # per model; the first is the long one
SHORT_WORDS = (5, 90)
SAMPLE_WORDS = 200
SAMPLE_SECONDS = 0.02
SESSIONS = 8  # that decode together, of the adapters
MB = 1e6


class Failure(RuntimeError):
    """A request that has no answer."""


# --- the models ---------------------------------------------------------------------------------

def name_of(path):
    return path.stem if path.is_file() else path.name


def bytes_of(path):
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def budget_for(models):
    """Holds the two largest where each has a quarter of what it leaves for its conversations."""
    return int(1.5 * sum(sorted(map(bytes_of, models))[-2:])) + (256 << 20)


@contextlib.contextmanager
def served(command, models, options, adapters=()):
    """A server of these models; the adapters are the first one's."""
    with tempfile.TemporaryDirectory(prefix="swap_") as home:
        home = pathlib.Path(home)
        file, folder, state = home / "models.toml", home / "models", home / "state"
        folder.mkdir()
        tables = []
        for i, model in enumerate(models):
            (folder / model.name).symlink_to(model)
            tables.append(f'["{name_of(model)}"]\nmodel = {json.dumps(str(model))}\n')
            if i == 0 and adapters:
                tables.append(f"lora = {json.dumps(list(adapters))}\n")
        file.write_text("".join(tables), encoding="utf-8")
        with Server(command, models=file, folder=folder, memory=options.memory,
                    state=state) as server:
            yield server


# --- one request --------------------------------------------------------------------------------

Answer = collections.namedtuple("Answer", "said first_s prompt cached")


def post(server, path, body):
    reply = server.post(path, body)
    if reply.status != 200:
        raise Failure(f"HTTP {reply.status}: {reply.read(300).decode(errors='replace')}")
    return reply


def embed(server, model, prompt):
    begin = time.monotonic()
    answer = json.loads(post(server, "/v1/embeddings", {"model": model, "input": prompt}).read())
    vector = answer["data"][0]["embedding"]
    return Answer(vector, time.monotonic() - begin, answer["usage"]["prompt_tokens"], 0)


def complete(server, model, prompt):
    begin, first, said, usage = time.monotonic(), None, [], None
    reply = post(server, "/v1/completions",
                 {"model": model, "prompt": prompt, "max_tokens": ANSWER_TOKENS, "temperature": 0,
                  "logprobs": 1, "stream": True, "stream_options": {"include_usage": True}})
    for event in events(reply):
        if "error" in event:
            raise Failure(str(event["error"]))
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            first = first or time.monotonic() - begin
            logprobs = choice.get("logprobs") or {}
            said += zip(logprobs.get("tokens", ()), logprobs.get("token_logprobs", ()))
    if first is None or usage is None:
        raise Failure("the stream ended early")
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Answer(said, first, usage["prompt_tokens"], cached)


class Asked:
    """A model as it is asked: its kind, its prompts, and what it says to them alone."""

    def __init__(self, command, path, seed, options):
        self.path, self.name = path, name_of(path)
        with served(command, [path], options) as server:
            self.ask, self.prompts = self.kind_on(server, seed, options)
            self.alone = [self.ask(server, self.name, prompt).said for prompt in self.prompts]

    def kind_on(self, server, seed, options):
        dice = random.Random(seed)
        short = [words(dice.random(), dice.randint(*SHORT_WORDS)) for _ in range(PROMPTS)]
        try:
            sample = complete(server, self.name, words(seed, SAMPLE_WORDS))
        except Failure:
            return embed, short
        n_words = options.long * SAMPLE_WORDS // sample.prompt
        return complete, [words(seed + 1, n_words), *short[1:]]

    def writes(self):
        return self.ask is complete


# --- memory and swaps, watched from outside --------------------------------------------------------

def processes_of(pid):
    """A process and those that it has started."""
    yield pid
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                yield from processes_of(int(child))


def memory_of(pid):
    """Bytes resident, those of no file among them, and the most that were resident ever."""
    values = {}
    with contextlib.suppress(OSError):
        values = status_of(pid)

    def value(name):
        return 1024 * int(values[name].split()[0]) if name in values else 0
    return value("VmRSS"), value("RssAnon") + value("RssShmem"), value("VmHWM")


class Memory(threading.Thread):
    """The most that a server has in memory while this runs."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.pid, self.resident, self.own, self.ended = server.process.pid, 0, 0, threading.Event()
        self.start()

    def run(self):
        while not self.ended.wait(SAMPLE_SECONDS):
            all_ = [memory_of(pid) for pid in processes_of(self.pid)]
            # The system keeps the most of one process, between two looks too.
            most = all_[0][2] if len(all_) == 1 else 0
            self.resident = max(self.resident, sum(seen[0] for seen in all_), most)
            self.own = max(self.own, sum(seen[1] for seen in all_))

    def stop(self):
        self.ended.set()
        self.join()


class Swaps(threading.Thread):
    """How often models are loaded and unloaded, by the events of /models/sse."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.reply, self.states, self.counts = server.get_stream("/models/sse"), {}, {}
        self.start()

    def run(self):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for event in events(self.reply):
                state = (event.get("data") or {}).get("status")
                if event.get("event") == "model_status" and state != self.states.get(event["model"]):
                    self.states[event["model"]] = state
                    self.counts[state] = self.counts.get(state, 0) + 1


# --- swap ---------------------------------------------------------------------------------------

class Client(threading.Thread):
    """Sends these requests, one after the other."""

    def __init__(self, server, turns):
        super().__init__(daemon=True)
        self.server, self.turns = server, turns
        self.answers, self.errors, self.unlike, self.computed_again = [], [], [], 0
        self.start()

    def run(self):
        for model, number, is_again in self.turns:
            try:
                answer = model.ask(self.server, model.name, model.prompts[number])
            except (OSError, ValueError, KeyError, Failure) as error:
                self.errors.append(f"{model.name}: {type(error).__name__}: {error}")
                continue
            self.answers.append(answer)
            if answer.said != model.alone[number]:
                self.unlike.append(f"{model.name}: prompt {number}")
            # The last token is always computed, for its logits.
            if is_again and number == 0 and model.writes():
                self.computed_again += max(0, answer.prompt - answer.cached - 1)


def turns_for(models, options):
    """The requests: which model, which of its prompts, whether it has come before."""
    dice, seen = random.Random(options.seed), set()
    for _ in range(options.requests):
        model, number = dice.choice(models), dice.randrange(PROMPTS)
        yield model, number, (model, number) in seen
        seen.add((model, number))


def tell(name, what, texts):
    for text, count in collections.Counter(texts).most_common(5):
        print(f"swap: {name}: {what}: {count} times: {text}", file=sys.stderr)


def swap(name, command, models, options):
    with served(command, [model.path for model in models], options) as server:
        memory, swaps, begin = Memory(server), Swaps(server), time.monotonic()
        turns = list(turns_for(models, options))
        clients = [Client(server, turns[i::options.clients]) for i in range(options.clients)]
        for client in clients:
            client.join()
        wall = time.monotonic() - begin
        memory.stop()
    errors = [error for client in clients for error in client.errors]
    unlike = [text for client in clients for text in client.unlike]
    tell(name, "error", errors)
    tell(name, "unlike alone", unlike)
    first = [answer.first_s for client in clients for answer in client.answers]
    return [f"{len(turns)}", f"{len(errors)}", f"{len(unlike)}", f"{percentile(first, 0.5):.2f}",
            f"{percentile(first, 0.99):.2f}", f"{max(first, default=float('nan')):.2f}",
            f"{swaps.counts.get('loaded', 0)}", f"{swaps.counts.get('unloaded', 0)}",
            f"{sum(client.computed_again for client in clients)}", f"{memory.resident / MB:.0f}",
            f"{memory.own / MB:.0f}", f"{options.memory / MB:.0f}", f"{wall:.0f}"]


SWAP_HEAD = ["requests", "errors", "unlike alone", "first token, s: p50", "p99", "max", "loads",
             "unloads", "tokens of long prompts computed again", "resident at most, MB",
             "its own part", "budget", "wall, s"]


# --- together -----------------------------------------------------------------------------------

def decode(server, models, seconds):
    """A stream of each of these, and when all of them had begun and were stopped."""
    streams = [Stream(server, words(7 + i, 20), 1_000_000, options={"model": model, "end_loops": False})
               for i, model in enumerate(models)]
    while not all(stream.times or stream.error for stream in streams):
        time.sleep(0.01)
    begin = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    for stream in streams:
        if stream.error or not stream.is_alive():
            sys.exit(f"swap: a stream ended: {stream.error or 'its tokens are through'}")
    for stream in streams:
        stream.leave()
    for stream in streams:
        stream.join()
    return streams, begin, end


def seconds_for(stream, first, last):
    """What a stream took from one of its tokens to another."""
    return stream.times[min(last, len(stream.times) - 1)] - stream.times[first]


def share_of(together, alone, begin, end):
    """How long the tokens of the time took alone, at the same depths, of that time."""
    numbers = [i for i, at in enumerate(together.times) if begin <= at <= end]
    return seconds_for(alone, numbers[0], numbers[-1]) / seconds_for(together, numbers[0], numbers[-1])


def together(name, command, models, options):
    pair = [model for model in models if model.writes()][:2]
    if len(pair) < 2:
        sys.exit("swap: together needs two models that write text")
    names = [model.name for model in pair]
    with served(command, [model.path for model in pair], options) as server:
        for model in pair:
            model.ask(server, model.name, model.prompts[1])
        alone = [decode(server, [one], options.seconds) for one in names]
        streams, begin, end = decode(server, names, options.seconds)
    shares = [share_of(stream, quiet[0][0], begin, end) for stream, quiet in zip(streams, alone)]
    cells = [f"{sum(shares):.2f}"]
    for stream, (quiet, quiet_begin, quiet_end), one, share in zip(streams, alone, names, shares):
        before, beside = gaps(quiet, quiet_begin, quiet_end), gaps([stream], begin, end)
        cells += [one, f"{share:.2f}", f"{1000 * statistics.median(before):.1f}",
                  f"{1000 * percentile(beside, 0.5):.1f}", f"{1000 * percentile(beside, 0.99):.1f}",
                  f"{1000 * max(beside):.1f}"]
    return cells


TOGETHER_HEAD = ["sum of the shares"] + 2 * ["model", "its share", "gap alone, ms: p50",
                                              "gap together, ms: p50", "p99", "max"]


# --- adapters -----------------------------------------------------------------------------------

def adapters_for(model, folder, options):
    """NAME=FILE of eight adapters."""
    if options.lora:
        return list(itertools.islice(itertools.cycle(options.lora), SESSIONS))
    made = []
    for i in range(SESSIONS):
        path = pathlib.Path(folder) / f"adapter{i}.gguf"
        subprocess.run([options.make_model, "--lora-of", str(model), "--rank", str(options.rank), "--seed",
                        str(i), "--type", "F16", "--out", str(path)], check=True,
                       capture_output=True)
        made.append(f"a{i}={path}")
    return made


def rate(server, models, seconds):
    streams, begin, end = decode(server, models, seconds)
    return tokens_in(streams, begin, end) / (end - begin)


def adapters(name, command, models, options):
    writers = [model for model in models if model.writes()]
    if not writers:
        sys.exit("swap: adapters need a model that writes text")
    model = writers[0]
    with tempfile.TemporaryDirectory(prefix="swap_") as folder:
        flags = adapters_for(model.path, folder, options)
        of = [f"{model.name}:{flag.partition('=')[0]}" for flag in flags]
        with served(command, [model.path], options, dict.fromkeys(flags)) as server:
            before = rate(server, SESSIONS * [model.name], options.seconds)
            one = rate(server, SESSIONS * of[:1], options.seconds)
            all_ = rate(server, of, options.seconds)
            base = statistics.mean((before, rate(server, SESSIONS * [model.name], options.seconds)))
    return [model.name, f"{base:.1f}", f"{one:.1f}", f"{one / base:.2f}", f"{all_:.1f}",
            f"{len(set(of))}", f"{all_ / base:.2f}"]


ADAPTERS_HEAD = ["model", f"{SESSIONS} sessions, tokens/s: none", "one", "of none", "several",
                 "how many", "of none"]

WORKS = {"swap": (swap, SWAP_HEAD), "together": (together, TOGETHER_HEAD),
         "adapters": (adapters, ADAPTERS_HEAD)}


# --- the program --------------------------------------------------------------------------------

def parsed():
    parser = arguments(__doc__, several=True, reports=True)
    parser.add_argument("--works", default="swap,together", help=f"some of {','.join(WORKS)} (%(default)s)")
    parser.add_argument("--requests", type=int, default=2000, metavar="N")
    parser.add_argument("--clients", type=int, default=2, help="that ask at the same time (%(default)s)")
    parser.add_argument("--memory", type=int, metavar="BYTES", help="the budget (default: see above)")
    parser.add_argument("--long", type=int, default=1200, metavar="TOKENS", help="of a long prompt (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of each time that is watched (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lora", action="append", metavar="NAME=FILE", help="an adapter; again for more")
    parser.add_argument("--rank", type=int, default=16, help="of random adapters (%(default)s)")
    parser.add_argument("--make-model", default="build/release/weft-make-model", metavar="PROGRAM",
                        help="makes the adapters that --lora does not give (%(default)s)")
    options = parser.parse_args()
    options.works = chosen(parser, options.works, WORKS, "work")
    options.models = [pathlib.Path(os.path.abspath(model)) for model in options.models]
    for model in options.models:
        if not model.exists():
            parser.error(f"there is no {model}")
    if len(set(map(name_of, options.models))) < len(options.models):
        parser.error("two models are called alike; link one to another name")
    options.memory = options.memory or budget_for(options.models)
    return options


def main():
    options = parsed()
    report = Report(options.out)
    asked = {}
    for name, command in options.servers:
        print(f"swap: {name}: each model alone", file=sys.stderr, flush=True)
        asked[name] = [Asked(command, model, options.seed + 100 * i, options)
                       for i, model in enumerate(options.models)]
    for work in options.works:
        measure, head = WORKS[work]
        rows = []
        for name, command in options.servers:
            print(f"swap: {work}: {name}", file=sys.stderr, flush=True)
            rows.append((name, measure(name, command, asked[name], options)))
        report.table(work, head, rows)


if __name__ == "__main__":
    main()
