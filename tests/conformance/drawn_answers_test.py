#!/usr/bin/env python3
"""Answers that a model of random weights makes under schemas of the world (MaskBench's) are valid, as
another program sees it: the package `jsonschema`, installed once into $WEFT_PYTHON_DIR.

Exit code 77, a skip, without the reference data ($WEFT_GOLDENS, else ../shared/goldens beside the
project), zstd to unpack it, or the package. $WEFT_ANSWERS is how many answers are made in all,
$WEFT_SEED which: of other schemas, and with other draws."""

import decimal
import fractions
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from python_packages import SKIP, install  # noqa: E402

WEFT, MAKE_MODEL = os.environ["WEFT"], os.environ["WEFT_MAKE_MODEL"]
GOLDENS = os.environ.get("WEFT_GOLDENS") or HERE.parents[1] / "../shared/goldens"
SCHEMAS = pathlib.Path(GOLDENS) / "schemas/maskbench.jsonl.zst"
ANSWERS = int(os.environ.get("WEFT_ANSWERS", "600"))
SEED = int(os.environ.get("WEFT_SEED", "0"))
EACH = 10  # of a schema
TOKENS = 250
REFUSED = 3


def schemas():
    lines = subprocess.run(["zstd", "-dc", str(SCHEMAS)], capture_output=True, check=True).stdout
    lines = lines.decode().rstrip("\n").split("\n")
    # Spread over all of them.
    step = max(1, len(lines) // max(1, -(-ANSWERS // EACH)))
    for line in lines[SEED % step::step]:
        yield json.loads(line)


class Begun:
    """Whether a text is the beginning of a JSON value: it can be completed."""

    def __init__(self, text):
        self.text, self.closes = text, []
        in_string = escaped = False
        for c in text:
            if in_string:
                in_string, escaped = escaped or c != '"', not escaped and c == "\\"
            elif c == '"':
                in_string = True
            elif c in "[{":
                self.closes.append("]" if c == "[" else "}")
            elif c in "]}":
                if not self.closes or self.closes.pop() != c:
                    self.closes = None
                    break
        self.in_string = in_string

    def is_json(self):
        if self.closes is None:
            return False
        ends = "".join(reversed(self.closes))
        middles = ["", "null", '"":null', '":null', ":null", "0", "rue", "ue", "e", "alse", "lse", "se",
                   "ull", "ll", "l", '"', '":0']
        texts = [self.text]
        if self.in_string:
            cut = self.text.rfind("\\")
            texts = [self.text + end for end in ('"', '\\"', '0"', '00"', '000"', '0000"')]
            if cut >= len(self.text) - 12:  # half an escape
                texts.append(self.text[:cut] + '"')
        for text in texts:
            for middle in middles:
                try:
                    json.loads(text + middle + ends)
                    return True
                except ValueError:
                    pass
        return False


# What classes mean in ECMA-262, where Python's own differ.
SPACES = "\\t-\\r \\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff"
NO_SPACES = ("\\x00-\\x08\\x0e-\\x1f!-\\x9f\\xa1-\\u167f\\u1681-\\u1fff\\u200b-\\u2027\\u202a-\\u202e"
             "\\u2030-\\u205e\\u2060-\\u2fff\\u3001-\\ufefe\\uff00-\\U0010ffff")
CLASSES = {"s": SPACES, "S": NO_SPACES, "d": "0-9", "D": "\\x00-/:-\\U0010ffff",
           "w": "0-9A-Za-z_", "W": "\\x00-/:-@\\[-^`{-\\U0010ffff"}


def for_python(pattern):
    """A pattern of ECMA-262 as Python's re reads it."""
    out, in_class, at = "", False, 0
    while at < len(pattern):
        piece = pattern[at:at + 2] if pattern[at] == "\\" else pattern[at]
        at += len(piece)
        if piece[0] == "\\" and piece[1:] in CLASSES:
            members = CLASSES[piece[1:]]
            piece = members if in_class else f"[{members}]"
        elif piece == "$" and not in_class:
            piece = "\\Z"  # Python's $ also stands before a line end
        elif piece in "[]":
            in_class = piece == "["
        out += piece
    return out


def with_patterns_for_python(schema):
    if isinstance(schema, list):
        return [with_patterns_for_python(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key == "pattern" and isinstance(value, str):
            value = for_python(value)
        elif key == "patternProperties" and isinstance(value, dict):
            value = {for_python(name): with_patterns_for_python(one) for name, one in value.items()}
        elif key not in ("enum", "const"):
            value = with_patterns_for_python(value)
        out[key] = value
    return out


class Written(float):
    """A float that knows the number that was written."""

    def __new__(cls, number):
        self = super().__new__(cls, number)
        self.number = number
        return self


def fraction_of(number):
    return fractions.Fraction(number.number if isinstance(number, Written) else repr(number))


def exact(text):
    """A number with a fraction or an exponent. Large whole numbers stay ints: as a float, one of
    100 digits would become another number with other divisors."""
    try:
        number = decimal.Decimal(text)
    except decimal.InvalidOperation:  # an exponent of too many digits
        return float(text)
    if 15 < number.adjusted() < 10_000:
        whole = int(number)  # exact: only digits after the decimal point are lost
        if decimal.Decimal(whole) == number:
            return whole
    return Written(number) if abs(number.adjusted()) < 10_000 else float(text)


def main():
    if not SCHEMAS.exists():
        print("SKIPPED: no reference data: set WEFT_GOLDENS to the goldens' folder")
        return SKIP
    if shutil.which("zstd") is None:
        print("SKIPPED: no zstd to unpack the schemas")
        return SKIP
    if not install(HERE / "jsonschema_requirements.txt", os.environ["WEFT_PYTHON_DIR"]):
        return SKIP
    import jsonschema

    def multiple_of(validator, divisor, number, _):
        """Of the numbers as they are written: 8.03 is a multiple of 0.01, though no float's."""
        if validator.is_type(number, "number") and fraction_of(number) % fraction_of(divisor) != 0:
            yield jsonschema.ValidationError(f"{number!r} is not a multiple of {divisor!r}")

    whole = cut = refused = 0
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        model, path = f"{folder}/m.gguf", pathlib.Path(folder) / "schema.json"
        subprocess.run([MAKE_MODEL, "--shape", "tiny-llama", "--type", "Q8_0", "--out", model],
                       check=True, stdout=subprocess.DEVNULL)
        for case in schemas():
            path.write_text(json.dumps(case["schema"]))
            done = subprocess.run(
                [WEFT, "constrain", "-m", model, "--json-schema", str(path), "--generate", str(EACH),
                 "--temp", "1", "-n", str(TOKENS), "--seed", str(SEED * EACH)],
                capture_output=True, timeout=300)
            if done.returncode == REFUSED:
                refused += 1
                continue
            if done.returncode != 0:
                wrong.append((case["name"], done.stderr.decode()[-300:]))
                continue
            kind = jsonschema.validators.extend(
                jsonschema.validators.validator_for(case["schema"]), {"multipleOf": multiple_of})
            validator = kind(with_patterns_for_python(case["schema"]))
            # splitlines() would also cut at U+2028 and its kin, which stand in strings as they are.
            for line in done.stdout.decode().rstrip("\n").split("\n"):
                answer = json.loads(line)
                if answer["finish_reason"] != "stop":
                    cut += 1
                    if not Begun(answer["text"]).is_json():
                        wrong.append((case["name"], "no beginning of JSON: " + answer["text"][-120:]))
                    continue
                whole += 1
                try:
                    read = json.loads(answer["text"], parse_float=exact)
                    error = next(validator.iter_errors(read), None)
                except ValueError as no_json:
                    error = no_json
                if error is not None:
                    wrong.append((case["name"], f"{answer['text'][:200]}: {str(error)[:200]}"))
    print(f"{whole} answers are whole, {cut} were cut; {refused} schemas were refused")
    for name, why in wrong[:20]:
        print(f"WRONG {name}: {why}")
    return 1 if wrong or whole == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
