#!/bin/sh
# Runs the tests of a build tree and ends with ctest's closing line.
#
#   tools/run_tests.sh BUILD_DIR [CTEST ARGUMENT]...
#
# Exit status: ctest's. The whole output of every test is in
# BUILD_DIR/Testing/Temporary/LastTest.log.
set -eu
dir=$1
shift
report=$dir/ctest.out

# The thread sanitizer of GCC 12 cannot live with the address layouts of newer
# kernels; where switching the randomisation off is allowed, its tests run without.
wrapper=""
if grep -q '^WEFT_SANITIZE:STRING=thread' "$dir/CMakeCache.txt" &&
    setarch "$(uname -m)" -R true 2>/dev/null; then
  wrapper="setarch $(uname -m) -R"
fi
export ASAN_OPTIONS="${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1}"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-print_stacktrace=1}"
export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1}"

# So that the model that a test used last is not the user's.
mkdir -p "$dir/Testing/state"
XDG_STATE_HOME=$(cd "$dir/Testing/state" && pwd)
export XDG_STATE_HOME

status=$dir/ctest.status
{
  code=0
  $wrapper ctest --test-dir "$dir" --output-on-failure --no-tests=error -j "$(getconf _NPROCESSORS_ONLN)" "$@" ||
    code=$?
  echo "$code" >"$status"
} 2>&1 | tee "$report"

log=$dir/Testing/Temporary/LastTest.log
skipped=$(grep -c '^\[  SKIPPED \] .* ms)$' "$log" || true)
without_data=$(grep -c '^no reference data' "$log" || true)
if [ "${skipped:-0}" -gt 0 ]; then
  echo "$skipped cases were skipped, $without_data of them for want of reference data" \
    "(WEFT_GOLDENS); $log has each reason"
fi
# Repeats the end of what each failed case printed, because the whole output is long.
if [ "$(cat "$status")" -ne 0 ]; then
  echo "What failed, in short:"
  awk '/^(FAIL|ERROR): |^\[ RUN / { text = ""; lines = 0; is_failed = !/^\[/ }
    /^\[  FAILED  \] .* ms\)$/ { is_failed = 1 }
    { text = text substr($0, 1, 300) "\n"; lines++ }
    lines > 40 { sub(/[^\n]*\n/, "", text); lines-- }
    is_failed && /^$|^\[  FAILED/ { print text; is_failed = 0 }' "$log" | head -n 150
fi
grep '% tests passed' "$report" || true
exit "$(cat "$status")"
