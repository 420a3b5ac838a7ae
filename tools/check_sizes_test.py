#!/usr/bin/env python3
"""check_sizes.py finds files and classes that are too large, and entries that are not needed."""

import pathlib
import tempfile
import unittest

import check_sizes

SMALL = "class Small {\n public:\n  Small();\n  int At(int i) const;\n private:\n  int Hidden();\n};\n"


class CheckSizesTest(unittest.TestCase):
    def problems(self, text, name="src/a.h", large=None):
        known, check_sizes.LARGE = check_sizes.LARGE, large or {}
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True)
                path.write_text(text)
                return check_sizes.check(pathlib.Path(folder))
        finally:
            check_sizes.LARGE = known

    def test_small_ones_pass(self):
        self.assertEqual(self.problems(SMALL), [])
        self.assertEqual([found[:1] + found[2:] for found in check_sizes.classes(SMALL.split("\n"))],
                         [("Small", 7, 1)])

    def test_large_ones_need_a_reason(self):
        many = "class Many {\n public:\n" + "".join(f"  int F{i}();\n" for i in range(26)) + "};\n"
        long = "namespace {\n  class Long final : public Base {\n" + "    int a;\n" * 200 + "  };\n}\n"
        macro = many.replace("class Many", 'class WEFT_CAPABILITY("mutex") Many')
        special = many.replace("class Many", "class Many<int, char*>")
        for text, name in ((many, "Many"), (long, "Long"), (macro, "Many"), (special, "Many")):
            self.assertIn(f"{name} has", self.problems(text)[0])
            self.assertEqual(self.problems(text, large={"src/a.h": {name: "why"}}), [])
        self.assertIn("501 lines", self.problems("\n" * 501)[0])
        self.assertEqual(self.problems("\n" * 501, name="src/a_test.cc"), [])

    def test_a_reason_that_is_not_needed_goes(self):
        self.assertIn("off the list", self.problems(SMALL, large={"src/a.h": {"Small": "why"}})[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
