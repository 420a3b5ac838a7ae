#!/usr/bin/env python3
"""Servers that share sessions in real stores: versitygw, which holds what it promises, and nanio,
which must be refused. Each is skipped where it is not installed; exit code 77 where neither is.

    go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
    pip install nanio==0.1.7
    export WEFT_VERSITYGW=$(go env GOPATH)/bin/versitygw WEFT_NANIO=$(which nanio)
"""

import pathlib
import sys
import tempfile
import unittest

from python_packages import SKIP
from store_fleet import BUCKET, KEYS, Fleet, Nanio, VersityGateway, find_program
from store_operations import Operations
from weft_process import make_model, weft

VERSITYGW = find_program("WEFT_VERSITYGW", "versitygw")
NANIO = find_program("WEFT_NANIO", "nanio")


class RealStoresTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weft_stores_")
        self.addCleanup(self.folder.cleanup)
        self.dir = pathlib.Path(self.folder.name)
        self.model = make_model(self.dir / "llama.gguf", "tiny-llama", "Q8_0")

    @unittest.skipUnless(VERSITYGW, "versitygw is not installed")
    def test_versitygw(self):
        store = VersityGateway(self.dir / "store", VERSITYGW)
        self.addCleanup(store.end)
        fleet = Fleet(self.dir, self.model, store, n=3, lease=1)
        self.addCleanup(fleet.end)
        operations = Operations(fleet.start(), seed=1,
                                faults={"stop in a turn": 1, "kill the store": 1})
        operations.run(60)
        problems = operations.judge()
        print(operations.report(problems), flush=True)
        self.assertFalse(problems)
        self.assertEqual(operations.unexpected, [])

    @unittest.skipUnless(NANIO, "nanio is not installed")
    def test_nanio_is_refused(self):
        store = Nanio(self.dir / "store", NANIO)
        self.addCleanup(store.end)
        result = weft("serve", "-m", self.model, "--port", 0, "--state-dir", self.dir / "state",
                      "--store", f"s3://{BUCKET}/fleet", "--store-endpoint", store.url,
                      "--worker-url", "http://127.0.0.1:1", env=KEYS)
        self.assertNotEqual(result.code, 0, result)
        self.assertIn("lost", result.err)


if __name__ == "__main__":
    if not (VERSITYGW or NANIO):
        sys.exit(SKIP)
    unittest.main()
