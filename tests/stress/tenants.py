"""What doors.py and turns.py share: a server with two API keys, and how their cases are run."""
import json
import pathlib
import random
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import weft_process  # noqa: E402
from serve_test import Server  # noqa: E402

KEYS = {"a": "key-of-a-0123456789", "b": "key-of-b-0123456789"}
MAX_SECONDS = 1.0  # that B may wait beside A


def words(count, seed):
    return " ".join(random.Random(seed).choices("river lamp seven quiet table under".split(),
                                                k=count))


def serve(options, folder, *flags, with_keys=True):
    """A server that ends with its with block; not ready yet."""
    weft_process.WEFT = options.weft
    if with_keys:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("".join(f"{key} {name}\n" for name, key in KEYS.items()))
        keys.chmod(0o600)
        flags += ("--api-key-file", str(keys))
    return Server(options.model, *flags)


def run_cases(parser, options, known, run):
    """Prints a JSON line for each case of --case, from run(name, folder). The exit status: 1 if one
    does not hold."""
    names = options.case.split(",")
    for name in names:
        if name not in known:
            parser.error(f"no case is called {name}; there are {', '.join(known)}")
    held = True
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            result = run(name, folder)
        print(json.dumps({"case": name, **result}), flush=True)
        held = held and result["holds"]
    return 0 if held else 1
