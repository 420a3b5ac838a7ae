"""Sends the conversations of a trace to a gateway or a worker, and counts what comes back."""

import asyncio
import collections
import dataclasses
import time

from fleet import trace
from fleet.http_stream import Refused, ask, send
from fleet.step_times import Profile

SAMPLE_S = 0.5
MAX_SAMPLED = 64  # a gateway with more workers takes too long to list them


@dataclasses.dataclass
class Record:
    conversation: int
    turn: int
    sent_s: float = 0.0
    first_s: float = None
    total_s: float = None
    prompt: int = 0
    cached: int = 0
    answer: int = 0
    ceiling: int = 0    # what one cache without a bound would have had of the prompt
    worker: str = ""
    error: str = ""


class Template:
    """How many tokens the chat template adds to each message, and to the prompt's end."""

    async def learn(self, url, model, word):
        async def prompt_of(*roles):
            reply = await ask(url, "/v1/chat/completions", {
                "model": model, "max_tokens": 1,
                "messages": [{"role": role, "content": word[0]} for role in roles]})
            return reply["usage"]["prompt_tokens"]
        one, three = await prompt_of("user"), await prompt_of("user", "assistant", "user")
        said = len(word[1])
        self.message = (three - one) // 2 - said
        self.end = await prompt_of("system", "user") - 2 * (said + self.message)


