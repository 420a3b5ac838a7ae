#!/usr/bin/env python3
"""What a server does with a bad disk: full, read-only, slow, full of strangers, or cut off.

    WEFT=build/release/weft tests/stress/disk_cases.py -m model.gguf [CASE ...]

Prints a JSON line per case, with "ok"; the exit code is 1 if one is not. Linux. Disks are mounted in
a namespace of their own, so nothing stays. The case kills takes --rounds, and --busy N keeps N
processes computing beside it.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from serve_test import Server  # noqa: E402
from weft_process import command_line, make_model  # noqa: E402

BAD_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Under $BAD_DIR, writes take $BAD_RATE bytes a second, and while $BAD_DIR.read_only exists no file
   can be opened for writing. */
static int is_bad(int fd) {
  char link[64], path[4096];
  const char* dir = getenv("BAD_DIR");
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  return dir && size > 0 && strncmp(path, dir, strlen(dir)) == 0;
}
ssize_t write(int fd, const void* from, size_t n) {
  static ssize_t (*real)(int, const void*, size_t);
  if (!real) real = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  if (getenv("BAD_RATE") && is_bad(fd)) usleep((useconds_t)(n * 1e6 / atof(getenv("BAD_RATE"))));
  return real(fd, from, n);
}
static int refused(int dir, int flags) {
  char flag[4096];
  if (!(flags & (O_WRONLY | O_RDWR)) || !is_bad(dir)) return 0;
  snprintf(flag, sizeof(flag), "%s.read_only", getenv("BAD_DIR"));
  if (access(flag, F_OK) != 0) return 0;
  errno = EROFS;
  return 1;
}
#define OPENAT(name)                                                             \
  int name(int dir, const char* path, int flags, ...) {                          \
    static int (*real)(int, const char*, int, ...);                              \
    if (!real) real = (int (*)(int, const char*, int, ...))dlsym(RTLD_NEXT, #name); \
    va_list list;                                                                \
    va_start(list, flags);                                                       \
    const mode_t mode = va_arg(list, mode_t);                                    \
    va_end(list);                                                                \
    return refused(dir, flags) ? -1 : real(dir, path, flags, mode);              \
  }
OPENAT(openat)
OPENAT(openat64)
"""


