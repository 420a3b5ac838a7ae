#!/usr/bin/env python3
"""The parts of tools/gpu_quarter.sh: the runs on the device, and the results expected of them.

  gpu_quarter.py expect TREE             digests of the emulator's logits, to TREE/expected.json
  gpu_quarter.py run TREE OUT SECONDS    all parts in order, with the programs in TREE: a line of
                                         JSON to OUT/results.jsonl after every fact
  gpu_quarter.py table RESULTS [DOC]     the results as a table, printed or put into a document

A part that fails, or that the time left is too short for, is told of, and the next one begins.
"""

import array
import concurrent.futures
import csv
import hashlib
import http.client
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import typing

BACKEND = os.environ.get("BACKEND", "cuda")
REHEARSAL = BACKEND != "cuda"  # shapes that the emulator can compute
# Metrics of Nsight Compute, and their names in results.
METRICS = {"gpu__time_duration.sum": "us",
           "dram__bytes.sum": "bytes",
           "dram__throughput.avg.pct_of_peak_sustained_elapsed": "of_dram",
           "l1tex__throughput.avg.pct_of_peak_sustained_elapsed": "of_l1",
           "sm__throughput.avg.pct_of_peak_sustained_elapsed": "of_sm",
           "sm__warps_active.avg.pct_of_peak_sustained_active": "warps"}
UNITS = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1, "us": 1, "msecond": 1e3, "ms": 1e3,
         "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
BEGIN, END = "<!-- gpu_quarter begins -->", "<!-- gpu_quarter ends -->"


class Model(typing.NamedTuple):
    name: str
    shape: str
    kind: str
    more: tuple = ()


BIG = Model("8B", "llama-8b", "Q4_K_M", ("--context", "32768"))
MIDDLE = Model("1.5B", "qwen3-0.6b", "Q4_K_M",
               ("--embd", "1536", "--ffn", "8960", "--heads", "12", "--kv-heads", "2"))
TINY = Model("tiny", "tiny-qwen3", "Q4_K")


# --- bits ---------------------------------------------------------------------------------------
class Case(typing.NamedTuple):
    """Logits to compare: model, KV type, chunk sizes, number of tokens."""
    model: Model
    kv: str
    chunks: str
    n_tokens: int = 48

    @property
    def name(self):
        return f"{self.model.name}.{self.model.kind}.{self.kv}.{self.chunks.replace(',', '_')}"


def small(shape, kind):
    return Model(shape, shape, kind)


def cases():
    # Every kind of block, of weights, of keys and values.
    for shape in ["tiny-llama", "tiny-gemma3", "tiny-moe", "tiny-lfm2", "tiny-qwen35",
                  "tiny-mamba2", "tiny-granitehybrid"]:
        yield Case(small(shape, "Q8_0"), "f16", "48")
        yield Case(small(shape, "F32"), "f32", "7,1,40")
    for kind in ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
                 "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]:
        yield Case(small("tiny-llama", kind), "f16", "1,32,15")
    for kv in ["f32", "bf16", "q8_0"]:
        yield Case(small("tiny-qwen3", "Q4_0"), kv, "1,47")
    # Several splits of attention, many rows, one after them, a window; a real model's widths.
    yield Case(small("tiny-llama", "Q4_K"), "f16", "512,1,20,67", 600)
    yield Case(small("tiny-gemma3", "Q4_0"), "q8_0", "300,1,33,66", 400)
    yield Case(BIG._replace(name="wide", more=("--layers", "1", "--vocab", "2048")), "f16",
               "1,32,8,7")


def summary_of(path, n_tokens):
    """A digest of each row of logits, and values here and there, to see how far others are."""
    data = pathlib.Path(path).read_bytes()
    row = len(data) // n_tokens
    values = array.array("f", data)
    return {"bytes": len(data), "some": [round(float(value), 6) for value in values[::997]],
            "rows": [hashlib.sha256(data[i * row:(i + 1) * row]).hexdigest()[:12]
                     for i in range(n_tokens)]}


