"""A hub on 127.0.0.1 for tests: repositories, their files on another port, and faults."""

import hashlib
import http.server
import json
import re
import threading
import urllib.parse

COMMIT = "c" * 40


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                answer(self)

            do_HEAD = do_GET

            def log_message(self, *args):
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that leaves


def send(handler, status, body=b"", **headers):
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(body)


class FakeHub:
    """`files`: {repository: {path: bytes}}; `ollama`: {name of a model: its weights}, at the same
    address. `send_file(handler, body)` may be replaced to do
    wrong what the store does right."""

    def __init__(self, files, ollama=None):
        self.files = files
        self.ollama = ollama or {}
        self.requests = []  # (server, path, range, authorization)
        self.lock = threading.Lock()
        self.send_file = self.send_whole
        self.hub = Server(self.answer)
        self.store = Server(self.give)
        self.url = self.hub.url

    def close(self):
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()

    def note(self, server, handler):
        with self.lock:
            self.requests.append((server, handler.path, handler.headers.get("Range"),
                                  handler.headers.get("Authorization")))

    def answer(self, handler):
        self.note("hub", handler)
        path = urllib.parse.urlparse(handler.path).path
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            repo, what, _ = match.groups()
            if repo not in self.files:
                # As the hub says that there is no such repository.
                return send(handler, 401, b"{}", X_Error_Code="RepoNotFound")
            if what == "revision":
                return send(handler, 200, json.dumps({"id": repo, "sha": COMMIT}).encode())
            tree = [{"type": "file", "oid": "0" * 40, "size": len(body), "path": name,
                     "lfs": {"oid": hashlib.sha256(body).hexdigest(), "size": len(body),
                             "pointerSize": 134}}
                    for name, body in sorted(self.files[repo].items())]
            return send(handler, 200, json.dumps(tree).encode())
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            repo, name = match.groups()
            body = self.files[repo][urllib.parse.unquote(name)]
            return send(handler, 302, Location=f"{self.store.url}/{repo}/{name}?signed=1",
                        X_Repo_Commit=COMMIT, X_Linked_Size=str(len(body)),
                        X_Linked_ETag=f'"{hashlib.sha256(body).hexdigest()}"')
        if match := re.fullmatch(r"/v2/library/([^/]+)/(manifests/latest|blobs/.+)", path):
            body = self.ollama.get(match[1])
            if body is None:
                return send(handler, 404)
            if match[2].startswith("blobs/"):
                return self.send_file(handler, body)
            layer = {"mediaType": "application/vnd.ollama.image.model", "size": len(body),
                     "digest": "sha256:" + hashlib.sha256(body).hexdigest()}
            return send(handler, 200, json.dumps({"layers": [layer]}).encode())
        send(handler, 404)

    def give(self, handler):
        self.note("store", handler)
        owner, repo, name = urllib.parse.urlparse(handler.path).path[1:].split("/", 2)
        self.send_file(handler, self.files[f"{owner}/{repo}"][urllib.parse.unquote(name)])

    @staticmethod
    def send_whole(handler, body, upto=None, pause=None):
        """The range that was asked for, cut after `upto` bytes."""
        match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        first = int(match.group(1)) if match else 0
        handler.send_response(206 if match else 200)
        if match:
            handler.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        handler.send_header("Content-Length", str(len(body) - first))
        handler.end_headers()
        end = len(body) if upto is None else first + upto
        for at in range(first, min(end, len(body)), 1 << 16):
            handler.wfile.write(body[at:min(at + (1 << 16), end)])
            if pause:
                pause()
        if end < len(body):
            handler.close_connection = True
