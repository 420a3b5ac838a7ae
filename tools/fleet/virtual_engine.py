"""A simulated worker's engine: which tokens a step computes, as Weft's step planner decides it.

A short step has a token of every session that decodes, and of prompts what fits beside them. A long
step has up to `step_tokens` of prompts, and goes on between short steps for as long as decoding
allows. Prompts with the least work left go first, less the time that they have waited. A prompt
waits for another that computes the same beginning. Times come from a Profile; the caller brings the
clock, so that nothing here waits.
"""

import collections
import itertools

from fleet.prefix_cache import Hold, PrefixCache, common

# As src/engine/turns/step_planner.cc.
MARGIN, PAUSED_SHARE, FULL_STEPS = 0.65, 0.25, 4
MIN_LONG_ROWS, MIN_BESIDE_ROWS, MAX_BESIDE_ROWS = 32, 4, 64
# How soon a long step that nobody waits for sees new requests: a part of the model.
LOOK_S = 0.01


class Turn:
    """One request. `say(token)` gets each token, `say(None)` the end."""

    serials = itertools.count(1)

    def __init__(self, tokens, max_tokens, answer, say, now):
        self.serial = next(Turn.serials)
        self.tokens, self.n_prompt = list(tokens), len(tokens)
        self.max_tokens, self.answer, self.say = max_tokens, answer, say
        self.submitted, self.began = now, None
        self.made, self.cached, self.hold = 0, 0, None
        self.waits = self.cancelled = False
        self.n_common = {}

    @property
    def pending(self):
        return len(self.tokens) - self.hold.computed

    @property
    def decodes(self):
        return self.made > 0 and self.pending == 1

    def in_common(self, other):
        if other.serial not in self.n_common:
            self.n_common[other.serial] = common(self.tokens[:self.n_prompt],
                                                 other.tokens[:other.n_prompt])
        return self.n_common[other.serial]


Step = collections.namedtuple("Step", "seconds parts is_short")


