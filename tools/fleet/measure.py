"""Measures one real worker: what a simulated one needs to know.

As a gateway asks it: over gRPC, and with a pause before each prompt, for a worker that was idle
takes longer than a busy one.
"""

import asyncio
import contextlib
import itertools
import random
import statistics
import time

import grpc
from google.protobuf import json_format
from smg_grpc_proto.generated import common_pb2, vllm_engine_pb2, vllm_engine_pb2_grpc

from fleet import processes
from fleet.http_stream import Refused, ask
from fleet.step_times import Profile

CANDIDATES = (
    "river lamp seven quiet table under north paper engine slow orange window carry between little "
    "harbour evening letter water house garden road school music number city market winter summer "
    "green black white small large early late open close front back world story question answer "
    "machine light sound color animal bird fish horse tree flower stone metal wood glass bread milk "
    "sugar salt hand head heart voice family mother father child friend doctor teacher student work "
    "money price time hour year month day night morning week place land sea island mountain field "
    "the and that with from this have they there what when boat loom name is my your who he she it"
).split()
ROWS = (16, 32, 64, 128, 256, 512)
DEPTHS = (512, 1024, 2048, 4096)
DECODING = (1, 2, 4, 8, 16)
DECODE_TOKENS = 48
SHORT = 128
PAUSE_S = 0.3
DEEPER_ROWS = (32, 64, 128)


class Worker:
    """A real worker: HTTP for its tokenizer, gRPC for all else."""

    def __init__(self, url, port, seed):
        self.url, self.dice, self.words = url, random.Random(seed), []
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        self.stub = vllm_engine_pb2_grpc.VllmEngineStub(self.channel)
        self.names = (f"measure-{seed}-{i}" for i in itertools.count())

    async def find_words(self):
        """[text, tokens at the beginning, token after a space] of words with one such token."""
        for word in dict.fromkeys(CANDIDATES):
            first = (await ask(self.url, "/tokenize", {"content": word}))["tokens"]
            both = (await ask(self.url, "/tokenize", {"content": f"{word} {word}"}))["tokens"]
            if both[:-1] == first:
                self.words.append([word, first, both[-1]])
        if len(self.words) < 8:
            raise Refused(f"only {len(self.words)} words are one token here: take another model")

    def prompt(self, n):
        return [self.dice.choice(self.words)[2] for _ in range(n)]

    async def times(self, tokens, n=1):
        """When it was sent, and when each token came."""
        request = vllm_engine_pb2.GenerateRequest(
            request_id=next(self.names), stream=True,
            tokenized=vllm_engine_pb2.TokenizedInput(input_ids=tokens),
            sampling_params=vllm_engine_pb2.SamplingParams(
                temperature=0, max_tokens=n, min_tokens=n, ignore_eos=True))
        begin, times = time.monotonic(), []
        async for reply in self.stub.Generate(request):
            times += [time.monotonic()] * len(reply.chunk.token_ids)
        return begin, times

    async def first_s(self, tokens):
        await asyncio.sleep(PAUSE_S)
        begin, times = await self.times(tokens)
        return times[0] - begin

    async def gap_s(self, n, depth, repeats):
        """The time of a step that decodes n sessions whose prompts have that many tokens; None
        where they are over before all have begun."""
        gaps = []
        for _ in range(repeats):
            answers = await asyncio.gather(
                *(self.times(self.prompt(depth), DECODE_TOKENS + 8 * n) for _ in range(n)))
            begin = max(times[0] for _, times in answers)
            end = min(times[-1] for _, times in answers)
            for _, times in answers:
                inside = [at for at in times if begin <= at <= end]
                if len(inside) > 2:
                    gaps.append((inside[-1] - inside[0]) / (len(inside) - 1))
        return statistics.median(gaps) if gaps else None


async def median_first(worker, rows, repeats, prefix=()):
    """Of prompts with so many tokens after cached ones; short ones take little time, and more of
    them."""
    found = []
    for _ in range(repeats if rows > SHORT else 2 * repeats + 1):
        found.append(await worker.first_s([*prefix, *worker.prompt(rows)]))
    return statistics.median(found)