class Case:
    def __init__(self, model, folder, options):
        self.model = model
        self.folder = folder
        self.options = options
        self.wrong = []
        self.mounts = []

    def expect(self, condition, what):
        if not condition:
            self.wrong.append(what)

    def serve(self, state, *flags, env=None):
        return Server(self.model, "--state-dir", str(state), *flags, env=env)

    def mounted(self, name, size, *more):
        path = self.folder / name
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *more]), "none",
                        path], check=True)
        self.mounts.append(path)
        return path

    def end(self):
        for path in self.mounts:
            subprocess.run(["umount", path], check=True)

    def turn(self, server, session, words, n=4):
        started = time.monotonic()
        answer = server.complete(words, n, session_id=session)
        self.expect(answer.status == 200, f"{session}: {answer}")
        return answer, time.monotonic() - started

    @staticmethod
    def listed(server):
        return {s["id"]: s["tokens"] for s in server.ask("GET", "/v1/sessions").json["data"]}

    @staticmethod
    def health(server):
        return server.ask("GET", "/health").json

    def until(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                self.wrong.append(what)
                return
            time.sleep(0.05)

    @staticmethod
    def settled(server):
        return server.metric("weft_state_disk_pending") == 0

    def kill(self, server):
        server.process.kill()
        server.process.wait()

    def expect_told(self, server, session):
        health = self.health(server)
        self.expect(health["status"] == "degraded", f"/health says {health}")
        answer, _ = self.turn(server, session, "And then?")
        self.expect("X-Weft-Warning" in answer.headers, "no X-Weft-Warning")
        self.expect(server.metric("weft_sessions_unsaved") > 0, "no metric")
        told = [line for line in server.lines if f'"{session}" could not be saved' in line]
        self.expect(len(told) == 1, f"{len(told)} log lines for one session")

    # --- cases -----------------------------------------------------------------------------

    def full(self):
        """A full disk is told; once there is room, all is saved, and survives a kill."""
        disk = self.mounted("full", "8M")
        filler = disk / "filler"
        with self.serve(disk / "state") as server:
            server.ready()
            self.turn(server, "before", "Once upon a time.")
            self.until(lambda: self.settled(server), "it is never written")
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
            for i in range(8):
                self.turn(server, f"s{i}", f"Story {i} began.", 16)
            self.until(lambda: server.metric("weft_sessions_unsaved") > 0, "nothing is told")
            self.expect_told(server, "s0")
            filler.unlink()
            self.turn(server, "before", "There is room again.")
            self.until(lambda: self.health(server)["status"] == "ok", "it stays degraded")
            known = self.listed(server)
            self.kill(server)
        with self.serve(disk / "state") as server:
            server.ready()
            self.expect(self.listed(server) == known, f"{self.listed(server)} of {known}")

    def bad_disk(self, state, **settings):
        """The environment of a server whose state directory lies on a bad disk."""
        shim = self.folder / "bad_disk.so"
        if not shim.exists():
            source = shim.with_suffix(".c")
            source.write_text(BAD_DISK)
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"],
                           check=True)
        return {"LD_PRELOAD": str(shim), "BAD_DIR": str(state), **settings}

    def read_only(self):
        """A disk that becomes read-only is told, and a server does not start on one."""
        state = self.folder / "read_only"
        flag = self.folder / "read_only.read_only"
        env = self.bad_disk(state)
        with self.serve(state, env=env) as server:
            server.ready()
            self.turn(server, "s", "Once upon a time.")
            self.until(lambda: self.settled(server), "it is never written")
            flag.touch()
            self.turn(server, "s", "It went on.")
            self.until(lambda: server.metric("weft_sessions_unsaved") > 0, "nothing is told")
            self.expect_told(server, "s")
            flag.unlink()
            self.turn(server, "t", "It is back.")
            self.until(lambda: self.health(server)["status"] == "ok", "it stays degraded")
            known = self.listed(server)
            self.kill(server)
        disk = self.mounted("read_only_disk", "1M", "ro")
        done = subprocess.run(command_line("serve", "-m", self.model, "--port", "0", "--state-dir",
                                           str(disk / "new")), capture_output=True, text=True)
        self.expect(done.returncode != 0 and "ead-only" in done.stderr, done.stderr)
        with self.serve(state) as server:
            server.ready()
            self.expect(self.listed(server) == known, f"{self.listed(server)} of {known}")

    def slow(self):
        """At 20 KB/s nobody waits for blocks: neither answers nor the tokens of sessions."""
        times = {}
        for name, flags in (("plain", ()), ("durable", ("--durable",))):
            state = self.folder / f"slow_{name}"
            with self.serve(state, *flags, env=self.bad_disk(state, BAD_RATE="20000")) as server:
                server.ready()
                seconds = [self.turn(server, f"s{i % 4}", "It went on and on. " * 40)[1]
                           for i in range(12)]
                times[name] = {"p50_s": round(sorted(seconds)[6], 2),
                               "max_s": round(max(seconds), 2)}
                known = self.listed(server)
                self.kill(server)
            if flags:
                with self.serve(state) as server:
                    server.ready()
                    self.expect(self.listed(server) == known, f"{self.listed(server)} of {known}")
        # A piece of 16 KB that is being written, and the tokens themselves.
        self.expect(times["durable"]["max_s"] < times["plain"]["max_s"] + 4, "tokens wait for blocks")
        return times

    def links(self):
        """Links of the operator lead to his disk; a session's file is never followed."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        link = self.folder / "link"
        link.symlink_to(elsewhere)
        precious = self.folder / "precious"
        precious.write_text("precious")
        with self.serve(link) as server:
            server.ready()
            self.turn(server, "s", "Once upon a time.")
            self.until(lambda: self.settled(server), "it is never written")
            self.kill(server)
        files = list(elsewhere.glob("@*/s.session"))
        self.expect(len(files) == 1, "the link is not followed")
        for file in files:
            file.unlink()
            file.symlink_to(precious)
        dangling = self.folder / "dangling"
        dangling.symlink_to(self.folder / "nowhere")
        done = subprocess.run(command_line("serve", "-m", self.model, "--port", "0", "--state-dir",
                                           str(dangling)), capture_output=True, text=True)
        self.expect(done.returncode != 0 and "link" in done.stderr, done.stderr)
        with self.serve(link) as server:
            server.ready()
            server.complete("It went on.", session_id="s")
            self.turn(server, "t", "Another one.")
            self.until(lambda: self.settled(server), "it is never written")
        self.expect(precious.read_text() == "precious", "a session's file was followed")

    def strangers(self):
        """30,000 empty files in the state directory cost a start of under a second of computing."""
        seconds, computing = {}, {}
        for name, n in (("none", 0), ("sessions", 30000), ("blocks", 30000)):
            state = self.folder / f"strangers_{name}"
            with self.serve(state) as server:
                server.ready()
                self.turn(server, "s", "Once upon a time.")
                self.until(lambda: self.settled(server), "it is never written")
                self.expect(server.end() == 0, server.log)
            folders = {"sessions": [p.parent for p in state.glob("@*/s.session")],
                       "blocks": [p for p in state.glob("blocks/*") if p.is_dir()], "none": []}
            for folder in folders[name]:
                for i in range(n):
                    (folder / (f"e{i}.session" if name == "sessions" else f"{i:032x}")).touch()
            started = time.monotonic()
            with self.serve(state) as server:
                server.ready()
                seconds[name] = round(time.monotonic() - started, 2)
                stat = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().split()
                computing[name] = (int(stat[13]) + int(stat[14])) / os.sysconf("SC_CLK_TCK")
                self.expect(self.listed(server).get("s", 0) > 0, "the session is gone")
        self.expect(max(computing.values()) < 1, "the start takes too long")
        return {"start_s": seconds, "start_cpu_s": computing}

    def kills(self):
        """What /metrics says is on disk is warm after kill -9, whatever else the machine does."""
        state = self.folder / "kills"
        counts = {"rounds": 0, "sessions": 0, "cold_sessions": 0, "prompts": 0, "cold_prompts": 0,
                  "lost_turns": 0, "other_answers": 0}
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in range(self.options.busy)]
        flags = ["--memory", self.options.memory] + ["--durable"] * self.options.durable
        try:
            expected = {}
            for round_ in range(self.options.rounds):
                with self.serve(state, *flags) as server:
                    server.ready()
                    self.check_warm(server, expected, counts)
                    expected = self.traffic(server, round_)
                    self.kill(server)
                counts["rounds"] += 1
            with self.serve(state, *flags) as server:
                server.ready()
                self.check_warm(server, expected, counts)
        finally:
            for process in busy:
                process.kill()
                process.wait()
        for what in ("cold_sessions", "cold_prompts", "lost_turns", "other_answers"):
            self.expect(counts[what] == 0, f"{counts[what]} {what}")
        return counts

    def traffic(self, server, round_):
        """Turns of sessions and prompts that come twice; how many tokens each has, once written."""
        def client(i):
            name, story = f"k{round_}-{i}", f"Round {round_}, story {i}. " * (3 + i)
            said = self.turn(server, name, story)[0].json["content"]
            prompt = f"Prompt {i} of round {round_}. " * (12 + i)
            first = [server.complete(prompt).json for _ in range(2)]
            return name, [story + said, prompt, first[1]["content"]]

        with concurrent.futures.ThreadPoolExecutor(6) as clients:
            expected = dict(clients.map(client, range(12)))
        if self.options.after is None:
            self.until(lambda: self.settled(server), "it is never written", 300)
        else:
            time.sleep(self.options.after)
        known = self.listed(server)
        return {name: (known.get(name, 0), *rest) for name, rest in expected.items()}

    @staticmethod
    def check_warm(server, expected, counts):
        known = Case.listed(server)
        for name, (n_tokens, story, prompt, content) in expected.items():
            counts["sessions"] += 1
            counts["prompts"] += 1
            if known.get(name, 0) < n_tokens:
                counts["lost_turns"] += 1
            again = server.complete(prompt).json
            counts["cold_prompts"] += again["timings"]["cache_n"] == 0
            counts["other_answers"] += again["content"] != content
            on = server.complete(story + " And then?", session_id=name).json
            counts["cold_sessions"] += on["timings"]["cache_n"] == 0


CASES = ["full", "read_only", "slow", "links", "strangers", "kills"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", help="a model file (default: a tiny one)")
    parser.add_argument("--rounds", type=int, default=5, help="of the case kills")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    parser.add_argument("--after", type=float, metavar="SECONDS",
                        help="the case kills kills so long after the last answer (default: once "
                             "/metrics says that all is written)")
    parser.add_argument("--memory", default="auto", help="of the server in the case kills")
    parser.add_argument("--durable", action="store_true", help="the case kills with --durable")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=" ".join(CASES))
    options = parser.parse_args()
    for name in options.cases:
        if name not in CASES:
            parser.error(f"there is no case {name}: {' '.join(CASES)}")
    if "WEFT_OWN_MOUNTS" not in os.environ:
        os.environ["WEFT_OWN_MOUNTS"] = "1"
        own = ["unshare", "--mount"] + ([] if os.getuid() == 0 else ["--map-root-user"])
        if shutil.which(own[0]) is None or subprocess.run([*own, "true"]).returncode != 0:
            print("no disks can be mounted here", file=sys.stderr)
            return 77
        os.execvp(own[0], [*own, sys.executable, *sys.argv])
    all_ok = True
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = options.model
        if model is None:
            model = folder / "tiny.gguf"
            make_model(model)
        for name in options.cases or CASES:
            case = Case(model, folder, options)
            started = time.monotonic()
            try:
                details = getattr(case, name)() or {}
            except Exception as error:  # noqa: BLE001: a case that breaks is a result too
                details = {}
                case.wrong.append(repr(error)[:500])
            case.end()
            line = {"case": name, "ok": not case.wrong, "wrong": case.wrong[:8],
                    "seconds": round(time.monotonic() - started, 1), **details}
            print(json.dumps(line), flush=True)
            all_ok &= line["ok"]
    return 0 if all_ok else 1


if __name__ == "__main__":
    sys.exit(main())
