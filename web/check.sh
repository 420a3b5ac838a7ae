#!/bin/sh
# Whether web/dist, which the binary holds, is what the sources of the page build, and
# web/LICENSES.txt names what it bundles: for whoever changes the page, and for CI. Needs node and npm, and the network once.
#
#   web/check.sh            compares; exit code 1 when they differ
#   web/check.sh --update   makes both anew
set -eu
cd "$(dirname "$0")"

npm ci --no-audit --no-fund --silent
if [ "${1:-}" = --update ]; then
  npm run --silent build
  node licenses.mjs LICENSES.txt
  exit 0
fi
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
npm run --silent build -- --outDir "$built" --emptyOutDir
if ! diff -r "$built" dist >/dev/null; then
  diff -rq "$built" dist || true
  echo "web/dist is not what the sources build; run web/check.sh --update and commit it" >&2
  exit 1
fi
node licenses.mjs "$built/LICENSES.txt"
if ! cmp -s "$built/LICENSES.txt" LICENSES.txt; then
  echo "web/LICENSES.txt does not name what the page bundles; run web/check.sh --update" >&2
  exit 1
fi
bytes=$(find dist -type f -exec cat {} + | wc -c)
echo "web/dist is what the sources build, $bytes bytes"
