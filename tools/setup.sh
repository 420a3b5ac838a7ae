#!/bin/sh
# Installs the missing packages of the named groups: from Debian or Ubuntu, or Homebrew on a Mac. On
# other systems it prints what to install.
#
#   tools/setup.sh GROUP...     build, check, bench, deb, browser, pip, cross, zig, mlx, cuda
#
# Looks before it asks: with everything there it needs neither root nor a network
# and takes a moment. docs/extending.md says what each package is for.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)

# Names that differ: Debian 12's usual Boost is too old for us, and its clang has a number.
boost=libboost-dev
clang_runtime=libclang-rt-dev
if [ -r /etc/os-release ]; then
  case "$(. /etc/os-release && echo "${ID:-}-${VERSION_ID:-}")" in
    debian-12) boost=libboost1.81-dev clang_runtime=libclang-rt-14-dev ;;
    ubuntu-24.04) clang_runtime=libclang-rt-18-dev ;;
  esac
fi

# The library, the binary and the tests.
build="g++ cmake ninja-build ccache mold
  libabsl-dev libcli11-dev nlohmann-json3-dev libutf8proc-dev libxxhash-dev libzstd-dev libedit-dev
  $boost prometheus-cpp-dev libssl-dev libcurl4-openssl-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
  libpng-dev libjpeg-dev libwebp-dev
  libgtest-dev libgmock-dev libpcre2-dev python3 python3-grpcio python3-protobuf"
# What `make check` adds: another compiler, its runtime for sanitizers and fuzzers.
check="clang clang-format clang-tidy $clang_runtime git"
bench="libbenchmark-dev"
# To say in the Debian package which libraries the program needs.
deb="dpkg-dev file"
# What loads real models: the one that `make run` serves, and those of the tests.
pip="python3-pip"
# A Python other than Debian's comes with pip.
python3 -m pip --version >/dev/null 2>&1 && pip=""
# The page's test: 230 MB to load, 900 MB on the disk.
browser="chromium"
# A node other than Debian's comes with npm, which conflicts with Debian's.
command -v npm >/dev/null 2>&1 || browser="$browser nodejs npm"

zig_version=0.14.1
mlx_version=0.32.4
# What a driver of release 580 knows; a newer compiler's code needs a newer driver. PyPI has no nvcc
# of CUDA 12, whose code older drivers take: that of a toolkit is used where CUDACXX names it.
cuda_version=13.0
nvdisasm_version=13.2.78
# The cross compiler and the emulator for its programs; the libraries are unpacked into build/.
cross="g++-aarch64-linux-gnu qemu-user cmake ninja-build ccache protobuf-compiler
  protobuf-compiler-grpc python3"
libraries="libabsl-dev libcli11-dev nlohmann-json3-dev libutf8proc-dev libxxhash-dev libzstd-dev
  libedit-dev $boost prometheus-cpp-dev libssl-dev libcurl4-openssl-dev libgrpc++-dev
  libprotobuf-dev protobuf-compiler-grpc zlib1g-dev libpng-dev libjpeg-dev libwebp-dev libgtest-dev libgmock-dev libpcre2-dev
  libc6-dev libstdc++-12-dev"

packages=""
wants_cross="" wants_zig="" wants_mlx="" wants_cuda=""
for group in "$@"; do
  case "$group" in
    build) packages="$packages $build" ;;
    check) packages="$packages $check" ;;
    bench) packages="$packages $bench" ;;
    deb) packages="$packages $deb" ;;
    browser) packages="$packages $browser" ;;
    pip) packages="$packages $pip" ;;
    cross) packages="$packages $cross" wants_cross=1 ;;
    zig) packages="$packages python3-venv" wants_zig=1 ;;
    mlx) packages="$packages python3-venv" wants_mlx=1 ;;
    cuda) packages="$packages python3-venv" wants_cuda=1 ;;
    *)
      echo "setup: there is no group \"$group\"; there are build, check, bench, deb, browser, pip," \
        "cross, zig, mlx, cuda" >&2
      exit 2
      ;;
  esac
done

# The library of the mlx backend, with its headers: 10 MB on Linux, for the processor alone.
install_mlx() {
  local package=mlx-cpu dependencies=--no-deps
  [ "$(uname -s)" != Darwin ] || package=mlx dependencies=""
  [ "$(cat "$here/build/mlx/version" 2>/dev/null)" = "$mlx_version" ] && return
  python3 -m venv "$here/build/mlx"
  "$here/build/mlx/bin/pip" -q install $dependencies "$package==$mlx_version"
  echo "$mlx_version" >"$here/build/mlx/version"
}

if [ "$(uname -s)" = Darwin ] && command -v brew >/dev/null 2>&1; then
  # One list for all groups: macOS already has most of the rest.
  brew bundle check --quiet --no-upgrade --file="$here/Brewfile" >/dev/null 2>&1 ||
    brew bundle install --no-upgrade --file="$here/Brewfile"
  [ -z "$wants_mlx" ] || install_mlx
  exit 0
fi
if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: neither Debian's packages nor Homebrew's are here. Needed are, in Debian's names:" >&2
  echo $packages | tr ' ' '\n' | sed 's/^/  /' >&2
  exit 0
fi

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  # Several architectures of one package answer in one line.
  case "$status" in
    installed*) ;;
    *) missing="$missing $package" ;;
  esac
done

if [ -n "$missing" ]; then
  as_root=""
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
      echo "setup: these packages are missing and installing needs root:$missing" >&2
      exit 1
    fi
    as_root=sudo
  fi
  echo "setup: installing$missing" >&2
  $as_root apt-get -q update
  $as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -y --no-install-recommends install $missing
fi

[ -z "$wants_cross" ] || "$here/tools/cross_sysroot.sh" "$here/build/sysroot-aarch64" $libraries
# A clang with macOS's headers, which compiles for it anywhere, and MLX as it is on a Mac, to link.
install_zig() {
  if ! "$here/build/zig/bin/python" -m ziglang version >/dev/null 2>&1; then
    python3 -m venv "$here/build/zig"
    "$here/build/zig/bin/pip" -q install "ziglang==$zig_version"
  fi
  [ "$(cat "$here/build/zig/mlx_version" 2>/dev/null)" = "$mlx_version" ] && return
  "$here/build/zig/bin/pip" -q download --no-deps --only-binary=:all: \
    --platform macosx_14_0_arm64 -d "$here/build/zig" "mlx-metal==$mlx_version"
  python3 -m zipfile -e "$here"/build/zig/mlx_metal-*.whl "$here/build/zig/mlx_metal"
  rm -f "$here"/build/zig/mlx_metal-*.whl "$here/build/zig/mlx_metal/mlx/lib/mlx.metallib"
  echo "$mlx_version" >"$here/build/zig/mlx_version"
}
[ -z "$wants_zig" ] || install_zig
[ -z "$wants_mlx" ] || install_mlx
# NVIDIA's compiler and disassembler, which need no device and no driver.
install_cuda() {
  local packages="" package
  [ "$(cat "$here/build/cuda/version" 2>/dev/null)" = "$cuda_version $nvdisasm_version" ] && return
  for package in cuda-nvcc cuda-runtime cuda-cccl nvvm cuda-crt; do
    packages="$packages nvidia-$package==$cuda_version.*"
  done
  python3 -m venv "$here/build/cuda"
  "$here/build/cuda/bin/pip" -q install $packages "nvidia-cuda-nvdisasm==$nvdisasm_version"
  echo "$cuda_version $nvdisasm_version" >"$here/build/cuda/version"
}
[ -z "$wants_cuda" ] || install_cuda
