#!/usr/bin/env python3
"""What tools/gpu_hour.sh does with results: compares logits, checks lists, prints the table.

  gpu_hour_results.py has-device DEVICES.jsonl BACKEND     an error unless it is among them
  gpu_hour_results.py tokens MODEL N                       token ids that the model has, as JSON
  gpu_hour_results.py compare A.f32 B.f32 WORD...          one line of JSON: do their bits agree?
  gpu_hour_results.py all-equal BITS.jsonl                 an error unless they all did
  gpu_hour_results.py facts PART SHAPE TYPE MODEL          one line of JSON about what is measured
  gpu_hour_results.py kernels KERNELS.csv                  ncu's figures, a line per kernel
  gpu_hour_results.py table FOLDER PART...                 everything that there is
"""

import array
import csv
import hashlib
import json
import math
import pathlib
import statistics
import sys


def json_lines(path):
    path = pathlib.Path(path)
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


def has_device(devices, backend):
    found = [d for d in json_lines(devices) if d["backend"] == backend and "device" in d]
    if not found:
        sys.exit(f"the backend {backend} has no device here")


def tokens(model, count):
    # The same for every model: ids of ordinary pieces, far from the controls.
    del model
    print(json.dumps([(7 * i * i + 300 + i) % 512 for i in range(int(count))]))


def floats_of(path):
    values = array.array("f")
    values.frombytes(pathlib.Path(path).read_bytes())
    return values


def compare(path, other_path, *words):
    data, other = pathlib.Path(path).read_bytes(), pathlib.Path(other_path).read_bytes()
    line = {"what": " ".join(words), "equal": data == other, "values": len(data) // 4,
            "sha256": hashlib.sha256(data).hexdigest()[:16],
            "other_sha256": hashlib.sha256(other).hexdigest()[:16]}
    if len(data) == 0 or len(data) != len(other):
        line["equal"] = False
    elif not line["equal"]:
        mine, theirs = floats_of(path), floats_of(other_path)
        different = [i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b or math.isnan(a)]
        line["different"] = len(different)
        line["first"] = different[0] if different else None
        line["largest"] = max((abs(mine[i] - theirs[i]) for i in different), default=0)
    print(json.dumps(line))


def all_equal(path):
    lines = json_lines(path)
    wrong = [line["what"] for line in lines if not line["equal"]]
    if not lines or wrong:
        sys.exit(f"of {len(lines)} comparisons these differ: {', '.join(wrong) or 'there are none'}")


def facts(part, shape, kind, model):
    print(json.dumps({"part": part, "shape": shape, "type": kind,
                      "file_bytes": pathlib.Path(model).stat().st_size}))


def kernel_rows(path):
    """Name, microseconds, bytes, share of the memory's peak, of every launch."""
    lines = [line for line in pathlib.Path(path).read_text().splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(lines))
    units = rows[0] if rows and not rows[0].get("ID") else {}
    scale = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1, "us": 1, "msecond": 1e3, "ms": 1e3,
             "byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}

    def value(row, column):
        return float(row[column].replace(",", "")) * scale.get(units.get(column, ""), 1)

    for row in rows:
        if row.get("ID"):
            yield (row["Kernel Name"], value(row, "gpu__time_duration.sum"),
                   value(row, "dram__bytes.sum"),
                   value(row, "dram__throughput.avg.pct_of_peak_sustained_elapsed"))


def kernels(path):
    by_name = {}
    for name, microseconds, n_bytes, share in kernel_rows(path):
        by_name.setdefault(name.split("(")[0], []).append((microseconds, n_bytes, share))
    total = sum(launch[0] for launches in by_name.values() for launch in launches) or 1
    if not by_name:
        sys.exit("ncu counted no kernel")
    print(f"{'kernel':28} {'launches':>8} {'us each':>9} {'of time':>8} {'GB/s':>8} {'of peak':>8}")
    ordered = sorted(by_name.items(), key=lambda item: -sum(launch[0] for launch in item[1]))
    for name, launches in ordered:
        spent = sum(launch[0] for launch in launches)
        rate = sum(launch[1] for launch in launches) / spent / 1e3 if spent else 0
        print(f"{name:28} {len(launches):8} {spent / len(launches):9.2f} {spent / total:8.1%} "
              f"{rate:8.0f} {statistics.mean(launch[2] for launch in launches):7.1f}%")


def bench_rows(path):
    about, rows = {}, []
    for line in json_lines(path):
        if "part" in line:
            about = line
        elif line.get("work") == "decode":
            # Every step reads the weights once, whatever the number of sessions.
            per_session = line["tokens_per_s"] / line["sessions"]
            rows.append((about, f"decode, {line['sessions']} sessions", line,
                         per_session * about["file_bytes"] / 1e9))
        elif line.get("work") == "prompt":
            rows.append((about, f"prompt of {line['prompt_tokens']}", line, None))
    return rows


def part_state(folder, part):
    for ending in ["done", "failed"]:
        mark = folder / f"{part}.{ending}"
        if mark.exists():
            return f"{ending} after {mark.read_text().strip()}"
    return "not done"


def table(folder, *parts):
    folder = pathlib.Path(folder)
    for part in parts:
        print(f"{part:14} {part_state(folder, part)}")
    for line in json_lines(folder / "devices.jsonl"):
        if "device" in line:
            print(f"device         {line['backend']} {line['device']}: {line['name']}, "
                  f"{line['memory_bytes'] / 2**30:.1f} GiB")
    bits = json_lines(folder / "bits.jsonl")
    if bits:
        equal = sum(line["equal"] for line in bits)
        print(f"bits           {equal} of {len(bits)} models have the emulator's logits, bit for bit")
    for line in bits:
        if not line["equal"]:
            print(f"               {line['what']}: {line.get('different', '?')} values differ, "
                  f"by {line.get('largest', float('nan')):.3g} at most")
    for part in ["bench-0.6b", "bench-8b", "graphs-off"]:
        for about, what, line, gigabytes in bench_rows(folder / f"{part}.jsonl"):
            read = f" {gigabytes:8.1f} GB/s of weights" if gigabytes is not None else ""
            print(f"{part:14} {about['shape']} {about['type']:6} {what:22} "
                  f"{line['tokens_per_s']:10.1f} tok/s {line['limit_share']:7.1%} of the limit{read}")


def main():
    commands = {"has-device": has_device, "tokens": tokens, "compare": compare,
                "all-equal": all_equal, "facts": facts, "kernels": kernels, "table": table}
    if len(sys.argv) < 2 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
