"""Running the built binaries: $WEFT and $WEFT_MAKE_MODEL.

$WEFT_COMPUTE has flags for every command that computes and does not choose a backend itself:
WEFT_COMPUTE="--backend emu" runs a test on the emulator. The default model is the built-in one,
and what a user's commands remember and cache is in a folder of the test's own.
"""

import atexit
import fcntl
import json
import os
import pathlib
import pty
import select
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

WEFT = os.environ.get("WEFT", "build/release/weft")
MAKE_MODEL = os.environ.get("WEFT_MAKE_MODEL", "build/release/weft-make-model")
COMPUTE = shlex.split(os.environ.get("WEFT_COMPUTE", ""))
BACKEND = COMPUTE[COMPUTE.index("--backend") + 1] if "--backend" in COMPUTE else "cpu"
COMPUTING = ["run", "chat", "serve", "worker", "logits", "score", "embed", "bench", "constrain"]
TIMEOUT_S = 120 if not COMPUTE else 600


os.environ["WEFT_MODEL"] = "box"
for kept in ("XDG_STATE_HOME", "WEFT_CACHE"):
    os.environ[kept] = tempfile.mkdtemp(prefix="weft_state_")
    atexit.register(shutil.rmtree, os.environ[kept], ignore_errors=True)


class Result:
    def __init__(self, args, done):
        self.command = "weft " + " ".join(map(str, args))
        self.code = done.returncode
        self.out = done.stdout
        self.err = done.stderr.decode("utf-8", "replace")

    @property
    def text(self):
        return self.out.decode("utf-8")

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def json_lines(self):
        return [json.loads(line) for line in self.text.splitlines()]

    def __str__(self):
        return f"$ {self.command}\nexit {self.code}\nstdout: {self.out[:2000]!r}\nstderr: {self.err[:2000]}"


def command_line(*args):
    """What runs the binary, with the flags of $WEFT_COMPUTE where they belong."""
    args = [str(arg) for arg in args]
    if COMPUTE and args and args[0] in COMPUTING and "--backend" not in args:
        args[1:1] = COMPUTE
    return [WEFT, *args]


def weft(*args, stdin=b"", env=None):
    """Runs the binary; a string on stdin is sent as UTF-8."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    done = subprocess.run(command_line(*args), input=stdin, capture_output=True,
                          timeout=TIMEOUT_S, env={**os.environ, **(env or {})})
    return Result(args, done)


class Terminal:
    """A command of the binary at a pseudo terminal, 80 columns wide unless told otherwise."""

    def __init__(self, *args, columns=80):
        self.process, self.fd = pty.fork()
        if self.process == 0:
            # Before the program can ask.
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.environ.update(TERM="xterm", LC_ALL="C.UTF-8")
            os.execv(WEFT, command_line(*args))
        self.output = b""

    def type(self, text):
        os.write(self.fd, text.encode())

    def expect(self, text, what=""):
        """Waits until the text comes; returns and forgets everything up to it."""
        deadline = time.monotonic() + TIMEOUT_S
        wanted = text.encode()
        while wanted not in self.output:
            if not select.select([self.fd], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"{text!r} did not come {what}: {self.output[-2000:]!r}")
            try:
                read = os.read(self.fd, 65536)
            except OSError:  # how a terminal ends
                read = b""
            if not read:
                raise AssertionError(f"it ended before {text!r}: {self.output[-2000:]!r}")
            self.output += read
        before, _, self.output = self.output.partition(wanted)
        return (before + wanted).decode("utf-8", "replace")

    def end(self):
        """The exit code, once the process has ended by itself."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                if select.select([self.fd], [], [], 0.05)[0]:
                    self.output += os.read(self.fd, 65536)
            except OSError:
                pass
            pid, status = os.waitpid(self.process, os.WNOHANG)
            if pid:
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.process, signal.SIGKILL)
        raise AssertionError(f"it does not end: {self.output[-2000:]!r}")


def resident_kib(process):
    return _kib(process, "VmRSS")