# --- programs -----------------------------------------------------------------------------------
class Programs:
    """The packed programs, and the models that they make."""

    def __init__(self, tree, limited=True):
        self.tree = pathlib.Path(tree).absolute()
        self.limited = limited  # a program that takes too long is ended
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="gpu_quarter."))
        self.env = dict(os.environ)
        self.env["LD_LIBRARY_PATH"] = f"{self.tree}/lib:{self.env.get('LD_LIBRARY_PATH', '')}"
        self.lock = threading.Lock()
        self.locks = {}

    def weft(self, *arguments):
        return [str(self.tree / "weft"), *map(str, arguments)]

    def run(self, command, seconds, env=None):
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              timeout=seconds if self.limited else None,
                              env=self.env | (env or {}))
        if done.returncode != 0:
            said = (done.stderr + done.stdout)[-1200:]
            raise RuntimeError(f"{' '.join(command)[:200]} ended with {done.returncode}: {said}")
        return done.stdout

    def model(self, model):
        path = self.work / f"{model.shape}.{model.kind}{''.join(model.more)}.gguf"
        with self.lock:
            lock = self.locks.setdefault(path, threading.Lock())
        with lock:
            if not path.exists():
                part = path.with_suffix(".part")
                self.run([str(self.tree / "weft-make-model"), "--shape", model.shape, "--type",
                          model.kind, "--out", str(part), *model.more], 200)
                part.rename(path)
        return path

    def logits(self, case, backend, before=()):
        tokens = self.work / f"{case.n_tokens}.json"
        with self.lock:  # others may read it
            if not tokens.exists():
                # Ids of ordinary pieces, far from the controls.
                tokens.write_text(json.dumps([(7 * i * i + 300 + i) % 512
                                              for i in range(case.n_tokens)]))
        out = self.work / f"{case.name}.{threading.get_ident()}.f32"
        chunks = ["--chunk", case.chunks] if backend != "emu" else []
        self.run([*before, *self.weft("logits", "-m", self.model(case.model), "--tokens", tokens,
                                      "--backend", backend, "--kv", case.kv, "--out", out),
                  *chunks], 300)
        summary = summary_of(out, case.n_tokens)
        out.unlink()
        return summary


def expect(tree):
    # No device is waiting, and the emulator takes as long as the machine lets it.
    programs, todo = Programs(tree, limited=False), list(cases())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda case: programs.logits(case, "emu"), reversed(todo))
        expected = dict(zip([case.name for case in reversed(todo)], found))
    (programs.tree / "expected.json").write_text(json.dumps(expected))
    shutil.rmtree(programs.work)
    print(f"{len(expected)} cases of bits")


