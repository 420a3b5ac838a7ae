"""What may be in sessions that several servers share, judged from what clients asked and were told.

Each operation of one session happens at one moment, or not at all. A client knows the earliest
such moment and sometimes the latest: when it was answered; or for a stream when its first event
came, because by then the server had the session as it was before the turn. If another server
changes the session after that, the turn must not be kept.

Contents are tuples of tokens. Those that operations write are unique in their session, but for
the empty one. What was forked into a session is not forked again.
"""

import dataclasses
import enum
import math


class Outcome(enum.Enum):
    DONE = "done"  # acknowledged
    NOT = "not"  # refused: it must never be seen
    UNKNOWN = "unknown"


@dataclasses.dataclass
class Op:
    session: str
    kind: str  # "turn", "fork" (into this session), "clear" (a reset or deletion), "read"
    outcome: Outcome
    first: float  # the earliest moment at which it may have happened
    last: float = math.inf  # the latest one, if it happened
    content: tuple = None  # written or read; of a turn only if it is done
    prompt: tuple = ()  # of a turn
    n: int = 0  # tokens that a turn asks for
    left: bool = False  # the client went away during the answer, which may then be cut anywhere
    begins_at: int = 0  # how much of the prompt is older than the turn
    source: str = ""  # of a fork, whose content nobody told
    where: str = ""  # the server

    @property
    def is_done(self):
        return self.outcome is Outcome.DONE

    def __str__(self):
        size = len(self.content) if self.content is not None else f"{len(self.prompt)}+{self.n}"
        return (f"{self.kind} of {self.session} on {self.where}: {size} tokens, "
                f"{self.outcome.value}, from {self.first:.3f} to {self.last:.3f}")


@dataclasses.dataclass
class Problems:
    lost: list = dataclasses.field(default_factory=list)  # acknowledged, and not found later
    forked: list = dataclasses.field(default_factory=list)  # two contents, each at the other's time
    foreign: list = dataclasses.field(default_factory=list)  # contents that nobody wrote
    refused: list = dataclasses.field(default_factory=list)  # found, though the client was refused
    differing: list = dataclasses.field(default_factory=list)  # other tokens than undisturbed

    def counts(self):
        return {name: len(getattr(self, name)) for name in self.__dataclass_fields__}

    def __bool__(self):
        return any(self.counts().values())

    def __str__(self):
        return "\n".join(f"{name}: {one}" for name in self.__dataclass_fields__
                         for one in getattr(self, name)[:5])


