"""Random operations of several clients on sessions that servers share, while servers are stopped
and killed and the store goes away; then a judgement of what is there."""

import argparse
import collections
import concurrent.futures
import itertools
import json
import pathlib
import random
import tempfile
import threading
import time

import weft_process
from serve_test import Server
from store_faults import FAULTS, LONG_ANSWER, LONG_FAULTS, Faults
from store_fleet import Fleet, ObjectStore, VersityGateway
from store_history import Op, Outcome, check_histories
from store_requests import Request
from weft_process import TIMEOUT_S

N_CLIENTS, N_SESSIONS = 8, 12
# Sessions are slots of llama-server's API, which gives their tokens exactly.
N_SOURCES = N_SESSIONS // 2  # the first ones are forked, into the others
TRIES = 8
MOST_TOKENS = 300  # of a conversation; then it begins anew
KINDS = {"turn": 50, "rivals": 6, "leave": 4, "read": 14, "fork": 6, "reset": 4, "delete": 4,
         "move": 12}


class Session:
    def __init__(self, index):
        self.index = index
        self.name = f"slot-{index}"
        self.lock = threading.Lock()  # held by the client that uses it now
        self.content = ()  # as its clients believe
        self.where = None  # the worker that answered last
        self.n_turns = 0  # acknowledged
        self.forked = {}  # n_turns at the latest fork, by the other session's name


