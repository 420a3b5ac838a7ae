"""What one real worker takes, as `measure` wrote it, and the times of steps that follow from it.

All times are in seconds. No clock and no network here.
"""

import bisect
import dataclasses
import json
import pathlib

FORMAT = 1


@dataclasses.dataclass
class Profile:
    """One real worker."""

    model: dict            # its answer to GetModelInfo
    server: dict           # its answer to GetServerInfo
    page_tokens: int
    cache_tokens: int      # how many tokens its memory for the KV cache holds
    max_running: int
    prompt_rows: list      # [rows, s]: a step with that many first tokens of a prompt
    attention_s: float     # for a prompt's token to see one more position
    decode_rows: list      # [sessions, s]: a step that decodes that many
    decode_attention_s: float  # the same for a generated token
    request_s: float       # a request's time outside of steps
    step_tokens: int = 512     # most prompt tokens of a step
    step_s: float = 0.05       # --step-ms of weft serve
    stretch: float = 3.0       # how much longer prompts may make the time between two tokens
    # How many times longer a step takes while that many workers of one machine compute.
    together: list = dataclasses.field(default_factory=lambda: [1.0])
    # [text, tokens at the beginning, token after a space]
    words: list = dataclasses.field(default_factory=list)
    tokenizer: bytes = b""     # its bundle, of GetTokenizer

    def prompt_s(self, rows, depth):
        """For `rows` of a prompt after `depth` others."""
        return between(self.prompt_rows, rows) + rows * self.attention_s * (depth + rows / 2)

    def decode_s(self, depths):
        """For a step that decodes one token of each session, by how many came before it."""
        if not depths:
            return 0.0
        return between(self.decode_rows, len(depths)) + self.decode_attention_s * sum(depths)

    def slower(self, busy):
        """The factor of steps while `busy` workers of the machine compute."""
        last = self.together[-1]
        if busy <= len(self.together):
            return self.together[max(busy, 1) - 1]
        return last * busy / len(self.together)

    def save(self, path):
        """The tokenizer's bundle goes into a file of its own next to it."""
        path = pathlib.Path(path)
        fields = dataclasses.asdict(self)
        path.with_suffix(".tokenizer.zip").write_bytes(fields.pop("tokenizer"))
        lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
        path.write_text(f'{{\n "format": {FORMAT},\n' + ",\n".join(lines) + "\n}\n")

    @staticmethod
    def load(path):
        path = pathlib.Path(path)
        fields = json.loads(path.read_text())
        if fields.pop("format", None) != FORMAT:
            raise ValueError(f"{path} is no profile of format {FORMAT}: run `measure` again")
        return Profile(**fields, tokenizer=path.with_suffix(".tokenizer.zip").read_bytes())


def between(points, x):
    """On the line through the two points next to x; after the last one, in proportion to it."""
    at = bisect.bisect_left(points, x, key=lambda point: point[0])
    if at == len(points):
        (x0, y0), (x1, y1) = points[-2:] if len(points) > 1 else ([0, 0], points[0])
    elif at == 0:
        return points[0][1]
    else:
        (x0, y0), (x1, y1) = points[at - 1:at + 1]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
