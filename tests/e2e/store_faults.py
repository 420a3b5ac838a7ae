"""What befalls servers that share a store, and the store, while clients go on."""

import collections
import threading
import time

from store_history import Outcome

FAULTS = {"stop in a turn": 4, "stop": 2, "kill": 3, "kill the store": 2, "stop and kill the store": 1}
# Servers give up on the store; too long for every test.
LONG_FAULTS = FAULTS | {"kill the store for long": 1}
# Tokens of an answer in which a server is to be stopped. After one that ended before, more.
LONG_ANSWER, LONGEST_ANSWER = 400, 3000
# Seconds in which a client reads what a stopped server sent before.
READ_TIME = 0.1
TRIES = 20


class Faults:
    """One after another, in a thread, while the with block runs."""

    def __init__(self, operations, weights, rng):
        self.operations = operations
        self.weights = weights  # of FAULTS
        self.fleet = operations.fleet
        self.rng = rng
        self.counts = collections.Counter()
        self.over = threading.Event()
        self.had_all = threading.Event()  # each happened once, or none can any more
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.error = None

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.error is not None:
            raise self.error

    def run(self):
        try:
            for name in self.weights:
                for _ in range(TRIES):
                    if not self.counts[name]:
                        self.make(name)
                assert self.counts[name], f"it never came to: {name}"
            self.had_all.set()
            while self.weights and not self.over.is_set():
                self.make(self.rng.choices(list(self.weights), self.weights.values())[0])
        except Exception as error:  # pylint: disable=broad-except
            self.error = error
            self.had_all.set()

    def make(self, name):
        if getattr(self, name.replace(" ", "_"))() is not False:
            self.counts[name] += 1
        self.over.wait(self.rng.uniform(0.1, 0.8))

    def beyond_the_lease(self):
        return self.fleet.lease * self.rng.uniform(1.2, 1.6)

    def stop(self):
        worker = self.rng.choice(self.fleet.workers)
        worker.stop()
        time.sleep(self.beyond_the_lease())
        worker.go_on()

    def stop_in_a_turn(self):
        """Another server makes a turn meanwhile; then somebody looks what both have. False, if the
        turn was over when its server stopped."""
        operations = self.operations
        session = self.rng.choice(operations.sessions)
        with session.lock:
            worker = self.rng.choice(self.fleet.workers)
            made = self.stopped_in_turn(session, worker)
            try:
                time.sleep(self.beyond_the_lease())
                other = self.rng.choice([one for one in self.fleet.workers if one is not worker])
                operations.turn(session, self.rng, other)
            finally:
                was_in_turn = not made.done.is_set()
                worker.go_on()
            made.done.wait(operations.patience)
            operations.read(session, self.rng, worker)
            operations.read(session, self.rng, other)
            return was_in_turn

    def stopped_in_turn(self, session, worker):
        """The request whose server was stopped once its stream began."""
        n = LONG_ANSWER
        for _ in range(TRIES):
            op, request = self.operations.send_turn(session, worker, self.rng, stream=True, n=n)
            request.first_event.wait(self.operations.patience)
            if request.trouble == "session_elsewhere":
                self.operations.follow(session, request, worker, self.rng)
                continue
            worker.stop()
            if not request.done.wait(READ_TIME):
                return request
            worker.go_on()
            if request.outcome is Outcome.DONE:
                session.content = op.content
                session.n_turns += 1
                n = min(2 * n, LONGEST_ANSWER)
        raise AssertionError(f"{worker.name} is never in a turn when it stops")

    def kill(self):
        worker = self.rng.choice(self.fleet.workers)
        worker.kill()
        time.sleep(self.rng.uniform(0, self.fleet.lease))
        worker.start()

    def kill_the_store(self, most=1.5):
        self.fleet.store.kill()
        time.sleep(self.rng.uniform(most / 4, most))
        self.fleet.store.start()

    def kill_the_store_for_long(self):
        self.kill_the_store(most=15)

    def stop_and_kill_the_store(self):
        """A server misses that the store was away."""
        worker = self.rng.choice(self.fleet.workers)
        worker.stop()
        self.kill_the_store()
        time.sleep(self.beyond_the_lease())
        worker.go_on()