class Operations:
    def __init__(self, fleet, seed, faults=FAULTS, kinds=KINDS):
        self.fleet = fleet
        self.seed = seed
        self.kinds = kinds  # by weight
        self.patience = fleet.lease * 1.5 + 1  # seconds until a client asks another server
        self.sessions = [Session(i) for i in range(N_SESSIONS)]
        self.ops = []
        self.requests = []
        self.counts = collections.Counter()
        self.lock = threading.Lock()
        self.unexpected = []
        self.refusal = ""  # the latest
        self.numbers = itertools.count()
        self.faults = Faults(self, faults, random.Random(f"{seed} faults"))

    # --- single requests -----------------------------------------------------------------

    def add(self, op):
        with self.lock:
            self.ops.append(op)
        return op

    def send(self, op, worker, *call, **fields):
        """Asks for what `op` describes. The op is complete when the request has ended."""
        op.where = worker.name

        def settle(request):
            op.outcome = request.outcome
            if op.kind == "turn" and request.began is not None:
                op.last = request.began
            elif op.outcome is Outcome.DONE:
                op.last = request.ended
            if op.kind == "turn" and op.outcome is Outcome.DONE:
                op.content = op.prompt + tuple(request.tokens or request.json["tokens"])
            self.count(f"{op.kind} {request.trouble or op.outcome.value}")
            if request.unexpected:
                self.unexpected.append(request.unexpected)

        request = Request(worker, *call, on_end=settle, **fields)
        with self.lock:
            self.requests.append(request)
        return request

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def marker(self):
        """Tokens that no other prompt has."""
        n = next(self.numbers)
        return tuple(10 + n // 200 ** i % 200 for i in range(3))

    def send_turn(self, session, worker, rng, n=None, stream=None, leaves=False):
        before = session.content if len(session.content) < MOST_TOKENS else ()
        filler = tuple(rng.randrange(10, 210) for _ in range(rng.choice((0, 2, 20))))
        prompt = before + self.marker() + filler
        n = n or rng.randint(1, 8)
        stream = rng.random() < 0.5 if stream is None else stream
        op = self.add(Op(session.name, "turn", Outcome.UNKNOWN, time.monotonic(), prompt=prompt,
                         begins_at=len(before), n=n, left=leaves))
        return op, self.send(op, worker, "POST", "/completion", {
            "prompt": list(prompt), "n_predict": n, "temperature": 0, "ignore_eos": True,
            "return_tokens": True, "stream": stream, "session_id": session.name}, leaves=leaves)

    def send_read(self, session, worker):
        op = Op(session.name, "read", Outcome.UNKNOWN, time.monotonic())
        name = f"read-{next(self.numbers)}"
        return op, name, self.send(op, worker, "POST", f"/slots/{session.index}?action=save",
                                   {"filename": name})

    def send_move(self, session, worker):
        op = Op(session.name, "move", Outcome.UNKNOWN, time.monotonic())
        return op, self.send(op, worker, "POST", f"/v1/sessions/{session.name}/move")

    # --- as a careful client does ----------------------------------------------------------

    def persist(self, session, rng, attempt, worker=None):
        """Attempts it until it is acknowledged; attempt(worker) gives the op and its request last.
        None, if it was refused or nobody knows."""
        workers = self.fleet.workers
        if worker is None:
            likely = session.where is not None and rng.random() < 0.6
            worker = session.where if likely else rng.choice(workers)
        for _ in range(TRIES):
            *made, request = attempt(worker)
            if not request.wait(self.patience):
                worker = rng.choice([other for other in workers if other is not worker])
            elif request.outcome is Outcome.DONE:
                session.where = worker
                return made
            elif request.trouble == "session_elsewhere":
                worker = self.follow(session, request, worker, rng)
            elif request.trouble is None and request.status in (200, 400, 404, 409):
                self.refusal = request.error
                return None
            else:
                time.sleep(rng.uniform(0.02, 0.2))
                worker = rng.choice(workers)
        return None

    def follow(self, session, request, worker, rng):
        """Where to ask next for a session that another server has."""
        owner = self.fleet.owner(request.owner)
        if owner is None or int(request.headers.get("Retry-After", 0)) < 1:
            self.unexpected.append(f"elsewhere, but where? {dict(request.headers)}")
            return worker
        choice = rng.choice(("ask the owner", "let it move", "wait"))
        if choice == "ask the owner":
            return owner
        if choice == "let it move":
            self.send_move(session, owner)[-1].wait(self.patience)
        else:
            time.sleep(rng.uniform(0, self.fleet.lease))
        return worker

    # --- operations --------------------------------------------------------------------------

    def turn(self, session, rng, worker=None, **fields):
        made = self.persist(session, rng, lambda at: self.send_turn(session, at, rng, **fields),
                            worker)
        if made:
            session.content = made[0].content
            session.n_turns += 1
        return made

    def leave(self, session, rng):
        _, request = self.send_turn(session, session.where or rng.choice(self.fleet.workers), rng,
                                    n=LONG_ANSWER, stream=True, leaves=True)
        request.wait(self.patience)

    def rivals(self, session, rng):
        """Two clients at once, on two servers, of which often none has the session. Then one goes
        on, and somebody looks at both."""
        if rng.random() < 0.7:
            self.move(session, rng)
        first, second = rng.sample(self.fleet.workers, 2)
        both = [self.send_turn(session, worker, rng) for worker in (first, second)]
        for _, request in both:
            request.wait(self.patience)
        if any(request.outcome is Outcome.DONE for _, request in both):
            session.n_turns += 1
            self.turn(session, rng, first)
            self.read(session, rng, second)
            self.read(session, rng, first)

    def read(self, session, rng, worker=None):
        made = self.persist(session, rng, lambda at: self.send_read(session, at), worker)
        if not made:
            return None
        op, name = made
        file = next(worker for worker in self.fleet.workers if worker.name == op.where).slots / name
        op.content = session.content = tuple(json.loads(file.read_text())["tokens"])
        file.unlink()
        return self.add(op)

    def clear(self, session, rng, how):
        path = f"/v1/sessions/{session.name}"
        call = ("POST", f"{path}/reset") if how == "reset" else ("DELETE", path)

        def attempt(worker):
            op = self.add(Op(session.name, "clear", Outcome.UNKNOWN, time.monotonic(), content=()))
            return op, self.send(op, worker, *call)

        made = self.persist(session, rng, attempt)
        if made:
            session.content = ()
        return made

    def move(self, session, rng):
        self.persist(session, rng, lambda at: self.send_move(session, at))

    def fork(self, session, rng):
        """What was forked is not forked again, so that contents are unique in a session."""
        target = rng.choice(self.sessions[N_SOURCES:])
        if session.index >= N_SOURCES or session.n_turns <= session.forked.get(target.name, 0):
            return
        session.forked[target.name] = session.n_turns
        with target.lock:
            if not self.clear(target, rng, "delete"):
                return

            def attempt(worker):
                op = self.add(Op(target.name, "fork", Outcome.UNKNOWN, time.monotonic(),
                                 source=session.name))
                return op, self.send(op, worker, "POST", f"/v1/sessions/{session.name}/fork",
                                     {"id": target.name})

            if self.persist(session, rng, attempt):
                target.n_turns += 1
                target.where = session.where
            self.read(target, rng)

    # --- all of it -----------------------------------------------------------------------------

    def client(self, number, tickets):
        rng = random.Random(f"{self.seed} {number}")
        for _ in tickets:
            session = rng.choice(self.sessions)
            kind = rng.choices(list(self.kinds), self.kinds.values())[0]
            with session.lock:
                if kind in ("reset", "delete"):
                    self.clear(session, rng, kind)
                else:
                    getattr(self, kind)(session, rng)

    def run(self, n):
        tickets = Tickets(n, self.faults.had_all)
        with concurrent.futures.ThreadPoolExecutor(N_CLIENTS) as pool:
            running = [pool.submit(self.client, i, tickets) for i in range(N_CLIENTS)]
            with self.faults:
                for one in running:
                    one.result()
        deadline = time.monotonic() + TIMEOUT_S + 2 * N_SESSIONS * self.patience
        for request in self.requests:
            assert request.done.wait(max(0, deadline - time.monotonic())), f"{request.call} hangs"
        for worker in self.fleet.workers:
            if worker.server.process.poll() is not None:
                self.unexpected.append(f"{worker.name} ended by itself: {worker.server.log[-1000:]}")
                worker.start()
        rng = random.Random(f"{self.seed} end")
        for session in self.sessions:
            # Twice, by different servers.
            for _ in range(2):
                while not self.read(session, rng):
                    assert time.monotonic() < deadline, f"{session.name} cannot be read: {self.refusal}"
                self.move(session, rng)
                session.where = None

    def judge(self, flags=()):
        """The problems, after a server without a store answered the same prompts."""
        with Server(self.fleet.model, *map(str, (*self.fleet.flags, *flags))) as server:
            reference = Reference(server.ready())
            reference.prepare([op for op in self.ops if op.kind == "turn"
                               and op.outcome is Outcome.DONE])
            return check_histories(self.ops, reference)

    def log(self):
        """All requests, with the times that problems are told with."""
        return "".join(f"{request.sent:.3f} {request.ended:.3f} {request}\n" for request
                       in sorted(self.requests, key=lambda request: request.sent))

    def report(self, problems):
        turns = sum(op.kind == "turn" and op.is_done for op in self.ops)
        lines = [f"seed {self.seed}: " + ", ".join(f"{n} {what}" for what, n
                                                   in sorted(self.counts.items())),
                 "faults: " + ", ".join(f"{n} {what}" for what, n
                                        in sorted(self.faults.counts.items())),
                 f"{turns} acknowledged turns, " + ", ".join(
                     f"{n} {what}" for what, n in problems.counts().items())]
        return "\n".join(lines + [str(problems)] * bool(problems) + self.unexpected[:5])


class Tickets:
    """At least n for all clients together, and until the event."""

    def __init__(self, n, event):
        self.numbers = itertools.count()
        self.n = n
        self.event = event

    def __iter__(self):
        return self

    def __next__(self):
        number = next(self.numbers)
        if number >= self.n and self.event.is_set():
            raise StopIteration
        return number


class Reference:
    """Answers of a server that nothing disturbs."""

    def __init__(self, server):
        self.server = server
        self.known = {}

    def __call__(self, prompt, n):
        if (prompt, n) not in self.known:
            answer = self.server.ask("POST", "/completion", {
                "prompt": list(prompt), "n_predict": n, "temperature": 0, "ignore_eos": True,
                "return_tokens": True})
            assert answer.status == 200, answer
            self.known[prompt, n] = tuple(answer.json["tokens"])
        return self.known[prompt, n]

    def prepare(self, turns):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for _ in pool.map(lambda op: self(op.prompt, op.n), turns):
                pass


# Faults of s3_server.py, in what it does with sessions.
UNDER = "fleet/sessions/"
LOSSY = ("--lose-answers", 0.1, "--late", 0.05, "--faults-under", UNDER)
# The delay lets two servers look before either writes.
UNCONDITIONAL = ("--ignore-conditions-under", UNDER, "--delay", 0.03)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, required=True)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--weft", type=pathlib.Path, help="default: $WEFT")
    parser.add_argument("--model", help="default: a tiny one, with random weights")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--lease", type=int, default=1, help="seconds")
    parser.add_argument("--log", type=pathlib.Path, help="a file for all requests, in order")
    store = parser.add_mutually_exclusive_group()
    store.add_argument("--versitygw", help="the store; default: s3_server.py")
    store.add_argument("--lossy", action="store_true",
                       help="the store answers some writes by closing the connection")
    store.add_argument("--unconditional", action="store_true",
                       help="the store writes sessions whatever the condition: problems must show")
    return parser.parse_args()


def main():
    args = parse()
    if args.weft:
        weft_process.WEFT = str(args.weft)
        weft_process.MAKE_MODEL = str(args.weft.parent / "weft-make-model")
    with tempfile.TemporaryDirectory(prefix="weft_operations_") as folder:
        folder = pathlib.Path(folder)
        model = args.model or weft_process.make_model(folder / "m.gguf", "tiny-llama", "Q8_0")
        flags = LOSSY if args.lossy else UNCONDITIONAL if args.unconditional else ()
        store = (VersityGateway(folder / "store", args.versitygw) if args.versitygw
                 else ObjectStore(folder / "store", *flags))
        fleet = Fleet(folder, model, store, args.servers, args.lease)
        try:
            operations = Operations(fleet.start(), args.seed, LONG_FAULTS)
            started = time.monotonic()
            operations.run(args.operations)
            seconds = time.monotonic() - started
            if args.log:
                args.log.write_text(operations.log())
            problems = operations.judge()
        finally:
            fleet.end()
            store.end()
    print(operations.report(problems), f"{seconds:.0f} s", sep="\n")
    return 1 if problems or operations.unexpected else 0
