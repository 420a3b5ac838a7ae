#!/bin/sh
# Installs the Debian packages that are missing for the named groups.
#
#   tools/setup.sh GROUP...     build, check, bench, deb, browser, pip
#
# Looks before it asks: with everything there it needs neither root nor a network
# and takes a moment. docs/EXTENDING.md says what each package is for.
set -eu

# The library, the binary and the tests.
build="g++ cmake ninja-build ccache mold
  libabsl-dev libcli11-dev nlohmann-json3-dev libutf8proc-dev libxxhash-dev libzstd-dev libedit-dev
  libboost1.81-dev prometheus-cpp-dev libssl-dev libcurl4-openssl-dev
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc zlib1g-dev
  libgtest-dev libgmock-dev libpcre2-dev python3 python3-grpcio python3-protobuf"
# What `make check` adds: another compiler, its runtime for sanitizers and fuzzers.
check="clang clang-format clang-tidy libclang-rt-14-dev git"
bench="libbenchmark-dev"
# To say in the Debian package which libraries the program needs.
deb="dpkg-dev file"
# What loads real models: the one that `make run` serves, and those of the tests.
pip="python3-pip"
# A Python that is not Debian's brings a pip of its own.
python3 -m pip --version >/dev/null 2>&1 && pip=""
# The page's test: 230 MB to load, 900 MB on the disk.
browser="chromium"
# A node that is not Debian's brings an npm of its own, with which Debian's does not go together.
command -v npm >/dev/null 2>&1 || browser="$browser nodejs npm"

packages=""
for group in "$@"; do
  case "$group" in
    build) packages="$packages $build" ;;
    check) packages="$packages $check" ;;
    bench) packages="$packages $bench" ;;
    deb) packages="$packages $deb" ;;
    browser) packages="$packages $browser" ;;
    pip) packages="$packages $pip" ;;
    *)
      echo "setup: there is no group \"$group\", there are build, check, bench, deb, browser, pip" >&2
      exit 2
      ;;
  esac
done

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "setup: this is no Debian; needed are:" $packages >&2
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
[ -n "$missing" ] || exit 0

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
