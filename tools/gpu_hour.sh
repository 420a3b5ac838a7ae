#!/bin/bash
# The first hour on a device: everything that only hardware can tell, in parts of ten minutes at
# most. A part that is done is not done again, so the hour may be broken off and gone on with.
#
#   tools/gpu_hour.sh                 all parts, in order; the table at the end
#   tools/gpu_hour.sh bits bench-8b   these parts, done or not
#   tools/gpu_hour.sh --list          the parts, and which are done
#
#   BACKEND   cuda; with emu everything runs here, without a device, to see that it does
#   SIZE      full; small: shapes and prompts that the emulator can do (the default with emu)
#   BUILD     where weft and its tests are built (build/release)
#   OUT       where results go (build/gpu_hour)
#   PART_S    seconds after which a part is broken off (600)
#
# Results are files in OUT: NN-PART.log what was said, *.jsonl what was measured. A part that
# fails or is broken off is told of and the next one goes on.
set -uo pipefail
cd "$(dirname "$0")/.."

BACKEND=${BACKEND:-cuda}
BUILD=${BUILD:-build/release}
OUT=${OUT:-build/gpu_hour}
PART_S=${PART_S:-600}
if [ "$BACKEND" = emu ]; then SIZE=${SIZE:-small}; else SIZE=${SIZE:-full}; fi
parts=(build device bits conformance memcheck races bench-0.6b bench-8b graphs-off kernels)

weft=$BUILD/weft
models=$OUT/models
mkdir -p "$OUT" "$models"
results() { python3 tools/gpu_hour_results.py "$@"; }

# A model with random weights: SHAPE TYPE. Prints its path.
model() {
  local file=$models/$1.$2.gguf
  if [ ! -s "$file" ]; then
    "$BUILD/weft-make-model" --shape "$1" --type "$2" --out "$file.part" >/dev/null &&
      mv "$file.part" "$file" || return 1
  fi
  echo "$file"
}

# What the machine is: card, driver, memory; and that the program sees it.
part_device() {
  if [ "$BACKEND" = cuda ]; then
    nvidia-smi || echo "nvidia-smi is not there"
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,clocks.max.mem \
      --format=csv 2>/dev/null
  fi
  "$weft" devices && "$weft" devices --json >"$OUT/devices.jsonl" || return 1
  results has-device "$OUT/devices.jsonl" "$BACKEND"
}

# The program with its kernels, and the tests of the next parts.
part_build() {
  local cuda=AUTO
  [ "$BACKEND" != cuda ] || cuda=ON
  if [ "${SKIP_BUILD:-}" = 1 ]; then return 0; fi
  cmake --preset release -DWEFT_CUDA=$cuda >/dev/null &&
    cmake --build "$BUILD" --target weft weft-make-model goldens_test same_bits_test
}

# SHAPE TYPE KV CHUNKS: the logits of both backends, byte by byte.
compare_bits() {
  local file tokens=$OUT/tokens.json here=$OUT/device.f32 there=$OUT/emulator.f32
  file=$(model "$1" "$2") || return 1
  results tokens "$file" 48 >"$tokens"
  "$weft" logits -m "$file" --tokens "$tokens" --backend emu --kv "$3" --out "$there" || return 1
  "$weft" logits -m "$file" --tokens "$tokens" --backend "$BACKEND" --kv "$3" --chunk "$4" \
    --out "$here" || return 1
  results compare "$here" "$there" "$1" "$2" "$3" "$4" | tee -a "$OUT/bits.jsonl"
}

# Do device and emulator agree bit for bit? Every kind of block, of weights, of keys and values.
part_bits() {
  local shape type kv failed=0
  : >"$OUT/bits.jsonl"
  for shape in tiny-llama tiny-gemma3 tiny-moe tiny-lfm2 tiny-qwen35 tiny-mamba2 \
      tiny-granitehybrid; do
    compare_bits $shape Q8_0 f16 48 || failed=1
    compare_bits $shape F32 f32 7,1,40 || failed=1
  done
  if [ "$SIZE" = full ]; then
    for type in F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K_M; do
      compare_bits tiny-llama $type f16 5,1,42 || failed=1
    done
    for kv in bf16 q8_0; do compare_bits tiny-qwen3 Q4_0 $kv 1,47 || failed=1; done
  fi
  results all-equal "$OUT/bits.jsonl" || failed=1
  return $failed
}

# The reference data of another implementation, and the promise of same bits on the device itself.
part_conformance() {
  local filter="*/${BACKEND}_*" failed=0 test
  [ "$SIZE" = full ] || filter="*/${BACKEND}_llama"
  for test in goldens_test same_bits_test; do
    if [ -x "$BUILD/tests/conformance/$test" ]; then
      "$BUILD/tests/conformance/$test" --gtest_brief=1 --gtest_filter="$filter" || failed=1
    else
      echo "$test is not built"
    fi
  done
  return $failed
}

