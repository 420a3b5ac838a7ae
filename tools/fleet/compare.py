"""The same trace on real and on simulated workers behind SMG, and SMG with many simulated ones."""

import contextlib
import json
import pathlib
import shlex
import sys

from fleet import processes
from fleet.drive import drive
from fleet.step_times import Profile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from serving import Report, status_of  # noqa: E402


@contextlib.contextmanager
def workers(kind, options):
    """The gRPC ports."""
    if kind == "simulated":
        with processes.simulated(options.workers, options, True) as ports:
            yield ports
        return
    with contextlib.ExitStack() as end:
        yield [end.enter_context(processes.weft(options))[1] for _ in range(options.workers)]


def tell_errors(done, log):
    for error, n in done.errors().most_common(3):
        log(f"{n} times: {error}")
    return done.errors().total()


def save_records(done, kind, folder):
    """For who asks why two runs differ."""
    lines = [json.dumps(vars(record)) for record in done.records]
    pathlib.Path(folder, f"{kind}.jsonl").write_text("\n".join(lines) + "\n")


def compare(options, log):
    profile = Profile.load(options.profile)
    kinds = options.kinds_of_workers.split(",")
    columns, n_errors = {}, 0
    for kind in kinds:
        log(f"{options.workers} {kind} workers")
        with workers(kind, options) as ports, \
                processes.smg(options.smg, ports, shlex.split(options.smg_flags)) as (url, _):
            done = drive(url, profile, options)
        columns[kind] = done.figures()
        n_errors += tell_errors(done, log)
        if options.records:
            save_records(done, kind, options.records)
    report = Report(options.out)
    names = list(columns[kinds[0]])
    report.table(f"{options.workers} workers, {options.conversations} conversations", kinds,
                 [(name, [columns[kind][name] for kind in kinds]) for name in names])
    return 1 if n_errors else 0


def register(options, log):
    profile = Profile.load(options.profile)
    with processes.simulated(options.n, options, False) as ports:
        log(f"{len(ports)} simulated workers")
        with processes.smg(options.smg, ports, shlex.split(options.smg_flags)) as (url, seconds):
            log(f"registered after {seconds:.1f} s")
            done = drive(url, profile, options)
    rows = {"registered after, s": f"{seconds:.1f}", **done.figures()}
    n_errors = tell_errors(done, log)
    Report(options.out).table(f"{options.n} simulated workers", ["SMG"],
                              [(name, [value]) for name, value in rows.items()])
    return 1 if n_errors else 0