class VirtualEngine:
    def __init__(self, profile):
        self.profile = profile
        self.cache = PrefixCache(profile.page_tokens, profile.cache_tokens // profile.page_tokens)
        self.queued, self.running = collections.deque(), []
        self.long, self.long_left_s, self.slice_end = None, 0.0, 0.0
        self.requests = self.cached_tokens = self.prompt_tokens = self.generated = 0
        self.preempted = 0

    def submit(self, turn):
        self.requests += 1
        if turn.max_tokens == 0:
            turn.say(None)
        else:
            self.queued.append(turn)
            self.admit()  # as Weft does in the pauses of a step

    def cancel(self, turn):
        turn.cancelled = True

    # --- who runs -------------------------------------------------------------------------

    def drop_cancelled(self):
        for turn in [turn for turn in self.running if turn.cancelled]:
            self.end(turn)
        self.queued = collections.deque(turn for turn in self.queued if not turn.cancelled)
        if self.long:
            self.long = [(turn, rows) for turn, rows in self.long if not turn.cancelled] or None

    def end(self, turn):
        self.running.remove(turn)
        turn.hold.release(turn.tokens)

    def admit(self):
        while self.queued and len(self.running) < self.profile.max_running:
            turn = self.queued.popleft()
            turn.hold = Hold(self.cache)
            turn.hold.reuse(turn.tokens)
            self.running.append(turn)

    def refresh_waits(self):
        in_long = {turn.serial for turn, _ in self.long or ()}
        reading = [turn for turn in self.running if not turn.made]
        for i, turn in enumerate(reading):
            if turn.serial in in_long:
                continue
            waited, turn.waits = turn.waits, any(
                self.waits_for(turn, other) for other in reading[:i])
            if waited and not turn.waits:
                turn.hold.reuse(turn.tokens)

    def waits_for(self, turn, other):
        if other.waits:
            return False
        n = min(turn.in_common(other), turn.n_prompt - 1)
        size = self.cache.page_tokens
        return n // size * size > turn.hold.computed and other.hold.computed < n

    # --- plans ----------------------------------------------------------------------------

    def allowance(self, decoding):
        """The time for prompts between two tokens."""
        one = self.profile.decode_s([turn.hold.computed for turn in decoding] or [0])
        return MARGIN * min((self.profile.stretch - 1) * one, one + self.profile.step_s)

    def cost(self, turn, rows):
        return self.profile.prompt_s(rows, turn.hold.computed)

    def beside(self, turn, rows):
        """What rows of a prompt add to a step that others have anyway."""
        return max(0.0, self.cost(turn, rows) - self.profile.prompt_s(1, 0))

    def in_order(self, prompts, now):
        def distance(turn):
            done = turn.hold.computed - turn.cached
            depth = turn.cached if turn.began is not None else turn.hold.computed
            return (self.profile.prompt_s(turn.pending + max(0, done), depth)
                    - (now - turn.submitted))
        return sorted(prompts, key=distance)

    def plan(self, now):
        """The next step or part of one, None if there is nothing to do."""
        self.drop_cancelled()
        self.admit()
        self.refresh_waits()
        while True:
            in_long = {turn.serial for turn, _ in self.long or ()}
            ready = [turn for turn in self.running if not turn.waits and turn.serial not in in_long]
            decoding = [turn for turn in ready if turn.decodes]
            prompts = self.in_order([turn for turn in ready if not turn.decodes], now)
            if self.long is None:
                prompts = self.plan_long(prompts, decoding)
            if self.long is None or now >= self.slice_end:
                step = self.plan_short(prompts, decoding)
                if step is not None:
                    return step
            if self.long is not None:
                left = self.long_left_s
                most = max(self.slice_end - now, 0) if decoding else LOOK_S
                return Step(min(left, most) if most > 1e-6 else left, self.long, False)
            if not ready or not self.preempt():
                return None

    def plan_long(self, prompts, decoding):
        """Begins one if prompts need it, and returns those that are not in it."""
        if not prompts:
            return prompts
        work = sum(self.cost(turn, turn.pending) for turn in prompts)
        pending = sum(turn.pending for turn in prompts)
        if decoding and (pending <= MIN_BESIDE_ROWS or work <= self.allowance(decoding)):
            return prompts
        one = self.profile.decode_s([0])
        row_s = self.profile.prompt_s(256, 0) / 256
        full = max(MIN_LONG_ROWS, int(FULL_STEPS * one / row_s))
        parts, taken = [], 0
        for turn in prompts:
            most = self.profile.step_tokens if not parts else min(full, self.profile.step_tokens)
            rows = min(turn.pending, most - taken)
            if rows <= 0:
                break
            if turn.hold.room_for(rows):
                parts.append((turn, rows))
                taken += rows
        if not parts:
            return prompts
        self.note_began(parts)
        (first, rows), *others = parts
        self.long = parts
        self.long_left_s = self.cost(first, rows) + sum(self.beside(*part) for part in others)
        chosen = {turn.serial for turn, _ in parts}
        return [turn for turn in prompts if turn.serial not in chosen]

    def plan_short(self, prompts, decoding):
        if not decoding and self.long is None:
            return None
        parts = [(turn, 1) for turn in decoding if turn.hold.room_for(1)]
        seconds = self.profile.decode_s([turn.hold.computed for turn, _ in parts])
        budget = self.allowance(decoding) if decoding else float("inf")
        room = self.profile.step_tokens
        if self.long is not None:
            budget *= 1 - PAUSED_SHARE
            room = MAX_BESIDE_ROWS
            left = max(self.cost(turn, turn.pending) for turn, _ in self.long)
            prompts = [turn for turn in prompts if self.cost(turn, turn.pending) < left]
        room -= len(parts)
        n_decoding = len(parts)
        for turn in prompts:
            rows = min(turn.pending, room)
            while rows > MIN_BESIDE_ROWS and self.beside(turn, rows) > budget:
                rows = rows * 3 // 4
            is_first = not parts[n_decoding:]
            if rows <= 0 or (rows < turn.pending and rows <= MIN_BESIDE_ROWS and not is_first):
                break
            if not turn.hold.room_for(rows):
                continue
            cost = self.beside(turn, rows) if parts else self.cost(turn, rows)
            parts.append((turn, rows))
            seconds, budget, room = seconds + cost, max(0.0, budget - cost), room - rows
        if not parts:
            return None
        self.note_began(parts)
        return Step(seconds, parts, True)

    def note_began(self, parts):
        for turn, _ in parts:
            if turn.began is None:
                turn.began, turn.cached = True, turn.hold.computed
                self.cached_tokens += turn.cached

    def preempt(self):
        """Nobody has room: the youngest gives its pages back and begins again later."""
        if len(self.running) < 2:
            return False
        turn = self.running.pop()
        turn.hold.release(turn.tokens)
        self.preempted += 1
        self.queued.appendleft(turn)
        return True

    # --- results --------------------------------------------------------------------------

    def finish(self, step, now):
        """The step, or its part, has been computed at `now`."""
        if not step.is_short:
            self.long_left_s -= step.seconds
            if self.long_left_s > 1e-9 or self.long is None:
                return
            self.long = None
        else:
            n_prompt = sum(not turn.decodes for turn, _ in step.parts)
            decoding = [turn for turn, _ in step.parts if turn.decodes]
            pause = self.allowance(decoding)
            if not decoding:
                pause = step.seconds * PAUSED_SHARE / (1 - PAUSED_SHARE)
            elif n_prompt:
                pause *= PAUSED_SHARE
            self.slice_end = now + pause
        for turn, rows in step.parts:
            if not turn.cancelled:
                self.take(turn, rows)

    def take(self, turn, rows):
        if not turn.decodes:
            self.prompt_tokens += rows
        turn.hold.commit(turn.tokens, rows)
        if turn.pending:
            return
        token = turn.answer(turn.made)
        turn.made += 1
        turn.tokens.append(token)
        self.generated += 1
        turn.say(token)
        if turn.made == turn.max_tokens:
            self.end(turn)
            turn.say(None)

    def pending_tokens(self):
        """Of prompts without a token yet."""
        return (sum(turn.n_prompt for turn in self.queued)
                + sum(turn.pending for turn in self.running if not turn.made))
