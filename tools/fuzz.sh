#!/bin/sh
# Fuzzes every parser for a while, as many at a time as there are cores.
#
#   tools/fuzz.sh BUILD_DIR SECONDS
#
# BUILD_DIR is a tree of the preset `asan`. Seeds are in tests/fuzz/corpus/NAME; what
# is found new stays in BUILD_DIR/corpus/NAME, a failing input in BUILD_DIR/findings.
set -eu
dir=$1
seconds=$2
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$dir/findings" "$dir/logs"

run_one() {
  binary=$1
  name=$(basename "$binary")
  mkdir -p "$dir/corpus/$name"
  seeds=$root/tests/fuzz/corpus/$name
  [ -d "$seeds" ] || seeds=""
  # 1 GiB and 20 s are far more than any input of 64 KiB may cost.
  if "$binary" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=20 -max_len=65536 \
      -artifact_prefix="$dir/findings/$name-" -print_final_stats=1 \
      "$dir/corpus/$name" $seeds >"$dir/logs/$name.log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$dir/logs/$name.log")
    echo "fuzz: $name: ${runs:-?} inputs in $seconds s, nothing found"
  else
    tail -n 40 "$dir/logs/$name.log"
    echo "fuzz: $name FAILED; the input is in $dir/findings, all output in $dir/logs/$name.log"
    return 1
  fi
}

if [ "${3:-}" ]; then
  run_one "$3"
else
  xargs -n 1 -P "$(nproc)" "$0" "$dir" "$seconds" <"$dir/fuzzers.txt"
fi
