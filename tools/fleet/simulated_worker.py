"""Simulated workers behind SMG: each has its own gRPC port, engine and prefix cache.

They say what Weft's service says (src/doors/grpc): SMG's vLLM backend, with pushed loads and KV
events. One asyncio loop runs them all.
"""

import asyncio
import hashlib
import random
import time

import grpc
from google.protobuf import json_format
from smg_grpc_proto.generated import common_pb2, vllm_engine_pb2, vllm_engine_pb2_grpc

from fleet.virtual_engine import Turn, VirtualEngine

PIECE = 512 << 10
MAX_PAGES = 512         # in one batch of events
TICK_S, BEAT_S, IDLE_BEAT_S = 0.1, 1.0, 5.0
SHARE_S = 0.02          # seconds of work between two looks at how many workers compute
DRAWN_TOKENS = (16, 128)  # an answer's length where the request has none
HOST = "127.0.0.1"


class Machine:
    """What workers compute on: together they are slower than one."""

    def __init__(self, profile):
        self.profile, self.busy = profile, 0

    async def spend(self, begin, seconds):
        """Until the work that began then is done; the time of its end."""
        loop = asyncio.get_running_loop()
        end = begin
        while seconds > 0:
            part = min(seconds, SHARE_S) if len(self.profile.together) > 1 else seconds
            seconds -= part
            end += part * self.profile.slower(self.busy)
            await asyncio.sleep(max(0.0, end - loop.time()))
        return end


class Engine:
    """Runs a VirtualEngine by the clock."""

    def __init__(self, profile, machine):
        self.virtual, self.machine = VirtualEngine(profile), machine
        self.wake = asyncio.Event()
        self.watchers = set()  # events to set when there is something to tell
        self.task = asyncio.get_running_loop().create_task(self.run())
        self.rate_from, self.rate_at = 0, 0.0
        self.rate = 0.0

    def submit(self, turn):
        self.virtual.submit(turn)
        self.wake.set()
        self.told()

    def cancel(self, turn):
        self.virtual.cancel(turn)
        self.wake.set()

    def told(self):
        for watcher in self.watchers:
            watcher.set()

    async def run(self):
        loop = asyncio.get_running_loop()
        while True:
            self.wake.clear()
            now = loop.time()
            step = self.virtual.plan(now)
            if step is None:
                self.told()
                await self.wake.wait()
                continue
            self.machine.busy += 1
            try:
                while step is not None:
                    now = await self.machine.spend(now, step.seconds)
                    self.virtual.finish(step, now)
                    if self.virtual.cache.told:
                        self.told()
                    step = self.virtual.plan(now)
            finally:
                self.machine.busy -= 1

    def load(self):
        virtual, now = self.virtual, time.monotonic()
        if now - self.rate_at >= 1:
            self.rate = (virtual.generated - self.rate_from) / (now - self.rate_at)
            self.rate_from, self.rate_at = virtual.generated, now
        known = virtual.cached_tokens + virtual.prompt_tokens
        budget, usage = virtual.profile.cache_tokens, virtual.cache.usage()
        return common_pb2.EngineLoad(
            running_requests=len(virtual.running), waiting_requests=len(virtual.queued),
            prefill_pending_tokens=virtual.pending_tokens(), token_usage=usage,
            active_token_usage=usage, gen_throughput=self.rate,
            max_running_requests=virtual.profile.max_running,
            cache_hit_rate=virtual.cached_tokens / known if known else 0,
            max_total_num_tokens=budget, num_used_tokens=round(usage * budget))


def moved(a, b):
    return (a.running_requests, a.waiting_requests) != (b.running_requests, b.waiting_requests) \
        or abs(a.token_usage - b.token_usage) > 0.005 \
        or abs(a.gen_throughput - b.gen_throughput) > 0.05 * max(a.gen_throughput, b.gen_throughput)


def stored(nodes):
    """One run of pages, each after the one before it."""
    event = common_pb2.KvCacheEvent()
    event.stored.tier = common_pb2.KV_CACHE_TIER_DEVICE
    if nodes[0].parent.key:
        event.stored.parent_block_hash = nodes[0].parent.key
    for node in nodes:
        event.stored.blocks.add(block_hash=node.key, token_ids=node.tokens,
                                block_size=len(node.tokens), cache_level=0)
    return event


