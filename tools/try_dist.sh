#!/bin/bash
# Tries what `make dist` made as a new user would, and prints how long each took: the tarball in bare
# roots of Debian 11, 12 and 13, the wheel with pip, pipx and uvx, the npm packages, and the tarball
# for AArch64 in an emulator. If there is a
# Debian package, too, it is installed from a signed folder by apt, as the container's steps do.
#
#   tools/try_dist.sh [DIST [PART...]]      (build/dist; tarball wheel npm apt arm)
#   tools/try_dist.sh build/dist again      builds the last commit once more, in another folder and
#                                           without ccache, and compares the bytes: takes minutes
#   tools/try_dist.sh | tee bench/results/install.txt
#
# Debian packages are looked for in DIST and in build/release.
#
# Needs root, debootstrap and a network, and keeps the roots in build/roots. A part whose tool is
# missing says so. Each must give the same answer of the built-in model, byte for byte.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
dist=$(realpath "${1:-build/dist}")
roots=$PWD/build/roots
ask=(run -m box -n 16 --temp 0 "My name is Tom. What is my name?")
work=$(mktemp -d)
server=""
# A root that is tried is a copy, because installing changes it.
cleanup() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  ! mountpoint -q "$work/root/proc" || umount "$work/root/proc"
  rm -rf "$work"
}
trap cleanup EXIT

