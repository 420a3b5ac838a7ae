#!/bin/sh
# Unpacks Debian's libraries for AArch64 into a folder, for the cross compiler and the emulator.
#
#   tools/cross_sysroot.sh FOLDER PACKAGE...
#
# Uses its own apt state: installing these next to the machine's packages would remove some of
# those. Needs a network the first time, and no root. Does nothing if the folder is complete.
set -eu

folder=$1
shift
packages="$*"
done=$folder/.packages
# Lines of a package's name, its version and one of its files, for the SBOM of what is built.
owners=$folder/.owners
if [ -f "$done" ] && [ -f "$owners" ] && [ "$(cat "$done")" = "$packages" ]; then exit 0; fi

rm -rf "$folder"
state=$folder/.apt
mkdir -p "$state/lists/partial" "$state/archives/partial"
state=$(cd "$state" && pwd)
: >"$state/status"

# Debian's own sources, in the form that this machine has them; others seldom know AArch64.
sources=/etc/apt/sources.list.d/debian.sources
[ -f "$sources" ] || sources=/etc/apt/sources.list.d/ubuntu.sources
[ -f "$sources" ] || sources=/etc/apt/sources.list

own_apt() {
  apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
    -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=/dev/null \
    -o Dir::State="$state" -o Dir::State::status="$state/status" -o Dir::Cache="$state" \
    -o Dir::State::lists="$state/lists" -o Dir::Cache::archives="$state/archives" \
    -o Debug::NoLocking=true -o APT::Sandbox::User=root "$@"
}

echo "setup: unpacking AArch64's libraries into $folder" >&2
log=$state/log
{ own_apt update && own_apt -y --no-install-recommends --download-only install $packages; } \
  >"$log" 2>&1 || { tail -n 20 "$log" >&2; exit 1; }
for package in "$state"/archives/*.deb; do
  dpkg -x "$package" "$folder"
  name=$(dpkg-deb --show --showformat '${Package} ${Version}' "$package")
  dpkg-deb --fsys-tarfile "$package" | tar -t | sed -n "s|^\./\(.*[^/]\)\$|$name \1|p"
done >"$owners"
rm -rf "$state"

# Links from the root would lead into this machine's own folders.
find "$folder" -type l -lname '/*' | while read -r link; do
  ln -snf "$(realpath -m --relative-to="$(dirname "$link")" "$folder$(readlink "$link")")" "$link"
done
echo "$packages" >"$done"
