#!/usr/bin/env python3
"""Many workers on one machine: simulated ones behind a real gateway, and traces of agents.

  fleet_workers.py measure --out worker.json [-m MODEL]   measures one real worker
  fleet_workers.py run N --profile worker.json            N simulated workers in one process
  fleet_workers.py trace --profile worker.json --url URL  conversations of agents, by a seed
  fleet_workers.py compare --profile worker.json          real against simulated ones behind SMG
  fleet_workers.py register N --profile worker.json       how long SMG takes to know N of them

A simulated worker says over gRPC what `weft serve --grpc-port` says, with the real tokenizer. It
has a prefix cache of the real size and takes the measured times, but computes nothing: its answers
are words by a seed. Not simulated: speculative decoding, recurrent state, sessions on disk,
pictures, keys. Needs the packages grpcio and smg-grpc-proto, and for the last two SMG (pip install
smg), which has both.
"""

import argparse
import asyncio
import os
import pathlib
import resource
import shutil
import signal
import sys

SKIP = 77


def log(line):
    print(line, file=sys.stderr, flush=True)


async def run_workers(options):
    from fleet import simulated_worker
    from fleet.step_times import Profile
    profile = Profile.load(options.profile)
    if options.memory_tokens:
        profile.cache_tokens = options.memory_tokens
    if not options.one_machine:
        profile.together = [1.0]
    workers = await simulated_worker.start(profile, options.n, options.port, options.seed,
                                           options.one_machine)
    print("gRPC ports:", *workers, flush=True)
    stopped = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stopped.set)
    await stopped.wait()
    for port, worker in workers.items():
        virtual = worker.engine.virtual
        if virtual.requests:
            print(f"{port}: {virtual.requests} requests, {virtual.cached_tokens} prompt tokens "
                  f"cached, {virtual.prompt_tokens} computed, {virtual.generated} generated, "
                  f"{virtual.cache.evicted} pages evicted", flush=True)
    os._exit(0)  # to close a thousand servers one by one takes minutes


def parser():
    whole = argparse.ArgumentParser(description=__doc__,
                                    formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = whole.add_subparsers(dest="command", required=True)

    def command(name, what):
        added = commands.add_parser(name, help=what, description=what)
        added.add_argument("--seed", type=int, default=1)
        return added

    def starts_weft(added, threads=None, memory=None):
        added.add_argument("--weft", default="build/release/weft", help="the binary")
        added.add_argument("-m", "--model", help="its model (default: the one in the box)")
        own = "weft serve's own" if threads is None else "%(default)s"
        added.add_argument("--threads", type=int, default=threads, help=f"of a worker ({own})")
        added.add_argument("--memory", default=memory, help=f"of a worker's KV cache ({own})")
        added.add_argument("--serve-flags", default="", metavar="FLAGS",
                           help="more flags of weft serve, in one word")

    def starts_smg(added):
        added.add_argument("--smg", default=os.environ.get("WEFT_SMG") or shutil.which("smg"))
        added.add_argument("--smg-flags", default="--policy cache_aware", metavar="FLAGS")

    def has_memory(added):
        added.add_argument("--memory-tokens", type=int, metavar="TOKENS",
                           help="in the KV cache of a simulated worker (default: as measured)")

    def has_trace(added):
        added.add_argument("--conversations", type=int, default=20)
        added.add_argument("--kinds", type=int, default=4,
                           help="of agents, with a system prompt each")
        added.add_argument("--system-tokens", type=int, default=1500)
        added.add_argument("--turns", type=float, default=5, help="of a conversation, on average")
        added.add_argument("--result-tokens", type=int, default=150,
                           help="of a tool's result, on average")
        added.add_argument("--answer-tokens", type=int, default=40, help="on average")
        added.add_argument("--children", type=float, default=0.4,
                           help="share of conversations that branch off another one")
        added.add_argument("--every", type=float, default=1.0, metavar="SECONDS",
                           help="between two conversations that begin, on average")
        added.add_argument("--think", type=float, default=1.0, metavar="SECONDS",
                           help="of tools and people between two turns, on average")

    added = command("measure", "Measures one real worker.")
    starts_weft(added)
    added.add_argument("--url", help="a worker that runs, instead of one to start")
    added.add_argument("--grpc", type=int, help="its gRPC port on this machine")
    added.add_argument("--together", type=int, default=1, metavar="K",
                       help="measure how much slower up to K workers of this machine get")
    added.add_argument("--repeats", type=int, default=3)
    added.add_argument("--longest", type=int, default=4096, metavar="TOKENS",
                       help="prompt to measure")
    added.add_argument("--out", type=pathlib.Path, required=True)

    added = command("run", "Runs simulated workers until it is stopped.")
    added.add_argument("n", type=int, metavar="N")
    added.add_argument("--profile", required=True)
    added.add_argument("--port", type=int, default=0, help="of the first one (default: free ones)")
    has_memory(added)
    added.add_argument("--one-machine", action="store_true",
                       help="they slow each other down as measured with --together")

    added = command("trace", "Drives a gateway or a worker with conversations of agents.")
    added.add_argument("--profile", required=True, help="for its words")
    added.add_argument("--url", required=True)
    has_trace(added)

    added = command("compare", "The same trace on real and on simulated workers behind SMG.")
    added.add_argument("--profile", required=True, help="measured with --together and the same --threads and --memory")
    added.add_argument("--workers", type=int, default=3)
    has_memory(added)
    added.add_argument("--kinds-of-workers", default="real,simulated", help="which, in which order")
    added.add_argument("--out", help="append the table to this file")
    added.add_argument("--records", metavar="FOLDER", help="write each request of both there")
    starts_weft(added, threads=1, memory="300M")
    starts_smg(added)
    has_trace(added)

    added = command("register", "How long SMG takes to know N simulated workers, and a trace.")
    added.add_argument("n", type=int, metavar="N")
    has_memory(added)
    added.add_argument("--profile", required=True)
    added.add_argument("--out", help="append the table to this file")
    starts_smg(added)
    has_trace(added)
    return whole


def main():
    options = parser().parse_args()
    try:
        import grpc  # noqa: F401
        import smg_grpc_proto  # noqa: F401
    except ImportError as error:
        print(f"skipped: {error}; pip install grpcio smg-grpc-proto, or use the Python of SMG")
        return SKIP
    if options.command in ("compare", "register") and not options.smg:
        print("skipped: there is no smg; pip install smg, or say where it is with --smg")
        return SKIP
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.command != "run":
        # The child processes end with this program.
        signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))
    if options.command == "measure":
        if bool(options.url) != bool(options.grpc):
            sys.exit("measure: --url and --grpc name one worker: give both or neither")
        from fleet import measure
        measure.run(options, log)
    elif options.command == "run":
        asyncio.run(run_workers(options))
    elif options.command == "trace":
        from fleet import drive
        return drive.run(options)
    else:
        from fleet import compare
        return getattr(compare, options.command)(options, log)
    return 0


if __name__ == "__main__":
    sys.exit(main())