def peak_kib(process):
    """The most that the process had in memory; where nobody knows, what it has."""
    return _kib(process, "VmHWM")


def thread_count(process):
    status = _status(process)
    if status is not None:
        return int(status["Threads"])
    listed = subprocess.run(["ps", "-M", "-p", str(process.pid)], capture_output=True, check=True)
    return len(listed.stdout.splitlines()) - 1


def descriptor_count(process):
    folder = f"/proc/{process.pid}/fd"
    if os.path.isdir(folder):
        return len(os.listdir(folder))
    listed = subprocess.run(["lsof", "-p", str(process.pid)], capture_output=True, check=True)
    return len(listed.stdout.splitlines()) - 1


def _status(process):
    """What Linux says of a process; None elsewhere."""
    path = pathlib.Path(f"/proc/{process.pid}/status")
    if not path.exists():
        return None
    return dict(line.split(":", 1) for line in path.read_text().splitlines())


def _kib(process, name):
    status = _status(process)
    if status is not None:
        return int(status[name].split()[0])
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(process.pid)], capture_output=True,
                           check=True)
    return int(shown.stdout)


def make_model(path, shape="tiny-llama", kind="F32", *options):
    subprocess.run([MAKE_MODEL, "--shape", shape, "--type", kind, "--out", str(path),
                    *map(str, options)], check=True, capture_output=True, timeout=TIMEOUT_S)
    return pathlib.Path(path)


def add_metadata(path, values, out):
    """A copy of a model file with more metadata: floats, whole numbers, truth values and texts by
    key. What has a key of these already gets another."""
    data = pathlib.Path(path).read_bytes()
    for key in values:
        data = data.replace(key.encode(), key.encode()[:-1] + b"_", 1)

    def text(value):
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw

    def pair(key, value):
        kind, raw = {float: (6, lambda: struct.pack("<f", value)),
                     int: (5, lambda: struct.pack("<i", value)),
                     bool: (7, lambda: struct.pack("<B", value)),
                     str: (8, lambda: text(value))}[type(value)]
        return text(key) + struct.pack("<I", kind) + raw()

    added = b"".join(pair(key, value) for key, value in values.items())
    # The data of tensors stays aligned where the head grows by a multiple of 32.
    filler = pair("test.filler", "")
    added += pair("test.filler", "x" * (-(len(added) + len(filler)) % 32))
    count, = struct.unpack_from("<Q", data, 16)
    head = data[:16] + struct.pack("<Q", count + len(values) + 1)
    pathlib.Path(out).write_bytes(head + added + data[24:])
    return pathlib.Path(out)


def silence_layers(path, first, out):
    """A copy of an F32 model file whose layers from `first` on add nothing to what goes by."""
    data = bytearray(pathlib.Path(path).read_bytes())
    at = 24
    n_tensors, n_values = struct.unpack_from("<QQ", data, 8)

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return bytes(data[at - size:at]).decode()

    def skip_value(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            item, n = take("IQ")
            for _ in range(n):
                skip_value(item)
        else:
            at += {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}[kind]

    for _ in range(n_values):
        text()
        skip_value(take("I"))
    adds = []
    for _ in range(n_tensors):
        name = text().split(".")
        n_dims = take("I")
        n = 1
        for _ in range(n_dims):
            n *= take("Q")
        kind, offset = take("IQ")
        if name[0] == "blk" and int(name[1]) >= first and name[2] in ("attn_output", "ffn_down"):
            assert kind == 0, f"{name} is not F32"
            adds.append((offset, 4 * n))
    start = at + -at % 32
    assert adds, "no such layers"
    for offset, n_bytes in adds:
        data[start + offset:start + offset + n_bytes] = bytes(n_bytes)
    pathlib.Path(out).write_bytes(data)
    return pathlib.Path(out)


def read_floats(path):
    data = pathlib.Path(path).read_bytes()
    assert len(data) % 4 == 0, f"{path} has {len(data)} bytes"
    return struct.unpack(f"<{len(data) // 4}f", data)
