"""A hub of which one answer is wrong, and the wrong ones: LIES."""

import contextlib
import gzip
import hashlib
import json
import random
import threading
import time

from fake_hub import COMMIT, FakeHub, Server, send

REPO = "weaver/tiny-GGUF"
FILE = "tiny-Q4_0.gguf"

# The request that is answered with the lie, its name, the function that tells it, and the results
# that are allowed.
LIES = []


def lie(at, what, *, may_be_right=False, model=f"{REPO}:Q4_0"):
    """Registers function(handler, hub), which answers instead of the hub at `at`: the revision, the
    tree, the file at the hub or at its store, or a manifest or blob of Ollama's registry.
    Where it returns False, the hub answers."""
    def register(function):
        LIES.append((at, what, function, may_be_right, model))
        return function
    return register


def ollama(at, what, **may):
    return lie(at, what, model="ollama:tiny", **may)


class Files(dict):
    """Those that are listed; whatever else is asked for has the same bytes."""

    def __missing__(self, name):
        return self[FILE]


class LyingHub(FakeHub):
    def __init__(self, weights, at, function):
        self.weights = weights
        self.sha256 = hashlib.sha256(weights).hexdigest()
        super().__init__({REPO: Files({"README.md": b"#", FILE: weights})}, {"tiny": weights})
        self.at, self.function = at, function
        self.n_lies = 0
        self.others = []  # servers that the hub points to
        self.closing = threading.Event()

    def close(self):
        self.closing.set()
        super().close()
        for server in self.others:
            server.shutdown()
            server.server_close()

    def other(self, answer):
        """The URL of a server that nobody should send a token to."""
        def noted(handler):
            self.note("other", handler)
            answer(handler)
        self.others.append(Server(noted))
        return self.others[-1].url

    def lies(self, at, handler):
        if at != self.at:
            return False
        self.n_lies += 1
        with contextlib.suppress(OSError):  # it left
            return self.function(handler, self) is not False
        return True

    def answer(self, handler):
        path = handler.path
        for at, part in (("revision", "/revision/"), ("tree", "/tree/"), ("file", "/resolve/"),
                         ("manifest", "/manifests/"), ("blob", "/blobs/")):
            if part in path:
                if self.lies(at, handler):
                    return self.note("hub", handler)
                break
        super().answer(handler)

    def give(self, handler):
        if self.lies("store", handler):
            return self.note("store", handler)
        super().give(handler)

    def stream(self, handler, piece, headers=(), status=200):
        """Never ends by itself."""
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.close_connection = True
        while not self.closing.is_set():
            handler.wfile.write(piece)

    def entry(self, **changes):
        entry = {"type": "file", "oid": "0" * 40, "size": len(self.weights), "path": FILE,
                 "lfs": {"oid": self.sha256, "size": len(self.weights), "pointerSize": 134}}
        entry["lfs"].update(changes.pop("lfs", {}))
        entry.update(changes)
        return entry


def say(at, what, body, status=200, headers=None, **may):
    """A lie that is always the same text."""
    body = body if isinstance(body, bytes) else body.encode()

    @lie(at, what, **may)
    def _(handler, hub):
        send(handler, status, body, **(headers or {}))


def say_raw(at, what, raw, **may):
    """A lie that is no HTTP."""
    @lie(at, what, **may)
    def _(handler, hub):
        handler.wfile.write(raw)
        handler.close_connection = True


def list_of(what, *entries, **may):
    """A tree of these changes of the right entry; False: that entry itself."""
    @lie("tree", what, **may)
    def _(handler, hub):
        tree = [hub.entry(**(changes or {})) for changes in entries]
        send(handler, 200, json.dumps(tree).encode())


# --- the revision: which commit ------------------------------------------------------------------

