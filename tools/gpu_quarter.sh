#!/bin/bash
# A quarter of an hour on a device: everything that only hardware can tell, in one call.
#
#   tools/gpu_quarter.sh pack [--peer DIR]   without a device: the programs, their libraries, and
#                                            digests of the emulator's logits, in one archive
#   tools/gpu_quarter.sh run                 on a machine with a device, which needs no compiler and
#                                            no network: a line of JSON after every fact, so that
#                                            a cut loses only the rest
#   tools/gpu_quarter.sh table RESULTS       what `run` wrote, into docs/gpu.md
#
# --peer: a folder with llama-bench, llama-batched-bench and their libraries, built for the same
# device; `run` measures them in turn with Weft.
#
#   BACKEND   cuda; with emu, `run` is a rehearsal
#   ARCH      what the kernels are compiled for (90)
#   PACK      the folder of the archive (build/gpu_quarter)
#   OUT       where `run` writes results.jsonl (PACK/out)
#   RUN_S     seconds that `run` may take (520)
#   PARTS     only these measurements, separated by spaces
set -euo pipefail
cd "$(dirname "$0")/.."

PACK=${PACK:-build/gpu_quarter}
ARCHIVE=$PACK/pack.tar.xz
MOST_MIB=55

# The libraries of a program that a bare machine lacks.
libraries_of() {
  ldd "$1" | awk '$3 ~ /^\// { print $3 }' |
    grep -vE '/(libc|libm|ld-linux[^/]*|libstdc\+\+|libgcc_s|libpthread|libdl|librt)\.so'
}

pack() {
  local peer="" tree=$PACK/tree build=$PACK/build library mib
  if [ "${1:-}" = --peer ]; then peer=${2:?--peer needs a folder}; fi
  tools/setup.sh build cuda
  cmake --preset release -B "$build" -DWEFT_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES="${ARCH:-90}" >/dev/null
  cmake --build "$build" --target weft weft-make-model
  rm -rf "$tree"
  mkdir -p "$tree/lib"
  git describe --always --dirty >"$tree/commit" 2>/dev/null || echo unknown >"$tree/commit"
  cp "$build/weft" "$build/weft-make-model" "$tree"
  for library in $(libraries_of "$build/weft"); do cp -L "$library" "$tree/lib"; done
  strip "$tree/weft" "$tree/weft-make-model" "$tree"/lib/*
  python3 tools/gpu_quarter.py expect "$tree"
  if [ -n "$peer" ]; then
    cp -rL "$peer" "$tree/peer"
    find "$tree/peer" -type f -exec strip {} + 2>/dev/null || true
  fi
  tar -C "$tree" -cf - . | xz -T0 -6 >"$ARCHIVE.part"
  mv "$ARCHIVE.part" "$ARCHIVE"
  mib=$(($(stat -c %s "$ARCHIVE") >> 20))
  echo "$ARCHIVE: $mib MiB"
  [ "$mib" -lt "$MOST_MIB" ] || { echo "gpu_quarter: that is more than $MOST_MIB MiB" >&2; exit 1; }
}

run() {
  local tree code=0
  tree=$(mktemp -d)
  tar -C "$tree" -xJf "$ARCHIVE"
  python3 tools/gpu_quarter.py run "$tree" "${OUT:-$PACK/out}" "${RUN_S:-520}" || code=$?
  rm -rf "$tree"
  return $code
}

table() { python3 tools/gpu_quarter.py table "${1:?table needs the results}" docs/gpu.md; }

case "${1:-}" in
  pack | run | table) "$@" ;;
  *)
    echo "gpu_quarter: say pack, run or table; the head of $0 explains them" >&2
    exit 2
    ;;
esac
