#!/usr/bin/env python3
"""The object server that other tests rely on: signatures, conditions, faults, kills."""

import concurrent.futures
import datetime
import hashlib
import hmac
import http.client
import os
import tempfile
import time
import unittest
import urllib.parse

import s3_server
from store_fleet import KEYS, ObjectStore

# From the documentation of Amazon's S3: "Examples: signature calculations".
EXAMPLE_KEYS = {"AKIAIOSFODNN7EXAMPLE": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
EXAMPLE_TIME = datetime.datetime(2013, 5, 24)
EXAMPLES = (
    ("GET", "/test.txt", {"range": "bytes=0-9"}, hashlib.sha256().hexdigest(),
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
    ("PUT", "/test%24file.text", {"date": "Fri, 24 May 2013 00:00:00 GMT",
                                  "x-amz-storage-class": "REDUCED_REDUNDANCY"},
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
    ("GET", "/?max-keys=2&prefix=J", {}, hashlib.sha256().hexdigest(),
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
)


class Client:
    """Signs as a client does; written apart from the server's check."""

    def __init__(self, url, keys=None):
        self.host = url.removeprefix("http://")
        self.keys = keys or KEYS
        self.connection = http.client.HTTPConnection(self.host, timeout=30)

    def ask(self, method, key, body=b"", signed_body=None, bucket="bucket", **conditions):
        path = f"/{bucket}/" + urllib.parse.quote(key, safe="/~")
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body if signed_body is None else signed_body).hexdigest()
        scope = [now[:8], "us-east-1", "s3", "aws4_request"]
        names = "host;x-amz-content-sha256;x-amz-date"
        text = (f"{method}\n{path}\n\nhost:{self.host}\nx-amz-content-sha256:{digest}\n"
                f"x-amz-date:{now}\n\n{names}\n{digest}")
        secret = ("AWS4" + self.keys["AWS_SECRET_ACCESS_KEY"]).encode()
        for part in scope:
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        text = "\n".join(["AWS4-HMAC-SHA256", now, "/".join(scope),
                          hashlib.sha256(text.encode()).hexdigest()])
        sign = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
        credential = "/".join([self.keys["AWS_ACCESS_KEY_ID"], *scope])
        headers = {"x-amz-date": now, "x-amz-content-sha256": digest,
                   "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, "
                                    f"SignedHeaders={names}, Signature={sign}"}
        headers |= {name.replace("_", "-"): value for name, value in conditions.items()}
        self.connection.request(method, path, body, headers)
        response = self.connection.getresponse()
        return response.status, response.headers.get("ETag"), response.read()


class SignatureTest(unittest.TestCase):
    @staticmethod
    def headers(more, payload_hash, sign):
        headers = {"host": "examplebucket.s3.amazonaws.com", "x-amz-date": "20130524T000000Z",
                   "x-amz-content-sha256": payload_hash, **more}
        names = ";".join(sorted(headers))
        scope = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request"
        return {**headers, "authorization": f"AWS4-HMAC-SHA256 Credential={scope},"
                                            f"SignedHeaders={names},Signature={sign}"}

    def test_amazons_examples(self):
        for method, target, more, payload_hash, sign in EXAMPLES:
            headers = self.headers(more, payload_hash, sign)
            s3_server.check_signature(EXAMPLE_KEYS, method, target, headers, EXAMPLE_TIME)
            for wrong in ({"x-amz-date": "20130524T000001Z"}, {"host": "another"}):
                with self.assertRaises(s3_server.Refusal) as refused:
                    s3_server.check_signature(EXAMPLE_KEYS, method, target, {**headers, **wrong},
                                              EXAMPLE_TIME)
                self.assertEqual(refused.exception.code, "SignatureDoesNotMatch")

    def test_what_is_old_or_unsigned_is_refused(self):
        method, target, more, payload_hash, sign = EXAMPLES[0]
        headers = self.headers(more, payload_hash, sign)
        later = EXAMPLE_TIME + datetime.timedelta(hours=1)
        for given, now, code in ((headers, later, "RequestTimeTooSkewed"),
                                 ({**headers, "x-amz-meta-a": "b"}, EXAMPLE_TIME, "AccessDenied"),
                                 ({**headers, "authorization": ""}, EXAMPLE_TIME, "AccessDenied")):
            with self.assertRaises(s3_server.Refusal) as refused:
                s3_server.check_signature(EXAMPLE_KEYS, method, target, given, now)
            self.assertEqual(refused.exception.code, code)


class ServerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft_s3_")
        self.addCleanup(self.folder.cleanup)

    def store(self, *flags):
        store = ObjectStore(self.folder.name, *flags)
        self.addCleanup(store.end)
        return store

    def client(self, url, keys=None):
        client = Client(url, keys)
        self.addCleanup(client.connection.close)
        return client

    def test_objects_and_conditions(self):
        client = self.client(self.store().url)
        key = "fleet/sessions/@a=b%2F/x y~é"
        self.assertEqual(client.ask("GET", key)[0], 404)
        self.assertIn(b"<Code>NoSuchKey</Code>", client.ask("GET", key)[2])
        self.assertEqual(client.ask("PUT", key, b"x", If_Match='"0"')[0], 404)
        status, tag, _ = client.ask("PUT", key, b"one", If_None_Match="*")
        self.assertEqual((status, tag), (200, '"f97c5d29941bfb1b2fdab0874906ab82"'))
        self.assertEqual(client.ask("PUT", key, b"two", If_None_Match="*")[0], 412)
        self.assertEqual(client.ask("PUT", key, b"two", If_Match='"0"')[0], 412)
        self.assertEqual(client.ask("GET", key), (200, tag, b"one"))
        self.assertEqual(client.ask("HEAD", key), (200, tag, b""))
        self.assertEqual(client.ask("PUT", key, b"two", If_Match=tag)[0], 200)
        self.assertEqual(client.ask("GET", key)[2], b"two")
        self.assertEqual(client.ask("PUT", key, b"three")[0], 200)
        self.assertEqual(client.ask("DELETE", key)[0], 204)
        self.assertEqual(client.ask("DELETE", key)[0], 204)
        self.assertEqual(client.ask("HEAD", key)[0], 404)

    def test_what_is_not_right_is_refused(self):
        url = self.store().url
        for keys, code in (({**KEYS, "AWS_SECRET_ACCESS_KEY": "x"}, b"SignatureDoesNotMatch"),
                           ({**KEYS, "AWS_ACCESS_KEY_ID": "x"}, b"InvalidAccessKeyId")):
            status, _, body = self.client(url, keys).ask("PUT", "a", b"x")
            self.assertEqual(status, 403)
            self.assertIn(code, body)
        client = self.client(url)
        status, _, body = client.ask("PUT", "a", b"x", signed_body=b"y")
        self.assertEqual(status, 400)
        self.assertIn(b"XAmzContentSHA256Mismatch", body)
        status, _, body = client.ask("PUT", "a", b"x", bucket="other")
        self.assertEqual(status, 404)
        self.assertIn(b"NoSuchBucket", body)
        self.assertEqual(client.ask("GET", "a")[0], 404)

    def test_one_of_many_wins_and_a_kill_loses_nothing(self):
        store = self.store()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for key in "abcdef":
                asked = [pool.submit(self.client(store.url).ask, "PUT", key, str(i).encode(),
                                     If_None_Match="*") for i in range(8)]
                statuses = [one.result()[0] for one in asked]
                self.assertEqual(sorted(statuses), [200] + [412] * 7)
                winner = str(statuses.index(200)).encode()
                self.assertEqual(self.client(store.url).ask("GET", key)[2], winner)
        before = s3_server.objects_in(self.folder.name)
        store.kill()
        with self.assertRaises(ConnectionError):
            self.client(store.url).ask("GET", "a")
        store.start()
        for key, body in before.items():
            self.assertEqual(self.client(store.url).ask("GET", key)[2], body)
        self.assertEqual(len(before), 6)

    def test_planted_faults(self):
        url = self.store("--ignore-conditions-under", "fleet/sessions/").url
        client = self.client(url)
        for key, again in (("fleet/sessions/a", 200), ("fleet/blocks/a", 412)):
            self.assertEqual(client.ask("PUT", key, b"one", If_None_Match="*")[0], 200)
            self.assertEqual(client.ask("PUT", key, b"two", If_None_Match="*")[0], again)
            self.assertEqual(client.ask("PUT", key, b"two", If_Match='"0"')[0], again)

    def test_a_lost_answer_and_a_late_write(self):
        for flags, at_once in ((("--lose-answers", "1"), True), (("--late", "1"), False)):
            client = self.client(self.store(*flags, "--faults-under", "-").url)
            key = flags[0]
            self.assertEqual(client.ask("PUT", "other", b"one")[0], 200)
            with self.assertRaises((ConnectionError, http.client.HTTPException)):
                client.ask("PUT", key, b"one")
            client.connection.close()
            if at_once:
                self.assertEqual(client.ask("GET", key)[2], b"one")
            while client.ask("GET", key)[0] == 404:
                self.assertFalse(at_once)
                time.sleep(0.02)
            self.assertEqual(client.ask("GET", key)[2], b"one")


if __name__ == "__main__":
    os.environ.update(KEYS)
    unittest.main()