class Drive:
    def __init__(self, url, model, profile, options):
        self.url, self.model, self.options = url, model, options
        self.systems, self.conversations = trace.make(options.seed, profile.words, options)
        self.template, self.word = Template(), profile.words[0]
        self.records, self.loads = [], collections.defaultdict(list)
        self.seen_kinds = set()
        self.texts = {}      # the messages of each conversation, and their tokens, by turn
        self.ended = {}

    async def run(self):
        await self.template.learn(self.url, self.model, self.word)
        for each in self.conversations:
            for turn in range(len(each.turns)):
                self.ended[each.number, turn] = asyncio.Event()
        self.begin = time.monotonic()
        sampler = asyncio.create_task(self.sample())
        await asyncio.gather(*(self.talk(each) for each in self.conversations))
        self.seconds = time.monotonic() - self.begin
        sampler.cancel()

    async def sample(self):
        """The queues of the gateway's workers from time to time."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            try:
                found = await ask(self.url, "/workers")
            except (OSError, Refused, ValueError, IndexError):
                return  # no gateway
            if len(found["workers"]) > MAX_SAMPLED:
                return
            for worker in found["workers"]:
                for load in worker.get("engine_load", {}).get("loads", []):
                    self.loads["running"].append(load["num_running_reqs"])
                    self.loads["waiting"].append(load["num_waiting_reqs"])

    async def talk(self, conversation):
        record = None
        try:
            if conversation.parent < 0:
                await asyncio.sleep(conversation.start_s)
                messages = [{"role": "system", "content": self.systems[conversation.kind]}]
                known = 0
            else:
                place = conversation.parent, conversation.after
                await self.ended[place].wait()
                messages, known = self.texts[place]
                messages = list(messages)
            for i, turn in enumerate(conversation.turns):
                await asyncio.sleep(turn.think_s)
                messages = [*messages, {"role": "user", "content": turn.text}]
                record = Record(conversation.number, i)
                self.records.append(record)
                is_first = not known and conversation.kind not in self.seen_kinds
                self.seen_kinds.add(conversation.kind)
                text = await self.send(record, messages, turn)
                if not known and not is_first:
                    # The system prompt and the beginning of the next message.
                    known = record.prompt - turn.n_tokens - self.template.message
                # One cache has at least what a worker's own has, such as the template's beginning.
                record.ceiling = min(max(known, record.cached), record.prompt - 1)
                known = record.prompt + record.answer - 1
                messages = [*messages, {"role": "assistant", "content": text}]
                self.texts[conversation.number, i] = messages, known
                self.ended[conversation.number, i].set()
        except (OSError, Refused, ValueError, KeyError, asyncio.IncompleteReadError) as error:
            if record is None:
                self.records.append(record := Record(conversation.number, 0))
                error = "the turn that it branches off failed"
            record.error = str(error) or type(error).__name__
        finally:
            # Its children need not wait any longer.
            for i in range(len(conversation.turns)):
                self.ended[conversation.number, i].set()

    async def send(self, record, messages, turn):
        body = {"model": self.model, "messages": messages, "stream": True, "temperature": 0,
                "stream_options": {"include_usage": True}, "max_tokens": turn.answer_tokens,
                # So that real and simulated workers say the same number of tokens.
                "min_tokens": turn.answer_tokens, "ignore_eos": True}
        begin, text = time.monotonic(), ""
        record.sent_s = begin - self.begin
        async with send(self.url, "/v1/chat/completions", body) as reply:
            record.worker = reply.headers.get("x-smg-routed-worker-id", self.url)
            if reply.status != 200:
                raise Refused(f"HTTP {reply.status}: {(await reply.body())[:300]!r}")
            async for event in reply.events():
                if "error" in event:
                    raise Refused(str(event["error"]))
                if usage := event.get("usage"):
                    record.prompt = usage["prompt_tokens"]
                    record.answer = usage["completion_tokens"]
                    record.cached = (usage.get("prompt_tokens_details") or {}).get(
                        "cached_tokens") or 0
                for choice in event.get("choices") or ():
                    delta = choice["delta"]
                    said = (delta.get("reasoning_content") or "") + (delta.get("content") or "")
                    if said and record.first_s is None:
                        record.first_s = time.monotonic() - begin
                    text += said
        record.total_s = time.monotonic() - begin
        if record.first_s is None or not record.prompt:
            raise Refused("the answer ended early")
        return text

    def figures(self):
        """Name and value of each row of the report."""
        good = [record for record in self.records if not record.error]
        first = [record.first_s for record in good]
        prompt, cached, ceiling = (sum(getattr(record, name) for record in good)
                                   for name in ("prompt", "cached", "ceiling"))
        gaps = [(record.total_s - record.first_s) / (record.answer - 1)
                for record in good if record.answer > 1]
        served = collections.Counter(record.worker for record in good)
        shares = sorted(served.values(), reverse=True)
        most = 8
        by_worker = " ".join(map(str, shares[:most]))
        if len(shares) > most:
            by_worker += f" ... ({len(shares)} workers)"

        def mean(name):
            values = self.loads[name]
            return f"{sum(values) / len(values):.2f}" if values else "-"
        return {
            "requests": f"{len(self.records)}",
            "failures": f"{len(self.records) - len(good)}",
            "first token p50, ms": f"{1000 * trace.percentile(first, 0.5):.1f}",
            "first token p90, ms": f"{1000 * trace.percentile(first, 0.9):.1f}",
            "between tokens p50, ms": f"{1000 * trace.percentile(gaps, 0.5):.1f}",
            "prompt tokens": f"{prompt}",
            "cached tokens": f"{cached}",
            "ceiling of cached tokens": f"{ceiling}",
            "cached share of prompts, %": f"{100 * cached / max(1, prompt):.2f}",
            "cached share of the ceiling, %": f"{100 * cached / max(1, ceiling):.2f}",
            "requests by worker": by_worker,
            "running requests of a worker, mean": mean("running"),
            "waiting requests of a worker, mean": mean("waiting"),
            "wall, s": f"{self.seconds:.1f}",
        }

    def errors(self):
        return collections.Counter(record.error for record in self.records if record.error)


def drive(url, profile, options):
    """The trace on a gateway or worker."""
    found = asyncio.run(ask(url, "/v1/models"))
    done = Drive(url, found["data"][0]["id"], profile, options)
    asyncio.run(done.run())
    return done


def run(options):
    done = drive(options.url, Profile.load(options.profile), options)
    for name, value in done.figures().items():
        print(f"{name:36} {value}")
    for error, n in done.errors().most_common(5):
        print(f"{n} times: {error}")
    return 1 if done.errors() else 0
