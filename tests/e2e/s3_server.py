#!/usr/bin/env python3
"""A small object server that speaks S3's protocol, for tests: path style, conditional writes,
signatures of version 4. Objects are files of a folder, so it may be killed and started again.

  s3_server.py --folder DIR --bucket NAME [--port N]

prints its address. The key is in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
"""

import argparse
import dataclasses
import datetime
import hashlib
import hmac
import http.server
import json
import os
import pathlib
import random
import re
import sys
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

ALGORITHM = "AWS4-HMAC-SHA256"
MAX_SKEW = datetime.timedelta(minutes=15)
MAX_BODY = 1 << 30
AUTHORIZATION = re.compile(
    ALGORITHM + r" Credential=([^/,]+)/(\d{8})/([^/,]+)/s3/aws4_request,"
    r" ?SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})")


class Refusal(Exception):
    def __init__(self, status, code, message):
        super().__init__(message)
        self.status = status
        self.code = code

    @property
    def body(self):
        return ("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                f"<Error><Code>{self.code}</Code><Message>{escape(str(self))}</Message></Error>").encode()


# --- signatures --------------------------------------------------------------------------


def encoded(text, safe=""):
    """As a signature wants it: everything but letters, digits and "-_.~" as %XX."""
    return urllib.parse.quote(text, safe=safe + "-_.~")


def canonical_request(method, target, headers, signed, payload_hash):
    path, _, query = target.partition("?")
    pairs = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        pairs.append((encoded(urllib.parse.unquote(name)), encoded(urllib.parse.unquote(value))))
    lines = [method, encoded(urllib.parse.unquote(path), "/"),
             "&".join(f"{name}={value}" for name, value in sorted(pairs))]
    for name in signed:
        lines.append(f"{name}:{' '.join(headers.get(name, '').split())}")
    return "\n".join([*lines, "", ";".join(signed), payload_hash])


def signature(secret, date, region, time_text, request):
    key = b"AWS4" + secret.encode()
    for part in (date, region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    scope = f"{date}/{region}/s3/aws4_request"
    to_sign = f"{ALGORITHM}\n{time_text}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    return hmac.new(key, to_sign.encode(), "sha256").hexdigest()


def check_signature(keys, method, target, headers, now):
    """`headers` by small letters. Refuses what keys[access key] did not sign."""
    match = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if not match:
        raise Refusal(403, "AccessDenied", "the request has no signature of version 4")
    access, date, region, names, given = match.groups()
    if access not in keys:
        raise Refusal(403, "InvalidAccessKeyId", "there is no such access key")
    signed = names.split(";")
    must = {"host", "x-amz-date", "x-amz-content-sha256"}
    must |= {name for name in headers if name.startswith("x-amz-")}
    if signed != sorted(signed) or not must <= set(signed):
        raise Refusal(403, "AccessDenied", f"signed headers must be in order and include {sorted(must)}")
    time_text = headers.get("x-amz-date", "")
    try:
        moment = datetime.datetime.strptime(time_text, "%Y%m%dT%H%M%SZ")
    except ValueError:
        raise Refusal(403, "AccessDenied", "x-amz-date is no date") from None
    if abs(moment - now) > MAX_SKEW or not time_text.startswith(date):
        raise Refusal(403, "RequestTimeTooSkewed", "the request's time is not now")
    payload_hash = headers.get("x-amz-content-sha256", "")
    request = canonical_request(method, target, headers, signed, payload_hash)
    if not hmac.compare_digest(given, signature(keys[access], date, region, time_text, request)):
        raise Refusal(403, "SignatureDoesNotMatch", f"the signature is not of\n{request}")


def check_payload(headers, body):
    if headers.get("x-amz-content-sha256") != hashlib.sha256(body).hexdigest():
        raise Refusal(400, "XAmzContentSHA256Mismatch", "x-amz-content-sha256 is not the body's")


# --- objects -----------------------------------------------------------------------------


def tag_of(body):
    return f'"{hashlib.md5(body).hexdigest()}"'


def objects_in(folder):
    """What the store has, by key."""
    objects = {}
    for path in pathlib.Path(folder).glob("*.object"):
        key, _, body = path.read_bytes().partition(b"\n")
        objects[json.loads(key)] = body
    return objects


class Objects:
    """Whole objects in a folder. A kill leaves the old version or the new one."""

    def __init__(self, folder, unconditional=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lock = threading.Lock()
        # Keys below this prefix are written whatever the condition says: a fault for tests.
        self.unconditional = unconditional

    def path(self, key):
        # A key may be longer than a file's name.
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.object"

    def get(self, key):
        try:
            return self.path(key).read_bytes().partition(b"\n")[2]
        except FileNotFoundError:
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.") from None

    def check(self, key, headers):
        """The lock is held."""
        if self.unconditional is not None and key.startswith(self.unconditional):
            return
        exists = self.path(key).exists()
        if headers.get("if-none-match") == "*" and exists:
            raise Refusal(412, "PreconditionFailed", "There is such an object.")
        if "if-match" in headers and tag_of(self.get(key)) != headers["if-match"]:
            raise Refusal(412, "PreconditionFailed", "The object has another tag.")

    def put(self, key, body, headers):
        aside = self.folder / f"{threading.get_ident()}.new"
        aside.write_bytes(json.dumps(key).encode() + b"\n" + body)
        with self.lock:
            self.check(key, headers)
            os.replace(aside, self.path(key))
        return tag_of(body)

    def remove(self, key, headers):
        with self.lock:
            self.check(key, headers)
            self.path(key).unlink(missing_ok=True)


# --- the server --------------------------------------------------------------------------


@dataclasses.dataclass
class Faults:
    delay: float = 0  # seconds before anything is done
    lose: float = 0  # share of changes that are made, with a closed connection as the answer
    late: float = 0  # share of changes that are made after the connection was closed
    late_by: float = 0.3  # seconds
    under: str = ""  # changes of keys with this prefix may be lost or late

    def __post_init__(self):
        self.rng = random.Random(1)
        self.lock = threading.Lock()

    def choose(self, key):
        if not key.startswith(self.under):
            return None
        with self.lock:
            drawn = self.rng.random()
        if drawn < self.lose:
            return "lose"
        return "late" if drawn < self.lose + self.late else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16  # an answer's head and body leave together

    def log_message(self, *_):
        pass

    def read_body(self):
        if "transfer-encoding" in self.headers:
            raise Refusal(501, "NotImplemented", "a body needs a Content-Length")
        length = int(self.headers.get("content-length", 0))
        if length > MAX_BODY:
            raise Refusal(400, "EntityTooLarge", "the body is too large")
        body = self.rfile.read(length)
        if len(body) < length:
            raise ConnectionError("the body is not whole")
        return body

    def key(self):
        """Of the request's object; refuses other buckets."""
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        if bucket != self.server.bucket:
            raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
        if not key or query:
            raise Refusal(501, "NotImplemented", "only objects can be asked for")
        return key

    def check_conditions(self, headers):
        changes = self.command in ("PUT", "DELETE")
        if headers.get("if-none-match", "*") != "*" or (
                not changes and ("if-match" in headers or "if-none-match" in headers)):
            raise Refusal(501, "NotImplemented", "a condition that is not supported")

    def change(self, key, body, headers):
        if self.command == "PUT":
            return 200, self.server.objects.put(key, body, headers)
        self.server.objects.remove(key, headers)
        return 204, None

    def act(self, key, body, headers):
        """The answer: status, tag and body; None closes the connection."""
        if self.command in ("GET", "HEAD"):
            found = self.server.objects.get(key)
            return 200, tag_of(found), found
        fault = self.server.faults.choose(key)
        if fault == "late":
            def later():
                time.sleep(self.server.faults.late_by)
                try:
                    self.change(key, body, headers)
                except Refusal:
                    pass
            threading.Thread(target=later, daemon=True).start()
            return None
        status, tag = self.change(key, body, headers)
        return None if fault else (status, tag, b"")

    def serve(self):
        try:
            body = self.read_body()
            time.sleep(self.server.faults.delay)
            headers = {name.lower(): value for name, value in self.headers.items()}
            now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
            check_signature(self.server.keys, self.command, self.path, headers, now)
            check_payload(headers, body)
            self.check_conditions(headers)
            answer = self.act(self.key(), body, headers)
        except Refusal as refusal:
            answer = refusal.status, None, refusal.body
        except ConnectionError:
            answer = None
        if answer is None:
            self.close_connection = True
            return
        self.answer(*answer)

    def answer(self, status, tag, body):
        self.send_response(status)
        if tag:
            self.send_header("ETag", tag)
        if status >= 300:
            self.send_header("Content-Type", "application/xml")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_DELETE = serve  # noqa: N815


class ObjectServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port, bucket, keys, objects, faults):
        super().__init__(("127.0.0.1", port), Handler)
        self.bucket = bucket
        self.keys = keys
        self.objects = objects
        self.faults = faults

    def handle_error(self, request, client_address):
        # Clients leave; that is no error of the server's.
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def share(text):
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError("must be from 0 to 1")
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--bucket", default="bucket")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ignore-conditions-under", metavar="PREFIX",
                        help="writes of keys below it are unconditional")
    parser.add_argument("--delay", type=float, default=0, help="seconds before each answer")
    parser.add_argument("--lose-answers", type=share, default=0, metavar="SHARE",
                        help="of writes: done, then the connection is closed")
    parser.add_argument("--late", type=share, default=0, metavar="SHARE",
                        help="of writes: the connection is closed, then they are done")
    parser.add_argument("--faults-under", default="", metavar="PREFIX",
                        help="only writes of keys below it are lost or late")
    args = parser.parse_args()
    keys = {os.environ["AWS_ACCESS_KEY_ID"]: os.environ["AWS_SECRET_ACCESS_KEY"]}
    faults = Faults(args.delay, args.lose_answers, args.late, under=args.faults_under)
    objects = Objects(args.folder, args.ignore_conditions_under)
    server = ObjectServer(args.port, args.bucket, keys, objects, faults)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