version=$(sed -n 's/^project(weft VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
machine=$(uname -m)
tarball=$dist/weft-$version-linux-$machine.tar.xz
wheel=$(echo "$dist/weft_serve-$version-"*"_$machine.whl")
expected=""

fail() { echo "dist: $*" >&2; exit 1; }
has() { command -v "$1" >/dev/null || { echo "dist: $2: left out, because there is no $1"; return 1; }; }

seconds_since() { awk -v start="$1" -v now="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", now - start }'; }

answers() {  # WHAT COMMAND...: the command's answer is everybody's
  local what=$1 start=$EPOCHREALTIME answer
  shift
  answer=$("$@" "${ask[@]}" 2>"$work/stderr") || fail "$what: $(cat "$work/stderr")"
  [[ $answer == *Tom* ]] || fail "$what: answers '$answer'"
  expected=${expected:-$answer}
  [ "$answer" = "$expected" ] || fail "$what: answers '$answer', others '$expected'"
  echo "dist: $what: answers after $(seconds_since "$start")"
}

copy_root() {  # SUITE
  [ -e "$roots/$1/etc/debian_version" ] || {
    mkdir -p "$roots"
    debootstrap --variant=minbase "$1" "$roots/$1" >"$work/log" 2>&1 || fail "$1: $(tail -n 3 "$work/log")"
  }
  rm -rf "$work/root"
  cp -a "$roots/$1" "$work/root"
}

# The network is this machine's, so its curl can ask a server in the root.
serves_in_root() {  # SUITE WEFT
  local address=""
  chroot "$work/root" "$2" serve -m box --port 0 >"$work/out" 2>&1 &
  server=$!
  for _ in $(seq 600); do
    address=$(sed -n 's|.*\(http://127.0.0.1:[0-9]*\).*|\1|p' "$work/out" | head -n 1)
    [ -z "$address" ] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  [ -n "$address" ] || fail "$1: the server does not listen: $(cat "$work/out")"
  curl -sSf --retry 20 --retry-all-errors --retry-delay 1 "$address/health" >"$work/health" ||
    fail "$1: /health does not answer"
  kill "$server"
  wait "$server" || fail "$1: the server ends with $?"
  server=""
  echo "dist: $1: serves, and ends when told"
}

try_tarball() {
  has debootstrap tarball || return 0
  local suite start weft=/opt/weft-$version-linux-$machine/bin/weft
  for suite in bullseye bookworm trixie; do
    copy_root "$suite"
    start=$EPOCHREALTIME
    tar -xf "$tarball" -C "$work/root/opt"
    echo "dist: tarball in $suite: unpacked after $(seconds_since "$start")"
    answers "tarball in $suite" chroot "$work/root" "$weft"
    serves_in_root "tarball in $suite" "$weft"
  done
}

try_wheel() {
  local start=$EPOCHREALTIME
  python3 -m venv "$work/venv"
  "$work/venv/bin/pip" -q install --no-index "$wheel"
  echo "dist: wheel: installed after $(seconds_since "$start")"
  answers wheel "$work/venv/bin/weft"
  "$work/venv/bin/pip" -q install --disable-pip-version-check uv pipx || return 0
  answers uvx "$work/venv/bin/uvx" --from "$wheel" weft
  answers pipx "$work/venv/bin/pipx" run --spec "$wheel" weft
}

try_npm() {
  has npm npm || return 0
  local start=$EPOCHREALTIME
  mkdir "$work/npm"
  (cd "$work/npm" && npm install --offline --no-audit --no-fund \
    "$dist/weft-serve-linux-"*"-$version.tgz" "$dist/weft-serve-$version.tgz" >"$work/log" 2>&1) ||
    fail "npm: $(tail -n 5 "$work/log")"
  echo "dist: npm: installed after $(seconds_since "$start")"
  answers npm "$work/npm/node_modules/.bin/weft"
}

# What the container does after its build, besides apt.
container_refuses() {
  chroot "$work/root" useradd --system --create-home --home-dir /var/lib/weft weft 2>/dev/null || true
  if chroot --userspec=weft "$work/root" weft serve --no-built-in --state-dir /var/lib/weft \
    >"$work/out" 2>&1; then
    fail "container: starts without a model"
  fi
  grep -q -- '-m' "$work/out" || fail "container: does not say how to name a model: $(cat "$work/out")"
  echo "dist: container: refuses to start without a model: $(tail -n 1 "$work/out")"
}

try_apt() {
  local debs start
  debs=$(find "$dist" build/release -maxdepth 1 -name "weft_${version}*.deb" | head -n 1)
  [ -n "$debs" ] || { echo "dist: apt: left out, because there is no package (make deb)"; return 0; }
  has debootstrap apt && has gpg apt || return 0
  copy_root bookworm
  export GNUPGHOME=$work/gnupg
  mkdir -m 700 "$GNUPGHOME"
  gpg --batch --quiet --passphrase '' --quick-generate-key dist@weft.invalid ed25519 sign 1d
  tools/make_apt.py --out "$work/root/srv/apt" --key dist@weft.invalid "$debs"
  gpgconf --kill all
  echo "deb [signed-by=/srv/apt/weft.gpg] file:/srv/apt stable main" \
    >"$work/root/etc/apt/sources.list.d/weft.list"
  start=$EPOCHREALTIME
  mount -t proc proc "$work/root/proc"
  chroot "$work/root" sh -c 'apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y \
    --no-install-recommends install weft' >"$work/log" 2>&1 || fail "apt: $(tail -n 5 "$work/log")"
  echo "dist: apt: installed after $(seconds_since "$start")"
  answers apt chroot "$work/root" weft
  container_refuses
}

# The loader of the other machine runs in an emulator, as the launcher would start it.
try_arm() {
  local folder=weft-$version-linux-aarch64 start=$EPOCHREALTIME library
  [ -e "$dist/$folder.tar.xz" ] || { echo "dist: arm: left out, because there is no $folder.tar.xz (make dist-arm)"; return 0; }
  has qemu-aarch64 arm || return 0
  mkdir "$work/arm"
  tar -xf "$dist/$folder.tar.xz" -C "$work/arm"
  library=$work/arm/$folder/lib/weft
  echo "dist: arm: unpacked after $(seconds_since "$start")"
  answers arm qemu-aarch64 -cpu max "$library/weft" --library-path "$library" --argv0 weft \
    "$library/weft.program"
}

try_again() {
  local start=$EPOCHREALTIME file
  [ -z "$(git status --porcelain)" ] || fail "again: commit first, then make dist: the second build is made of HEAD"
  git clone -q . "$work/again"
  mkdir "$work/again/build"
  # Compilers that tools/setup.sh has put there, and that decide what is built.
  for file in cuda mlx; do
    [ ! -d "build/$file" ] || ln -s "$PWD/build/$file" "$work/again/build/$file"
  done
  (cd "$work/again" && CCACHE_DISABLE=1 make dist) >"$work/log" 2>&1 || fail "again: $(tail -n 5 "$work/log")"
  for file in "$work/again/build/dist"/*; do
    [ "${file##*/}" = SHA256SUMS ] || cmp "$file" "$dist/${file##*/}" ||
      fail "again: ${file##*/} differs from what another folder made of $(git rev-parse --short HEAD)"
  done
  echo "dist: again: the same bytes after $(seconds_since "$start")"
}

[ -e "$tarball" ] || fail "there is no $tarball: make dist"
(cd "$dist" && sha256sum --quiet -c SHA256SUMS) || fail "checksums differ"
shift || true
echo "# tools/try_dist.sh, $(git rev-parse --short HEAD), $(date -u +%F), $(nproc) x" \
  "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), load $(cut -d ' ' -f 1 /proc/loadavg)"
[ $# -gt 0 ] || set -- tarball wheel npm apt arm
for part in "$@"; do "try_$part"; done
