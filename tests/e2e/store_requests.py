"""Requests to servers that may be stopped or killed at any moment, and what became of them."""

import http.client
import json
import threading
import time

from store_fleet import trouble_of
from store_history import Outcome
from weft_process import TIMEOUT_S

# What says for sure that nothing was done. Of the rest of all errors nobody knows.
NOTHING_DONE = {400, 404, 405, 409, 429}


class Request(threading.Thread):
    """One, in a thread of its own: its client may go on before the answer is there."""

    def __init__(self, worker, method, path, body=None, leaves=False, on_end=None):
        """If it leaves, the connection is closed after a stream's first event. `on_end` is called
        with the request on its thread."""
        super().__init__(daemon=True)
        self.worker = worker
        self.call = (method, path, json.dumps(body) if body is not None else None)
        self.is_stream = bool(body and body.get("stream"))
        self.leaves = leaves
        self.sent = time.monotonic()
        self.began = None  # the moment of the first event of a stream
        self.ended = None
        self.progress = self.sent
        self.status = None
        self.headers = {}
        self.json = None  # the answer, or the error of a stream
        self.tokens = []  # of a stream
        self.is_whole = False  # the last event of a stream came
        self.problem = None  # of the connection
        self.first_event = threading.Event()
        self.done = threading.Event()
        self.on_end = on_end or (lambda request: None)
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.worker.port, timeout=TIMEOUT_S)
        try:
            connection.connect()
        except OSError:
            self.problem = "no connection"
        else:
            try:
                connection.request(*self.call)
                self.read(connection.getresponse())
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.problem = f"{type(error).__name__}: {error}"
        finally:
            connection.close()
            self.ended = time.monotonic()
            self.first_event.set()
            self.on_end(self)
            self.done.set()

    def read(self, response):
        self.headers = response.headers
        if response.status != 200 or not self.is_stream:
            self.json = json.loads(response.read())
            self.status = response.status
            return
        self.status = 200
        for line in response:
            self.is_whole = self.is_whole or line.startswith(b"data: [DONE]")
            if line.startswith(b"data: {"):
                self.take(json.loads(line[6:]))
                if self.leaves:
                    return

    def take(self, event):
        now = self.progress = time.monotonic()
        if "error" in event:
            self.json = event
        elif event.get("stop"):
            self.is_whole = True
        self.tokens += event.get("tokens") or []
        if (event.get("tokens") or event.get("choices")) and self.began is None:
            self.began = now
            self.first_event.set()

    def wait(self, patience):
        """Until it ended, or nothing came for so many seconds. Whether it ended."""
        while not self.done.wait(0.05):
            if time.monotonic() - self.progress > patience:
                return self.done.is_set()
        return True

    @property
    def error(self):
        """The text of the error that came; empty: none."""
        if self.status is None:
            return ""
        is_error = self.status != 200 or (self.json is not None and "error" in self.json)
        return json.dumps(self.json) if is_error else ""

    @property
    def trouble(self):
        return trouble_of(self.error)

    @property
    def owner(self):
        return self.headers.get("X-Weft-Owner")

    def __str__(self):
        method, path, body = self.call
        answer = self.error or self.problem or f"{len(self.tokens)} tokens streamed"
        sent = f"{len(body)} bytes, {body[-60:]}" if body else ""
        return f"{self.worker.name} {method} {path} {sent}: {self.outcome.value} {self.status} {answer[:200]}"

    @property
    def outcome(self):
        """What its client may conclude."""
        if self.problem == "no connection":
            return Outcome.NOT
        if self.status is None or self.ended is None:
            return Outcome.UNKNOWN
        if self.error:
            is_sure = self.trouble in ("session_elsewhere", "session_moved") or (
                self.trouble is None and self.status in NOTHING_DONE)
            return Outcome.NOT if is_sure else Outcome.UNKNOWN
        if self.is_stream and not self.is_whole:
            return Outcome.UNKNOWN
        return Outcome.DONE

    @property
    def unexpected(self):
        """An answer that no client should get, as a text."""
        if self.status in (None, 200, 404, 409, 429, 503):
            return None
        return f"{self.call} at {self.worker.name}: {self.status} {self.error[:300]}"