say("revision", "a page instead of JSON", "<!doctype html><title>Welcome</title>")
say("revision", "nothing at all", "")
say("revision", "204", "", status=204)
say("revision", "a list instead of an object", "[]")
say("revision", "no commit", '{"id":"weaver/tiny-GGUF"}')
say("revision", "a number as commit", '{"sha":5}')
say("revision", "a path as commit", '{"sha":"../../../../outside"}')
say("revision", "a commit that is too short", '{"sha":"%s"}' % ("c" * 39))
say("revision", "a commit in another alphabet", '{"sha":"%s"}' % ("z" * 40))
say("revision", "half an object", '{"sha":"%s"' % COMMIT)
say("revision", "two answers in one", '{"sha":"%s"}{"sha":"%s"}' % (COMMIT, "d" * 40))
say("revision", "depth", b'{"a":' * 700_000)
say("revision", "deep lists", b'{"a":' + b"[" * 4_000_000)
say("revision", "a long key", b'{"' + b"k" * 4_000_000 + b'":1}')
say("revision", "a status of its own", '{"sha":"%s"}' % COMMIT, status=299, may_be_right=True)
say("revision", "a refusal that never ends in text", b"x" * 3_000_000, status=403)
say_raw("revision", "no HTTP", b"SSH-2.0-OpenSSH_9.2p1\r\n" * 100)
say_raw("revision", "a head without end", b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000)
say_raw("revision", "interim answers without end", b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" * 50_000)
say_raw("revision", "a negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}")
say_raw("revision", "two lengths",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4000\r\n\r\n{}")
say_raw("revision", "a length that overflows",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n{}")
say_raw("revision", "less than its length",
        b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{"sha":"' + COMMIT.encode() + b'"}')
say_raw("revision", "pieces of no size",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")
say_raw("revision", "a piece of 2^64 bytes",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}\r\n")


@lie("revision", "an answer without end")
def _(handler, hub):
    hub.stream(handler, b'{"a":"' + b"x" * 65536)


@lie("revision", "packed zeros")
def _(handler, hub):
    send(handler, 200, gzip.compress(b"\0" * 50_000_000), Content_Encoding="gzip")


@lie("revision", "byte after byte", may_be_right=True)
def _(handler, hub):
    body = json.dumps({"sha": COMMIT}).encode()
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    for byte in body:
        handler.wfile.write(bytes([byte]))
        time.sleep(0.02)


def redirect(at, what, where, status=302, **may):
    @lie(at, what, **may)
    def _(handler, hub):
        send(handler, status, Location=where(handler, hub))


for at in ("revision", "file"):
    redirect(at, "a redirect to itself", lambda handler, hub: handler.path)
    redirect(at, "a redirect to a file", lambda handler, hub: "file:///etc/passwd")
    redirect(at, "a redirect to another scheme", lambda handler, hub: "gopher://127.0.0.1:1/x")
    redirect(at, "a redirect to nowhere", lambda handler, hub: "")
    redirect(at, "a redirect to nobody", lambda handler, hub: "http://127.0.0.1:1/")
    redirect(at, "a redirect of 100 KB", lambda handler, hub: "/" + "x" * 100_000)
    redirect(at, "a redirect to no URL", lambda handler, hub: "http://[::1/%zz\x7f")
    redirect(at, "a redirect with a password",
             lambda handler, hub: hub.url.replace("://", "://eve:secret@") + handler.path)
redirect("revision", "another host answers", lambda handler, hub: hub.other(
    lambda other: send(other, 200, json.dumps({"sha": COMMIT}).encode())), may_be_right=True)
redirect("file", "another host has the file", lambda handler, hub: hub.other(
    lambda other: FakeHub.send_whole(other, hub.weights)), status=307, may_be_right=True)

# --- the tree: which files -----------------------------------------------------------------------

say("tree", "an object instead of a list", '{"sha":"%s"}' % COMMIT)
say("tree", "an empty list", "[]")
say("tree", "lists in lists", b"[" * 4_000_000)
say("tree", "numbers", "[" + ",".join(["1"] * 200_000) + "]")
say("tree", "more than a page may have", b"[" + b" " * (5 << 20) + b"]")
say("tree", "bytes that are no text", b'[{"type":"file","path":"\xff\xfe.gguf","size":1}]')
list_of("a path out of the folder", {"path": "../../../../outside/x-Q4_0.gguf"})
list_of("a path from the root", {"path": "/tmp/outside-Q4_0.gguf"})
list_of("a path with a step up inside", {"path": "a/../../x-Q4_0.gguf"})
list_of("a path with backslashes", {"path": "..\\..\\x-Q4_0.gguf"})
list_of("a path with a zero byte", {"path": "x-Q4_0.gguf\0.txt"})
list_of("a path with escapes", {"path": "\x1b[2J\r\nx-Q4_0.gguf"})
list_of("a path of 10 KB", {"path": "x/" * 5000 + "x-Q4_0.gguf"})
list_of("a name of 10 KB", {"path": "x" * 10_000 + "-Q4_0.gguf"})
list_of("a path that is a number", {"path": 7})
list_of("a negative size", {"size": -1, "lfs": {"size": -1}})
list_of("a size in words", {"size": "large", "lfs": {"size": "large"}})
list_of("a size that is no integer", {"lfs": {"size": 1e300}})
list_of("a size beyond 64 bits", {"lfs": {"size": 2**70}})
list_of("a size of all disks", {"lfs": {"size": 2**62}})
list_of("a size that is too small", {"lfs": {"size": 10}})
list_of("a size that is too large by one", {"lfs": {"size": 1 << 20}})
list_of("no bytes", {"lfs": {"size": 0}})
list_of("another checksum", {"lfs": {"oid": "0" * 64}})
list_of("a checksum that is a path", {"lfs": {"oid": "../" * 20 + "etcx"}})
list_of("a checksum of another length", {"lfs": {"oid": "ab"}})
list_of("a checksum that is a list", {"lfs": {"oid": [1, 2]}})
list_of("a link instead of a file", {"type": "symlink"})
list_of("a file that is also a folder", {"path": "a-Q4_0.gguf/b-Q4_0.gguf"},
        {"path": "a-Q4_0.gguf"}, may_be_right=True)
list_of("the same file twice", None, {"lfs": {"oid": "1" * 64}}, may_be_right=True)
list_of("a part of a model without the others", {"path": "x-Q4_0-00002-of-00003.gguf"})
list_of("99,999 parts", {"path": "x-Q4_0-00001-of-99999.gguf"})


def pages(what, where, body=lambda hub: b"[]", **may):
    @lie("tree", what, **may)
    def _(handler, hub):
        send(handler, 200, body(hub), Link=f'<{where(handler, hub)}>; rel="next"')


pages("a list that is its own next page", lambda handler, hub: hub.url + handler.path)
pages("a next page at another host", lambda handler, hub: hub.other(
    lambda other: send(other, 200, b"[]")) + "/x")
pages("a next page in a file", lambda handler, hub: "file:///etc/passwd")
pages("a next page that is no URL", lambda handler, hub: "http://")
pages("pages of long names", lambda handler, hub: hub.url + handler.path,
      lambda hub: json.dumps([hub.entry(path="x" * 3_000_000)]).encode())
pages("pages of many files", lambda handler, hub: hub.url + handler.path,
      lambda hub: json.dumps([hub.entry(path=f"{i}.gguf") for i in range(3000)]).encode())

# --- the file ------------------------------------------------------------------------------------

say("file", "a page instead of the file", "<!doctype html>")
say("file", "a refusal", "who are you?", status=401)
say("file", "a server's error", "", status=500)
say("file", "too many requests", "", status=429, headers={"Retry-After": "-5"})
say("file", "a status that nobody knows", "", status=418)
say_raw("store", "no HTTP", b"\0" * 5000)
say_raw("store", "nothing", b"")


def store(what, **may):
    return lie("store", what, **may)


@store("more bytes than there are")
def _(handler, hub):
    send(handler, 200, hub.weights + b"more")


@store("fewer bytes than there are")
def _(handler, hub):
    send(handler, 200, hub.weights[:-1])


@store("other bytes")
def _(handler, hub):
    send(handler, 200, random.Random(1).randbytes(len(hub.weights)))


@store("other bytes at first", may_be_right=True)
def _(handler, hub):
    if hub.n_lies > 1:
        return False
    FakeHub.send_whole(handler, b"x" * len(hub.weights), upto=1000)


@store("bytes without end")
def _(handler, hub):
    hub.stream(handler, b"x" * 65536)


@store("pieces without end")
def _(handler, hub):
    hub.stream(handler, b"10000\r\n" + b"x" * 65536 + b"\r\n",
               headers=[("Transfer-Encoding", "chunked")])


@store("a length and then bytes without end")
def _(handler, hub):
    hub.stream(handler, b"x" * 65536, headers=[("Content-Length", str(len(hub.weights)))])


@store("a part that nobody asked for")
def _(handler, hub):
    send(handler, 206, hub.weights[5:],
         Content_Range=f"bytes 5-{len(hub.weights) - 1}/{len(hub.weights)}")


@store("a part of nothing")
def _(handler, hub):
    send(handler, 206, hub.weights, Content_Range="bytes */*")


@store("a part of another whole")
def _(handler, hub):
    send(handler, 206, hub.weights, Content_Range=f"bytes 0-{len(hub.weights) - 1}/{2**62}")


@store("a part without a range")
def _(handler, hub):
    send(handler, 206, hub.weights)


@store("the rest from elsewhere")
def _(handler, hub):
    if hub.n_lies == 1:
        return FakeHub.send_whole(handler, hub.weights, upto=1000)
    n = len(hub.weights)
    send(handler, 206, hub.weights[500:], Content_Range=f"bytes 500-{n - 1}/{n}")


@store("the rest from the beginning", may_be_right=True)
def _(handler, hub):
    if hub.n_lies == 1:
        return FakeHub.send_whole(handler, hub.weights, upto=1000)
    send(handler, 200, hub.weights)


@store("no such range, always")
def _(handler, hub):
    if hub.n_lies == 1:
        return FakeHub.send_whole(handler, hub.weights, upto=1000)
    send(handler, 416)


@store("packed, which nobody asked for")
def _(handler, hub):
    send(handler, 200, gzip.compress(hub.weights), Content_Encoding="gzip")


@store("packed zeros")
def _(handler, hub):
    send(handler, 200, gzip.compress(b"\0" * 50_000_000), Content_Encoding="gzip")


@store("a name of its own", may_be_right=True)
def _(handler, hub):
    send(handler, 200, hub.weights, Content_Disposition='attachment; filename="../../../outside"',
         ETag='"../../x"', Set_Cookie="a=b; Path=/", Alt_Svc='h2="127.0.0.1:1"')


@store("a cut after each 50,000 bytes", may_be_right=True)
def _(handler, hub):
    FakeHub.send_whole(handler, hub.weights, upto=50_000)


# --- Ollama's registry ---------------------------------------------------------------------------

MODEL = "application/vnd.ollama.image.model"
ONE = "sha256:" + "1" * 64
for name, text in {
        "a page": "<!doctype html>",
        "a list": "[]",
        "no list of layers": '{"layers":{}}',
        "no layers": '{"layers":[]}',
        "a layer that is a number": '{"layers":[1]}',
        "a digest that is a path": json.dumps({"layers": [
            {"mediaType": MODEL, "digest": "sha256:../../../../../outside", "size": 5}]}),
        "a digest of another kind": json.dumps({"layers": [
            {"mediaType": MODEL, "digest": "md5:" + "1" * 32, "size": 5}]}),
        "a negative size": json.dumps({"layers": [{"mediaType": MODEL, "digest": ONE, "size": -5}]}),
        "a size in words": json.dumps({"layers": [
            {"mediaType": MODEL, "digest": ONE, "size": "large"}]}),
        "a size of all disks": json.dumps({"layers": [
            {"mediaType": MODEL, "digest": ONE, "size": 2**62}]}),
        "a kind that is a path": json.dumps({"layers": [
            {"mediaType": MODEL + "/../../../outside", "digest": ONE, "size": 5}]}),
        "100,000 layers": json.dumps({"layers": [{}] * 100_000}),
        "numbers": '{"layers":[' + "1," * 2_000_000 + "1]}",
        "lists in lists": '{"layers":' + "[" * 4_000_000,
        "objects in objects": '{"a":' * 800_000}.items():
    say("manifest", f"Ollama: {name}", text, model="ollama:tiny")


@ollama("manifest", "Ollama: a manifest without end")
def _(handler, hub):
    hub.stream(handler, b" " * 65536)


@ollama("blob", "Ollama: other bytes")
def _(handler, hub):
    send(handler, 200, b"x" * len(hub.weights))


@ollama("blob", "Ollama: bytes without end")
def _(handler, hub):
    hub.stream(handler, b"x" * 65536)