def batches(told):
    """Events of at most MAX_PAGES pages each, from (is stored, node)."""
    batch, room, i = [], MAX_PAGES, 0
    while i < len(told):
        end = i + 1
        is_stored = told[i][0]
        while end < len(told) and end - i < room and told[end][0] == is_stored and (
                not is_stored or told[end][1].parent is told[end - 1][1]):
            end += 1
        nodes = [node for _, node in told[i:end]]
        if is_stored:
            batch.append(stored(nodes))
        else:
            event = common_pb2.KvCacheEvent()
            event.removed.block_hashes.extend(node.key for node in nodes)
            event.removed.tier, event.removed.cache_level = common_pb2.KV_CACHE_TIER_DEVICE, 0
            batch.append(event)
        room -= end - i
        i = end
        if room <= 0:
            yield batch
            batch, room = [], MAX_PAGES
    if batch:
        yield batch


class Servicer(vllm_engine_pb2_grpc.VllmEngineServicer):
    def __init__(self, profile, seed, machine):
        self.profile, self.seed = profile, seed
        self.engine = Engine(profile, machine)
        self.turns = {}
        self.streams = []   # for each subscriber, the events it has not got yet
        self.begin = time.monotonic()

    # --- requests -------------------------------------------------------------------------

    def answer_to(self, tokens):
        """The same for the same prompt: token i of it."""
        page = hashlib.sha256(repr((self.seed, tokens[-64:], len(tokens))).encode()).digest()
        dice = random.Random(page)
        drawn = dice.randint(*DRAWN_TOKENS)
        words = []

        def token(i):
            while len(words) <= i:
                _, first, after = dice.choice(self.profile.words)
                words.append(first[0] if not words and len(first) == 1 else after)
            return words[i]
        return token, drawn

    async def Generate(self, request, context):
        tokens = list(request.tokenized.input_ids)
        params = request.sampling_params
        limit = self.profile.model["max_context_length"]
        if not tokens or len(tokens) >= limit:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT,
                                f"the prompt has {len(tokens)} tokens, 1 to {limit - 1} are taken")
        if params.n > 1:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED,
                                "a simulated worker gives one choice: leave n out")
        token_of, drawn = self.answer_to(tokens)
        wanted = params.max_tokens if params.HasField("max_tokens") else drawn
        wanted = min(wanted, limit - len(tokens))
        if len(tokens) + wanted > self.profile.cache_tokens:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED,
                                f"the turn takes up to {len(tokens) + wanted} tokens, more than the "
                                f"KV cache of {self.profile.cache_tokens}: --memory-tokens")
        said = asyncio.Queue()
        await asyncio.sleep(self.profile.request_s)
        turn = Turn(tokens, wanted, token_of, said.put_nowait,
                    asyncio.get_running_loop().time())
        self.turns[request.request_id] = turn, said
        self.engine.submit(turn)
        reason = "length" if params.HasField("max_tokens") else "stop"
        try:
            async for answer in self.answers(turn, said, request.stream, reason):
                yield answer
        finally:
            self.turns.pop(request.request_id, None)
            self.engine.cancel(turn)

    async def answers(self, turn, said, streams, reason):
        made = []
        while (token := await said.get()) is not None:
            made.append(token)
            if streams:
                yield vllm_engine_pb2.GenerateResponse(
                    chunk=vllm_engine_pb2.GenerateStreamChunk(
                        token_ids=[token], prompt_tokens=turn.n_prompt,
                        completion_tokens=len(made), cached_tokens=turn.cached))
        yield vllm_engine_pb2.GenerateResponse(complete=vllm_engine_pb2.GenerateComplete(
            output_ids=[] if streams else made, finish_reason=reason, prompt_tokens=turn.n_prompt,
            completion_tokens=len(made), cached_tokens=turn.cached))

    async def Abort(self, request, context):
        for name in request.request_ids:
            if name in self.turns:
                turn, said = self.turns[name]
                self.engine.cancel(turn)
                said.put_nowait(None)
        return vllm_engine_pb2.AbortResponse()

    # --- the model and the load ----------------------------------------------------------------

    async def HealthCheck(self, request, context):
        return vllm_engine_pb2.HealthCheckResponse(healthy=True, message="OK")

    async def GetModelInfo(self, request, context):
        return json_format.ParseDict(self.profile.model, vllm_engine_pb2.GetModelInfoResponse(),
                                     ignore_unknown_fields=True)

    async def GetServerInfo(self, request, context):
        info = json_format.ParseDict(self.profile.server, vllm_engine_pb2.GetServerInfoResponse(),
                                     ignore_unknown_fields=True)
        info.active_requests = len(self.turns)
        info.uptime_seconds = time.monotonic() - self.begin
        info.last_receive_timestamp = time.time()
        return info

    async def GetLoads(self, request, context):
        load = self.engine.load()
        reply = vllm_engine_pb2.GetLoadsResponse(
            timestamp=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), version="weft-simulated",
            dp_rank_count=1)
        reply.loads.add(
            num_running_reqs=load.running_requests, num_waiting_reqs=load.waiting_requests,
            num_total_reqs=load.running_requests + load.waiting_requests,
            num_used_tokens=load.num_used_tokens, max_total_num_tokens=load.max_total_num_tokens,
            token_usage=load.token_usage, gen_throughput=load.gen_throughput,
            cache_hit_rate=load.cache_hit_rate,
            utilization=load.running_requests / load.max_running_requests,
            max_running_requests=load.max_running_requests)
        return reply

    async def GetTokenizer(self, request, context):
        bundle = self.profile.tokenizer
        for at in range(0, len(bundle), PIECE):
            chunk = common_pb2.GetTokenizerChunk(data=bundle[at:at + PIECE])
            if at + PIECE >= len(bundle):
                chunk.sha256 = hashlib.sha256(bundle).hexdigest()
            yield chunk

    # --- KV events ------------------------------------------------------------------------

    def take_told(self):
        """Gives every subscriber its copy of what happened to the cache."""
        cache = self.engine.virtual.cache
        if cache.told:
            for own in self.streams:
                own += cache.told
            cache.told = []

    async def SubscribeKvEvents(self, request, context):
        cache = self.engine.virtual.cache
        if cache.told is None:
            cache.told = []
        self.take_told()
        own = [(True, node) for node in cache.whole_pages()]
        wake = asyncio.Event()
        self.streams.append(own)
        self.engine.watchers.add(wake)
        try:
            async for batch in self.event_stream(own, wake, request.start_sequence_number):
                yield batch
        finally:
            self.engine.watchers.discard(wake)
            self.streams = [other for other in self.streams if other is not own]
            if not self.streams:
                cache.told = None

    async def event_stream(self, own, wake, sequence):
        event_id, sample, begins = 0, 0, True
        last, sent_at, idle = common_pb2.EngineLoad(), 0.0, 0
        while True:
            self.take_told()
            told = own[:]
            own.clear()
            groups = list(batches(told))
            if begins:
                groups = groups or [[]]
            for group in groups:
                sequence += 1
                batch = common_pb2.KvEventBatch(sequence_number=sequence, timestamp=time.time())
                if begins:
                    batch.events.add().cleared.SetInParent()
                    batch.snapshot.count, batch.snapshot.blocks = 1, min(len(told), MAX_PAGES)
                for event in group:
                    if not begins:
                        event_id += 1
                        event.event_id = event_id
                    batch.events.append(event)
                last, sample, sent_at, idle = self.engine.load(), sample + 1, time.monotonic(), 0
                self.add_load(batch, last, sample, False)
                begins = False
                yield batch
            silence = BEAT_S if idle < 2 else IDLE_BEAT_S
            quiet_s = TICK_S if self.turns else max(TICK_S, sent_at + silence - time.monotonic())
            try:
                await asyncio.wait_for(wake.wait(), quiet_s)
                wake.clear()
            except asyncio.TimeoutError:
                pass
            now = self.engine.load()
            has_moved = moved(last, now)
            if not own and not self.engine.virtual.cache.told and (
                    has_moved or time.monotonic() - sent_at >= silence):
                batch = common_pb2.KvEventBatch(sequence_number=sequence, timestamp=time.time())
                last, sample, sent_at = now, sample + 1, time.monotonic()
                idle = 0 if has_moved else idle + 1
                self.add_load(batch, now, sample, True)
                yield batch

    @staticmethod
    def add_load(batch, load, sample, load_only):
        batch.load.CopyFrom(load)
        batch.load.sample, batch.load.load_only = sample, load_only
        if not load_only and sample > 1:
            for field in ("cache_hit_rate", "num_used_tokens", "max_total_num_tokens"):
                batch.load.ClearField(field)


async def start(profile, n, first_port, seed, one_machine):
    """The servicers by their ports. `one_machine`: they compute on one machine together."""
    machine = Machine(profile)
    workers = {}
    for i in range(n):
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        servicer = Servicer(profile, seed, machine if one_machine else Machine(profile))
        vllm_engine_pb2_grpc.add_VllmEngineServicer_to_server(servicer, server)
        port = server.add_insecure_port(f"{HOST}:{first_port + i if first_port else 0}")
        await server.start()
        servicer.server = server
        workers[port] = servicer
    return workers