# --- the run ------------------------------------------------------------------------------------
class Run:
    def __init__(self, tree, out, seconds):
        self.programs = Programs(tree)
        self.tree = self.programs.tree
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.file = (self.out / "results.jsonl").open("w", encoding="utf-8")
        self.begin = time.time()
        self.end = self.begin + seconds
        self.lock = threading.Lock()
        self.n_failed = 0

    def fact(self, part, **what):
        line = json.dumps({"part": part, "at_s": round(time.time() - self.begin, 1), **what})
        with self.lock:
            self.n_failed += "failed" in what
            print(line[:400], flush=True)
            self.file.write(line + "\n")
            self.file.flush()
            os.fsync(self.file.fileno())

    def left(self):
        return self.end - time.time()

    def limit(self):
        return min(150, max(5, self.left() - 3))

    def attempt(self, part, seconds, fn, *arguments):
        if self.left() < seconds:
            self.fact(part, skipped=f"{self.left():.0f} s are left, it takes {seconds}")
            return
        begin = time.time()
        try:
            fn(part, *arguments)
        except Exception as error:  # whatever it is: the other parts are worth having
            self.fact(part, failed=str(error)[-1500:], took_s=round(time.time() - begin, 1))

    # --- does it load, are the bits right -----------------------------------------------------
    def device(self, part):
        self.fact(part, commit=(self.tree / "commit").read_text().strip())
        if not REHEARSAL:
            asked = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem"
            self.fact(part, card=self.ask_card(asked))
        lines = self.programs.run(self.programs.weft("devices", "--json"), 60).splitlines()
        found = [json.loads(line) for line in lines]
        self.fact(part, devices=[line for line in found if line["backend"] == BACKEND])

    def bits(self, part):
        expected = json.loads((self.tree / "expected.json").read_text())
        todo = [case for case in cases() if not REHEARSAL or case.kv == "f32"]
        with concurrent.futures.ThreadPoolExecutor(2 if REHEARSAL else 8) as pool:
            equal = sum(pool.map(lambda case: self.is_equal(part, case, expected), todo))
        self.fact(part, cases=len(todo), equal=equal)

    def is_equal(self, part, case, expected):
        try:
            got, want = self.programs.logits(case, BACKEND), expected[case.name]
        except Exception as error:
            self.fact(part, case=case.name, failed=str(error)[-600:])
            return False
        differ = [i for i, pair in enumerate(zip(got["rows"], want["rows"])) if len(set(pair)) > 1]
        if not differ and got["bytes"] == want["bytes"]:
            return True
        far = max((abs(a - b) for a, b in zip(got["some"], want["some"])), default=math.nan)
        self.fact(part, case=case.name, failed="other bits", rows=len(differ), first=differ[:5],
                  farthest=far)
        return False

    def sanitize(self, part, tool, shape):
        if REHEARSAL or not shutil.which("compute-sanitizer"):
            self.fact(part, tool=tool, skipped="there is no compute-sanitizer for this backend")
            return
        begin = time.time()
        # It prints its findings on stdout and then exits with 9.
        self.programs.logits(Case(small(shape, "Q4_K"), "f16", "20,1,3", 24), BACKEND,
                             ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9"])
        self.fact(part, tool=tool, shape=shape, clean=True, took_s=round(time.time() - begin, 1))

    def beside(self, part):
        """What needs no quiet machine, at once."""
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            jobs = [pool.submit(self.attempt, "bits", 30, self.bits)]
            if not REHEARSAL:
                jobs += [pool.submit(self.programs.model, model) for model in (BIG, MIDDLE)]
            for tool in ["memcheck", "racecheck", "initcheck"]:
                jobs += [pool.submit(self.attempt, "sanitizer", 60, self.sanitize, tool, shape)
                         for shape in ("tiny-moe", "tiny-qwen35")]
        for job in jobs:
            if job.exception() is not None:
                self.fact(part, failed=str(job.exception())[-600:])

    # --- rates --------------------------------------------------------------------------------
    def bench(self, part, model, *arguments):
        begin = time.time()
        text = self.programs.run(
            self.programs.weft("bench", "-m", self.programs.model(model), "--backend", BACKEND,
                               "--speculate", "off", "--json", *arguments), self.limit())
        kept = ("work", "sessions", "depth", "prompt_tokens", "tokens_per_s", "limit",
                "limit_share", "bytes", "host_us_per_step")
        for line in text.splitlines():
            got = json.loads(line) if line.startswith("{") else {}
            if "work" in got:
                self.fact(part, engine="weft", model=model.name,
                          **{key: got[key] for key in kept if key in got})
        self.fact(part, model=model.name, command_s=round(time.time() - begin, 1))

    def decode(self, part, model, depth, sessions):
        self.bench(part, model, "--prompt", 0, "--sessions", sessions, "--depth", depth,
                   "--decode", 3 if REHEARSAL else 64, "--repeat", 1)

    def prompt(self, part, model, tokens):
        self.bench(part, model, "--prompt", tokens, "--sessions", 1, "--decode", 0, "--repeat",
                   1 if tokens > 1000 or REHEARSAL else 3)

    # The same work, by the packed programs of llama.cpp.
    def peer(self, part, program, model, arguments):
        if not (self.tree / "peer" / program).exists():
            self.fact(part, skipped=f"no {program} is packed")
            return
        env = {"LD_LIBRARY_PATH": f"{self.tree}/peer:{cuda_libraries()}"}
        command = [str(self.tree / "peer" / program), "-m", str(self.programs.model(model)),
                   "-ngl", "99", *arguments]
        for line in self.programs.run(command, self.limit(), env).splitlines():
            got = json.loads(line) if line.startswith("{") else {}
            if got.get("n_prompt"):
                self.fact(part, engine="llama.cpp", model=model.name, work="prompt",
                          prompt_tokens=got["n_prompt"], tokens_per_s=got["avg_ts"],
                          build=got.get("build_number"))
            elif got.get("tg"):
                self.fact(part, engine="llama.cpp", model=model.name, work="decode",
                          sessions=got["pl"], depth=got["pp"], tokens_per_s=got["speed_tg"])

    def peer_decode(self, part, model, depth, sessions):
        most = max(map(int, sessions.split(",")))
        self.peer(part, "llama-batched-bench", model,
                  ["-fa", "on", "-c", str(most * (depth + 80)), "-npp", str(depth), "-ntg", "64",
                   "-npl", sessions, "-b", "2048", "-ub", "512", "--output-format", "jsonl"])

    def peer_prompt(self, part, model, tokens):
        self.peer(part, "llama-bench", model,
                  ["-fa", "1", "-o", "jsonl", "-r", "2", "-p", str(tokens), "-n", "0"])

    # --- counters -----------------------------------------------------------------------------
    # Launches `skip` and the 60 after it of one measurement, each launched by itself.
    def counters(self, part, model, skip, *arguments):
        if REHEARSAL or not shutil.which("ncu"):
            self.fact(part, skipped="there is no ncu for this backend")
            return
        text = self.programs.run(
            ["ncu", "--csv", "--page", "raw", "--clock-control", "none", "--launch-skip", str(skip),
             "--launch-count", "60", "--metrics", ",".join(METRICS),
             *self.programs.weft("bench", "-m", self.programs.model(model), "--backend", BACKEND,
                                 "--speculate", "off", "--repeat", 1, "--json", *arguments)],
            self.limit(), {"WEFT_CUDA_GRAPHS": "off"})
        for line in kernels_of(text):
            self.fact(part, model=model.name, work=" ".join(map(str, arguments)), **line)

    # --- a server -----------------------------------------------------------------------------
    def ask_card(self, what):
        if REHEARSAL:
            return None
        return self.programs.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"],
                                 30).strip()

    # Each of n conversations alone, then all together; and the card's memory meanwhile.
    def neighbours(self, part, model, n):
        path, log = self.programs.model(model), self.out / "serve.log"
        before = self.ask_card("memory.used")
        with log.open("w") as output:
            server = subprocess.Popen(
                self.programs.weft("serve", "-m", path, "--backend", BACKEND, "--port", 0),
                stdout=output, stderr=subprocess.STDOUT, env=self.programs.env)
        try:
            port = port_of(log, 60)
            loaded = self.ask_card("memory.used")
            self.fact("memory", model=model.name, before=before, loaded=loaded)
            alone = [answer(port, i) for i in range(n)]
            with concurrent.futures.ThreadPoolExecutor(n) as pool:
                together = list(pool.map(lambda i: answer(port, i), range(n)))
            equal = sum(a == b for a, b in zip(alone, together))
            failed = {} if equal == n else {"failed": "neighbours change answers"}
            self.fact(part, model=model.name, sessions=n, equal=equal, **failed)
            self.fact("memory", model=model.name, sessions=n, used=self.ask_card("memory.used"))
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def port_of(log, seconds):
    for _ in range(seconds * 5):
        found = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
        if found:
            return int(found.group(1))
        time.sleep(0.2)
    raise RuntimeError(f"the server does not say where it listens: {log.read_text()[-500:]}")


