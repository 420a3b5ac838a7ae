#!/bin/bash
# The checks other than tests, each by its name or all of them.
#
#   tools/check.sh [format] [layers] [docs] [tidy] [asan] [tsan] [fuzz] [arm] [mlx] [mac] [cuda]
#                  [page] [real] [dist]
#
# Without names all but `mlx`, which loads a library (10 MB), `mac` and `cuda`, which load other
# compilers (135 and 130 MB), `page`, which installs a browser, `real`, which loads 330 MB of models
# into the user's cache, and `dist`, which installs the packages in roots of three Debians.
#
#   ARM            what `arm` builds and runs: all, or kernels alone (all)
#   MLX            what `mlx` runs: all, or no end-to-end tests but its own: backend (all)
#   REAL_MODELS    of tools/get_model.py --list, with commas between
#                  (smollm2,gemma3-270m)
#   CUDA_ARCHS     of tools/cuda_kernels.py (75,80,90,120)
#   FUZZ_SECONDS   for each parser (60)
#   TIDY_SECONDS   for clang-tidy over the changed files; it names the files that it
#                  did not reach by then (300)
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
check_layers() { python3 tools/check_layers.py && python3 tools/check_sizes.py; }
check_docs() { python3 tools/check_docs.py; }
check_tidy() {
  cmake --preset tidy >/dev/null
  cmake --build build/tidy --target weft_generated >/dev/null
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
# In the tree of `asan`, so that the library is compiled once for both.
check_fuzz() {
  configured asan
  cmake --build build/asan --target weft_fuzzers
  tools/fuzz.sh build/asan "${FUZZ_SECONDS:-60}"
}
# AArch64 by a cross compiler and an emulator: every kernel against the portable ones, reference
# data of each architecture, and the program itself, which must answer as this machine's does.
check_arm() {
  local emulated="qemu-aarch64 -cpu max -L build/sysroot-aarch64" model name
  tools/setup.sh cross
  configured aarch64
  local tests="isa_test matmul_test quants_test vector_ops_test"
  local targets="$tests goldens_test"
  [ "${ARM:-all}" != all ] || targets="$targets weft"
  cmake --build build/aarch64 --target $targets
  # The portable kernels need not be compared with themselves.
  for name in $tests; do
    $emulated "$(find build/aarch64/src -type f -name "$name")" --gtest_brief=1 \
      --gtest_filter='-*/scalar'
  done
  # Conversions of the quantized files are about the type, whose kernels were tested above.
  $emulated build/aarch64/tests/conformance/goldens_test --gtest_brief=1 \
    --gtest_filter='*FloatModelTest.ShortRun/cpu_*'
  [ "${ARM:-all}" = all ] || return 0
  answers_on_arm
}
answers_on_arm() {
  local ask=(-m box -n 24 --temp 0 "What is a loom?") mine theirs
  for isa in scalar neon i8mm; do
    theirs=$(WEFT_ISA=$isa $emulated build/aarch64/weft run "${ask[@]}" 2>/dev/null)
    [ -n "$theirs" ] || { echo "arm: no answer with $isa" >&2; return 1; }
    echo "arm: $isa: $theirs"
    mine=${mine:-$theirs}
    [ "$mine" = "$theirs" ] || { echo "arm: $isa answers otherwise" >&2; return 1; }
  done
  [ -x build/release/weft ] || return 0
  theirs=$(build/release/weft run "${ask[@]}" 2>/dev/null)
  [ "$mine" = "$theirs" ] || { echo "arm: this machine answers otherwise: $theirs" >&2; return 1; }
}
# Every source, compiled for macOS on Apple silicon with the headers that Zig brings, and the program
# linked with MLX's library for the Mac.
check_mac() {
  tools/setup.sh build zig mlx
  cmake --preset release -DWEFT_MLX=ON >/dev/null
  python3 tools/mac_compile.py --commands build/release/compile_commands.json \
    --zig build/zig/bin/python --out build/mac \
    --library build/zig/mlx_metal/mlx/lib/libmlx.dylib
}
# The mlx backend on MLX's CPU device: packed weights, state, steps, all architectures, random
# programs, and servers over it. In the release tree, of which no more than the backend itself is
# compiled anew, because no other source's command names MLX. Skipped with a line where pip reaches
# no registry.
#
# Backends without the same-bits promise skip the tests of it; with --strict-bits (row by row) all
# tests pass.
check_mlx() {
  local tests="mlx_backend_test mlx_engine_test backend_test backend_results_test goldens_test
    same_bits_test encoders_test engine_property_test sharing_test"
  if ! tools/setup.sh mlx; then
    echo "mlx: skipped, because MLX cannot be installed"
    return
  fi
  cmake --preset release -DWEFT_MLX=ON >/dev/null
  cmake --build build/release --target weft weft-make-model $tests
  for name in $tests; do
    echo "mlx: $name"
    "$(find build/release -type f -perm -u+x -name "$name")" --gtest_brief=1 \
      --gtest_filter='*mlx*:*Mlx*:*Packing*:BackendRegistryTest*:WithoutExceptions*'
  done
  python3 tests/e2e/mlx_test.py
  [ "${MLX:-all}" = all ] || return 0
  for name in api chat cli embed grpc isolation security serve traffic worker; do
    echo "mlx: ${name}_test.py"
    WEFT_COMPUTE="--backend mlx" python3 "tests/e2e/${name}_test.py"
  done
}
# Compiles every kernel for all supported devices and prints registers and spills. Rehearses the
# package for a machine with a device on the emulator.
# The compiler comes from PyPI; where that cannot be reached, the check says so and passes.
check_cuda() {
  if ! tools/setup.sh cuda; then
    echo "cuda: skipped, because pip cannot get the compiler"
    return
  fi
  tools/cuda_kernels.py ${CUDA_ARCHS:+--arch "$CUDA_ARCHS"}
  tools/gpu_quarter.sh pack
  BACKEND=emu tools/gpu_quarter.sh run
}
# The page in a browser, and the clients from npm. All that Debian does not package comes from npm's
# registry; where that cannot be reached, the check says so and passes.
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

# What people install, tried as a new user would (tools/try_dist.sh).
check_dist() { make dist && tools/try_dist.sh build/dist; }

# Real weights, out of Python packages; skipped with a line where pip reaches no registry.
check_real() {
  configured release
  cmake --build build/release --target weft
  python3 tests/real/real_models_test.py --weft build/release/weft ${REAL_MODELS:+--models "$REAL_MODELS"}
  local result=0
  python3 tests/real/sight_test.py --weft build/release/weft || result=$?
  [ "$result" -eq 0 ] || [ "$result" -eq 77 ]
}

[ $# -gt 0 ] || set -- format layers docs tidy asan tsan fuzz arm
for name in "$@"; do
  if ! declare -F "check_$name" >/dev/null; then
    echo "check: there is no check \"$name\"; there are format, layers, docs, tidy, asan, tsan, fuzz, arm, mlx, mac, cuda, page, real, dist" >&2
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