async def prompt_times(worker, longest, repeats, log):
    """Of a request whose prompt is cached, of prompts by (rows, cached ones before them), and of
    the attention to one position."""
    cached = worker.prompt(32)
    await worker.times(cached)
    at_once = statistics.median([await worker.first_s(cached) for _ in range(2 * repeats + 1)])
    firsts = {}
    for rows in [rows for rows in ROWS if rows <= longest]:
        firsts[rows, 0] = await median_first(worker, rows, repeats)
        log(f"prompt of {rows}: {firsts[rows, 0]:.3f} s")
    for before in [before for before in DEPTHS if before + DEEPER_ROWS[-1] <= longest]:
        prefix = worker.prompt(before)
        await worker.times(prefix)
        for rows in DEEPER_ROWS:
            firsts[rows, before] = await median_first(worker, rows, repeats, prefix)
            log(f"{rows} tokens after {before} cached ones: {firsts[rows, before]:.3f} s")
    # The same rows deeper: the difference is attention.
    slopes = [(first - firsts[rows, 0]) / (rows * before)
              for (rows, before), first in firsts.items() if before]
    attention = max(0.0, statistics.median(slopes)) if slopes else 0.0
    return at_once, firsts, attention


def rows_of(firsts, attention, request_s):
    """[rows, s] without attention."""
    points = [[rows, max(1e-5, first - request_s - attention * rows * rows / 2)]
              for (rows, before), first in sorted(firsts.items()) if not before]
    # A longer one never takes less.
    for i in range(1, len(points)):
        points[i][1] = max(points[i][1], points[i - 1][1])
    return points


async def slowdown(workers, repeats, log):
    """How much longer prompts take while k of the workers compute, for k from 1."""
    factors, alone = [], None
    for k in range(1, len(workers) + 1):
        begin = time.monotonic()
        rounds = 2 * repeats + 2

        async def keep_busy(worker):
            for _ in range(rounds):
                await worker.times(worker.prompt(256), 8)
        await asyncio.gather(*(keep_busy(worker) for worker in workers[:k]))
        took = time.monotonic() - begin
        alone = alone or took
        factors.append(round(max(took / alone, factors[-1] if factors else 1.0), 3))
        log(f"{k} workers at once: {factors[-1]:.2f} times as long")
    return factors


def describe(port):
    """What the worker says over gRPC."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = vllm_engine_pb2_grpc.VllmEngineStub(channel)

        def fields(message):
            return json_format.MessageToDict(message, preserving_proto_field_name=True)
        model = fields(stub.GetModelInfo(vllm_engine_pb2.GetModelInfoRequest()))
        server = fields(stub.GetServerInfo(vllm_engine_pb2.GetServerInfoRequest()))
        load = stub.GetLoads(vllm_engine_pb2.GetLoadsRequest()).loads[0]
        bundle = b"".join(chunk.data for chunk in
                          stub.GetTokenizer(common_pb2.GetTokenizerRequest()))
    for name in ("uptime_seconds", "last_receive_timestamp", "active_requests"):
        server.pop(name, None)
    return model, server, load, bundle


async def measured(places, repeats, longest, log):
    port = places[0][1]
    worker = Worker(*places[0], seed=1)
    await worker.find_words()
    log(f"{len(worker.words)} words are one token each")
    model, server, load, bundle = describe(port)
    longest = min(longest, model["max_context_length"] - 64)
    at_once, firsts, attention = await prompt_times(worker, longest, repeats, log)
    decode = []
    for n in [n for n in DECODING if n <= server["max_num_seqs"]]:
        step_s = await worker.gap_s(n, 32, repeats)
        if step_s is None:
            break
        decode.append([n, step_s])
        log(f"{n} sessions decode: {1000 * decode[-1][1]:.1f} ms a step")
    deep = min(longest, DEPTHS[1])
    decode_attention = max(0.0, (await worker.gap_s(1, deep, repeats) - decode[0][1]) / deep)
    request_s = max(0.0, at_once - decode[0][1])
    # From here on without the part of attention that the short prompts have.
    decode = [[n, max(1e-5, s - n * 48 * decode_attention)] for n, s in decode]
    workers = [worker]
    for i, place in enumerate(places[1:]):
        workers.append(Worker(*place, seed=2 + i))
        workers[-1].words = worker.words
    together = await slowdown(workers, repeats, log) if len(places) > 1 else [1.0]
    for each in workers:
        await each.channel.close()
    return Profile(model=model, server=server, page_tokens=server["block_size"],
                   cache_tokens=load.max_total_num_tokens, max_running=server["max_num_seqs"],
                   prompt_rows=rows_of(firsts, attention, request_s), attention_s=attention,
                   decode_rows=decode, decode_attention_s=decode_attention, request_s=request_s,
                   together=together, words=worker.words, tokenizer=bundle)


def run(options, log):
    with contextlib.ExitStack() as end:
        if options.url:
            places = [(options.url, options.grpc)]
        else:
            places = [end.enter_context(processes.weft(options)) for _ in range(options.together)]
        profile = asyncio.run(measured(places, options.repeats, options.longest, log))
    profile.save(options.out)
    log(f"{options.out}: {profile.cache_tokens} tokens in pages of {profile.page_tokens}")