class History:
    """Of one session. `reference(prompt, n)` gives the answer of an undisturbed server."""

    def __init__(self, ops, reference, problems):
        self.writes = [op for op in ops if op.kind != "read"]
        self.reads = [op for op in ops if op.kind == "read"]
        self.forks = [op for op in ops if op.kind == "fork" and op.outcome is not Outcome.NOT]
        self.reference = reference
        self.problems = problems
        self.by_content = {op.content: op for op in self.writes if op.kind == "turn" and op.content}
        self.by_prompt = {op.prompt: op for op in self.writes if op.kind == "turn"}
        self.prompt_sizes = sorted({len(prompt) for prompt in self.by_prompt}, reverse=True)
        self.read_of = {}  # by its writer's identity: the writer, and the reads of what it wrote

    def find_writers(self, histories):
        """What forks copied counts as read in their sources."""
        for read in self.reads:
            if not read.content:
                self.check_empty(read, histories)
                continue
            writer = self.writer_of(read.content) or self.fork_of(read, histories)
            if writer is None:
                self.problems.foreign.append(f"{read.content}; {read}")
            elif writer.outcome is Outcome.NOT:
                self.problems.refused.append(f"{writer}; {read}")
            else:
                self.read_of.setdefault(id(writer), (writer, []))[1].append(read)

    def check(self):
        self.check_zones([self.check_writer(*known) for known in self.read_of.values()])

    # --- whose content it is -----------------------------------------------------------------

    def writer_of(self, content):
        """The turn that leaves this."""
        if found := self.by_content.get(content):
            return found
        found = next((self.by_prompt[content[:size]] for size in self.prompt_sizes
                      if content[:size] in self.by_prompt), None)
        if found is not None and self.is_whole(found, content):
            return found
        # A client that left during the prompt.
        return next((op for op in self.writes if op.left and len(content) > op.begins_at
                     and op.prompt[:len(content)] == content), None)

    def is_whole(self, turn, content):
        """Whether it is what the turn leaves, though nobody was told its answer."""
        answer = content[len(turn.prompt):]
        if turn.outcome is Outcome.DONE or (len(answer) != turn.n and not turn.left):
            return False
        return answer == self.reference(turn.prompt, turn.n)[:len(answer)]

    def fork_of(self, read, histories):
        """The fork that copied this, the likeliest where several may have."""
        forks = [fork for fork in self.forks if fork.first <= read.last
                 and histories[fork.source].writer_of(read.content) is not None]

        def fits(fork):
            source = histories[fork.source]
            written = source.writer_of(read.content).last
            return (source.between(written, fork.first) is None,
                    self.between(fork.last, read.first) is None)

        if not forks:
            return None
        fork = max(reversed(forks), key=fits)
        histories[fork.source].reads.append(dataclasses.replace(
            read, session=fork.source, first=fork.first, last=min(fork.last, read.last)))
        return fork

    # --- when it may be there ------------------------------------------------------------------

    def between(self, after, before):
        """An acknowledged operation that happened after the one moment and before the other."""
        return next((op for op in self.writes
                     if op.is_done and op.first > after and op.last < before), None)

    def between_empty(self, read):
        """Why it cannot be empty: something acknowledged that came after each clearing, and after
        the beginning."""
        clearings = [-math.inf] + [op.last for op in self.writes if op.kind == "clear"
                                   and op.outcome is not Outcome.NOT and op.first < read.last]
        return self.between(max(clearings), read.first)

    def check_empty(self, read, histories):
        between = self.between_empty(read)
        if between is None:
            return
        # The copy of an empty session is empty.
        for fork in self.forks:
            if (fork.first < read.last and self.between(fork.last, read.first) is None
                    and histories[fork.source].between_empty(fork) is None):
                return
        self.problems.lost.append(f"{between}; {read}")

    def check_writer(self, writer, reads):
        """When its content was there: for sure from the first moment to the second, where that is
        later; else at some moment from the second to the first."""
        since = min(writer.last, min(read.last for read in reads))
        until = max(writer.first, max(read.first for read in reads))
        last = max(reads, key=lambda read: read.first)
        if since < writer.first:
            self.problems.foreign.append(f"read before it was written: {writer}; {reads[0]}")
        between = self.between(since, last.first)
        if between is not None:
            self.problems.lost.append(f"{between}; {writer}; {last}")
        return since, until, writer

    def check_zones(self, zones):
        for since, until, writer in zones:
            for other_since, other_until, other in zones:
                if since >= until or other is writer:
                    continue
                if other_since >= other_until:  # it was there in the middle of the writer's time
                    is_wrong = since < other_until and other_since < until
                else:  # counted once
                    is_wrong = (since, id(writer)) < (other_since, id(other)) and other_since < until
                if is_wrong:
                    self.problems.forked.append(f"{writer}; {other}")


def check_histories(ops, reference):
    """Problems of all sessions."""
    problems = Problems()
    for op in ops:
        if op.kind == "turn" and op.is_done and not op.left:
            expected = op.prompt + reference(op.prompt, op.n)
            if op.content != expected:
                problems.differing.append(f"{op}: {op.content}, not {expected}")
    histories = {session: History([op for op in ops if op.session == session], reference, problems)
                 for session in sorted({op.session for op in ops})}
    # No fork's source is made by a fork.
    for history in sorted(histories.values(), key=lambda history: not history.forks):
        history.find_writers(histories)
        history.check()
    return problems