# SHAPE and what compute-sanitizer is asked.
sanitized() {
  local shape=$1 file
  shift
  if [ "$BACKEND" != cuda ]; then
    echo "the emulator watches kernels by itself: no sanitizer for $BACKEND"
    return 0
  fi
  if ! command -v compute-sanitizer >/dev/null; then
    echo "skipped: there is no compute-sanitizer"
    return 0
  fi
  file=$(model "$shape" Q8_0) || return 1
  results tokens "$file" 24 >"$OUT/tokens.json"
  compute-sanitizer --error-exitcode 9 "$@" "$weft" logits -m "$file" \
    --tokens "$OUT/tokens.json" --backend "$BACKEND" --chunk 20,1,3 --out "$OUT/sanitized.f32"
}
part_memcheck() {
  sanitized tiny-moe --tool memcheck --leak-check full && sanitized tiny-qwen35 --tool memcheck &&
    sanitized tiny-moe --tool initcheck
}
part_races() {
  sanitized tiny-moe --tool racecheck && sanitized tiny-qwen35 --tool racecheck &&
    sanitized tiny-moe --tool synccheck
}

# OUTPUT SHAPE TYPE: decoding by 1 to 64 sessions, and prompts.
bench() {
  local out=$OUT/$1.jsonl file sessions=1,8,32,64 prompts="512 4096 16384" decode=64 prompt
  if [ "$SIZE" != full ]; then sessions=1,8 prompts="16 32" decode=3; fi
  file=$(model "$2" "$3") || return 1
  : >"$out.part"
  results facts "$1" "$2" "$3" "$file" >>"$out.part"
  "$weft" bench -m "$file" --backend "$BACKEND" --speculate off --sessions $sessions --prompt 0 \
    --decode $decode --repeat 1 --json >>"$out.part" || return 1
  for prompt in $prompts; do
    "$weft" bench -m "$file" --backend "$BACKEND" --speculate off --sessions 1 --decode 0 \
      --prompt "$prompt" --repeat 1 --json >>"$out.part" || return 1
  done
  mv "$out.part" "$out"
}
part_bench-0.6b() {
  if [ "$SIZE" = full ]; then bench bench-0.6b qwen3-0.6b Q8_0; else bench bench-0.6b tiny-qwen3 Q8_0; fi
}
part_bench-8b() {
  if [ "$SIZE" = full ]; then bench bench-8b qwen3-8b Q4_0; else bench bench-8b tiny-llama Q4_0; fi
}
# The same as one of them with every kernel launched by itself.
part_graphs-off() {
  local shape=qwen3-0.6b
  [ "$SIZE" = full ] || shape=tiny-qwen3
  WEFT_CUDA_GRAPHS=off bench graphs-off $shape Q8_0
}

# Time and bytes per kernel, where Nsight Compute can read the counters.
part_kernels() {
  local file
  if [ "$BACKEND" != cuda ] || ! command -v ncu >/dev/null; then
    echo "skipped: there is no ncu for $BACKEND"
    return 0
  fi
  file=$(model qwen3-0.6b Q8_0) || return 1
  WEFT_CUDA_GRAPHS=off ncu --csv --page raw --launch-skip 2000 --launch-count 1500 \
    --metrics gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed \
    "$weft" bench -m "$file" --backend "$BACKEND" --speculate off --sessions 1,8 --prompt 512 \
    --decode 16 --repeat 1 --json >"$OUT/kernels.csv" || return 1
  results kernels "$OUT/kernels.csv"
}

# Runs a part under its time; what it says goes to a file and to the screen.
run_part() {
  local name=$1 start=$SECONDS code
  echo "==== $name"
  timeout --foreground "$PART_S" "$0" --inside "$name" 2>&1 | tee "$OUT/$name.log"
  code=${PIPESTATUS[0]}
  rm -f "$OUT/$name.done" "$OUT/$name.failed"
  if [ "$code" -eq 0 ]; then
    echo "$((SECONDS - start)) s" >"$OUT/$name.done"
  elif [ "$code" -eq 124 ]; then
    echo "$PART_S s, which was too long" | tee "$OUT/$name.failed"
  else
    echo "$((SECONDS - start)) s" >"$OUT/$name.failed"
  fi
}

if [ "${1:-}" = --inside ]; then
  "part_$2"
  exit
fi
for name in "$@"; do
  [ "$name" = --list ] || [[ " ${parts[*]} " = *" $name "* ]] || {
    echo "gpu_hour: there is no part \"$name\"; there are ${parts[*]}" >&2
    exit 2
  }
done
if [ "${1:-}" != --list ]; then
  for name in "${parts[@]}"; do
    if [ $# -eq 0 ] && [ -e "$OUT/$name.done" ]; then continue; fi
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
    run_part "$name"
  done
fi
results table "$OUT" "${parts[@]}"
for name in "${parts[@]}"; do [ ! -e "$OUT/$name.failed" ] || exit 1; done