def answer(port, i):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    body = {"prompt": f"{i} " + "word " * (10 + 7 * i), "max_tokens": 24, "seed": i,
            "temperature": i % 2}
    connection.request("POST", "/v1/completions", json.dumps(body),
                       {"Content-Type": "application/json"})
    return json.loads(connection.getresponse().read())["choices"][0]["text"]


def cuda_libraries():
    """The folders of the toolkit's libraries, which the peer's programs are linked with."""
    roots = ["/usr/local", *sys.path]
    found = [path.parent for root in roots for pattern in ("cuda*/lib64", "cuda*/targets/*/lib",
                                                           "nvidia/cu*/lib")
             for path in pathlib.Path(root).glob(f"{pattern}/libcublas.so*")]
    return ":".join(dict.fromkeys(map(str, found)))


def kernels_of(text):
    """A line for each kernel and grid in ncu's CSV, the longest first; means over its launches."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    if not rows:
        raise RuntimeError(f"ncu counted no kernel: {text[-500:]}")
    units = rows[0] if not rows[0].get("ID") else {}
    launches = {}
    for row in rows:
        if row.get("ID"):
            key = (row["Kernel Name"].split("(")[0], row.get("Grid Size", ""))
            launches.setdefault(key, []).append(row)

    def mean(its, metric):
        scale = UNITS.get(units.get(metric, ""), 1)
        values = [float((row.get(metric) or "0").replace(",", "")) for row in its]
        return scale * sum(values) / len(values)

    result = [{"kernel": name, "grid": grid, "launches": len(its),
               **{word: round(mean(its, metric), 2) for metric, word in METRICS.items()}}
              for (name, grid), its in launches.items()]
    return sorted(result, key=lambda line: -line["us"] * line["launches"])


def parts_of(run):
    """Name, seconds that it takes at least, what to call and with what."""
    if REHEARSAL:
        yield "decode", 10, run.decode, TINY, 16, "1,4"
        yield "prompt", 10, run.prompt, TINY, 32
        yield "peer", 5, run.peer_decode, TINY, 16, "1,4"
        yield "counters", 5, run.counters, TINY, 0, "--prompt", 32
        yield "neighbours", 10, run.neighbours, TINY, 4
        return
    for model in (BIG, MIDDLE):
        yield f"decode-{model.name}", 20, run.decode, model, 512, "1,8,32"
        yield f"decode-{model.name}", 20, run.peer_decode, model, 512, "1,8,32"
        for tokens in (512, 8192):
            yield f"prompt-{model.name}", 15, run.prompt, model, tokens
            yield f"prompt-{model.name}", 15, run.peer_prompt, model, tokens
    yield "neighbours", 30, run.neighbours, MIDDLE, 32
    yield "counters", 25, run.counters, BIG, 3000, "--prompt", 0, "--sessions", 1, "--depth", 512
    yield "counters", 25, run.counters, BIG, 4000, "--prompt", 0, "--sessions", 32, "--depth", 64
    yield "counters", 25, run.counters, BIG, 60, "--prompt", 512, "--sessions", 1, "--decode", 0
    for model, sessions in ((MIDDLE, "1,32"), (BIG, "1,8"), (BIG, "32")):
        yield f"long-{model.name}", 40, run.decode, model, 4096, sessions
        yield f"long-{model.name}", 40, run.peer_decode, model, 4096, sessions


def run_all(tree, out, seconds):
    run = Run(tree, out, seconds)
    wanted = os.environ.get("PARTS", "").split()
    run.attempt("device", 5, run.device)
    run.attempt("beside", 10, run.beside)
    for name, takes, fn, *arguments in parts_of(run):
        if not wanted or name in wanted:
            run.attempt(name, takes, fn, *arguments)
    run.fact("end", n_failed=run.n_failed)
    shutil.rmtree(run.programs.work)
    sys.exit(1 if run.n_failed > 0 else 0)


# --- the table ----------------------------------------------------------------------------------
def table_of(path):
    facts = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    rates = {}
    for fact in facts:
        if "engine" in fact:
            what = (f"conversations after {fact['depth']:,} tokens: {fact['sessions']}"
                    if fact["work"] == "decode" else f"a prompt of {fact['prompt_tokens']:,}")
            rates.setdefault((fact["model"], what), {})[fact["engine"]] = fact["tokens_per_s"]
    card = next((fact["card"].split(",")[0] for fact in facts if "card" in fact), BACKEND)
    bits = next((fact for fact in facts if fact["part"] == "bits" and "cases" in fact), None)
    has_peer = any("llama.cpp" in rate for rate in rates.values())
    lines = []
    if bits:
        lines += [f"{bits['equal']} of {bits['cases']} models have the emulator's logits, bit for "
                  "bit.", ""]
    lines += [f"| {card} | Weft, tok/s |" + (" llama.cpp | ratio |" if has_peer else ""),
              "|---|---|" + ("---|---|" if has_peer else "")]
    for (model, what), rate in rates.items():
        mine, its = rate.get("weft"), rate.get("llama.cpp")
        line = f"| {model}, {what} | {mine:,.0f} |" if mine else f"| {model}, {what} | |"
        if has_peer:
            line += f" {its:,.0f} | {mine / its:.2f} |" if mine and its else " | |"
        lines.append(line)
    return "\n".join(lines)


def put_table(results, document=None):
    table = table_of(results)
    if document is None:
        print(table)
        return
    path = pathlib.Path(document)
    before, _, rest = path.read_text().partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        sys.exit(f"gpu_quarter: {document} has no lines {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


def main():
    command, arguments = sys.argv[1:2], sys.argv[2:]
    if command == ["expect"] and len(arguments) == 1:
        expect(*arguments)
    elif command == ["run"] and len(arguments) == 3:
        run_all(arguments[0], arguments[1], float(arguments[2]))
    elif command == ["table"] and 1 <= len(arguments) <= 2:
        put_table(*arguments)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
