#!/usr/bin/env python3
"""Tests of check_layers.py: each rule broken once, in a small tree of its own."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("check_layers.py")
GUARD = "#ifndef WEFT_{0}\n#define WEFT_{0}\n{1}\n#endif\n"


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("lib/base/status.h", GUARD.format("BASE_STATUS_H_", ""))
        self.write("src/engine/engine.cc", '#include "base/status.h"\n#include <vector>\n')
        self.write("include/weft/engine.h", GUARD.format("ENGINE_H_", ""))
        self.write("src/model/CMakeLists.txt",
                   "weft_library(weft_model SOURCES a.cc DEPS weft_model_formats)  # not weft_engine\n"
                   "weft_test(model_test SOURCES a_test.cc DEPS weft_engine)\n")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run_script(self):
        done = subprocess.run([sys.executable, SCRIPT, self.root], capture_output=True, text=True)
        return done.returncode, done.stdout

    def expect_violation(self, *parts):
        code, output = self.run_script()
        self.assertEqual(code, 1, output)
        for part in parts:
            self.assertIn(part, output)
        self.assertIn("1 violations", output)

    def test_a_clean_tree_passes_in_silence(self):
        self.assertEqual(self.run_script(), (0, ""))

    def test_an_include_upwards(self):
        self.write("lib/base/clock.cc", '#include "base/status.h"\n#include "engine/turn.h"\n')
        self.expect_violation("lib/base/clock.cc:2: base may not include engine/turn.h")

    def test_an_include_sideways(self):
        self.write("src/engine/state/pool.cc", '#include "model/model_spec.h"\n')
        self.expect_violation("src/engine/state/pool.cc:1:", "engine/state may not include model/model_spec.h")

    def test_waiting_is_a_statement(self):
        for code in ("if (co_await F()) G();", "while (n < 3 && co_await F()) {\n}", "G(co_await F());",
                     "const int x = n > 0 ? co_await F() : 0;", "co_return a || co_await F();",
                     "for (int i = co_await F(); i < 3; ++i) G();"):
            self.write("lib/base/wait.cc", f"Task<int> X() {{\n  {code}\n}}\n")
            self.expect_violation("lib/base/wait.cc:2: co_await within")
        for code in ("if (f(a && b)) x = co_await F(G(a ? b : c), d);", "co_return co_await F();",
                     "// if (co_await F())", "while (true) co_await F();", 'Say("(co_await");',
                     "else if (ok) (void)co_await F();", "const bool ok = co_await F(\n    a);"):
            self.write("lib/base/wait.cc", f"Task<int> X() {{\n  {code}\n}}\n")
            self.assertEqual(self.run_script(), (0, ""), code)

    def test_the_public_headers_are_above_the_backends(self):
        self.write("src/compute/backend.cc", '#include "weft/options.h"\n')
        self.expect_violation("src/compute/backend.cc:1:")

    def test_public_headers_include_no_private_ones(self):
        self.write("include/weft/model.h", GUARD.format("MODEL_H_", '#include "base/status.h"'))
        self.expect_violation("include/weft/model.h:3:")

    def test_tests_are_free(self):
        self.write("lib/base/clock_test.cc", '#include "engine/turn.h"\n')
        self.write("tests/e2e/x.cc", '#include "engine/turn.h"\n')
        self.assertEqual(self.run_script(), (0, ""))

    def test_a_relative_include_even_in_a_test(self):
        self.write("lib/base/clock_test.cc", '#include "../engine/turn.h"\n')
        self.expect_violation("lib/base/clock_test.cc:1:", "relative")

    def test_downloads_elsewhere(self):
        self.write("src/doors/http/a.cc", '#include <curl/curl.h>\n')
        self.expect_violation("src/doors/http/a.cc:1:", "that library belongs to doors/stores, model/hub")

    def test_an_engine_in_the_hub(self):
        self.write("src/model/hub/a.cc", '#include "engine/engine_core.h"\n')
        self.expect_violation("src/model/hub/a.cc:1:", "it may use base, base/files, model/formats")

    def test_json_in_the_engine(self):
        self.write("src/engine/a.cc", '#include "nlohmann/json.hpp"\n')
        self.expect_violation("src/engine/a.cc:1:", "that library belongs to answer, answer/chat, answer/reply, cli")

    def test_one_backend_in_another(self):
        self.write("src/compute/backend.cc", '#include "compute/cpu/cpu_backend.h"\n')
        self.write("src/compute/reference/a.cc", '#include "compute/cpu/compute.h"\n')
        self.expect_violation("src/compute/reference/a.cc:1: the reference backend")

    def test_a_wrong_guard(self):
        self.write("lib/base/clock.h", "// A clock.\n#ifndef CLOCK_H\n#define CLOCK_H\n#endif\n")
        self.expect_violation("lib/base/clock.h:2:", "WEFT_BASE_CLOCK_H_")

    def test_a_missing_guard(self):
        self.write("tools/shape.h", "int x;\n")
        self.expect_violation("tools/shape.h:1:", "WEFT_TOOLS_SHAPE_H_")

    def test_a_library_that_links_upwards(self):
        self.write("src/engine/state/CMakeLists.txt",
                   "weft_library(weft_engine_state\n  SOURCES a.cc\n  DEPS weft_base weft_engine)\n")
        self.expect_violation("src/engine/state/CMakeLists.txt:3: weft_engine_state may not link weft_engine")

    def test_one_api_in_another(self):
        self.write("src/doors/api/anthropic/routes.cc", '#include "doors/api/openai/routes.h"\n')
        self.expect_violation("src/doors/api/anthropic/routes.cc:1: doors/api/anthropic may not include")

    def test_a_library_of_a_folder_within_one(self):
        self.write("src/doors/api/openai/CMakeLists.txt",
                   "weft_library(weft_doors_api_openai SOURCES a.cc DEPS weft_doors_api weft_doors_api_llama)\n")
        self.expect_violation("weft_doors_api_openai may not link weft_doors_api_llama")

    def test_a_folder_nobody_knows(self):
        self.write("src/sound/a.cc", '#include "base/status.h"\n')
        self.expect_violation("src/sound is unknown")


if __name__ == "__main__":
    unittest.main()
