#!/bin/bash
# Prints the port if no program on this machine listens on it. Otherwise it proposes the next free
# one on a terminal; without one, or without consent, it ends with exit code 1.
#
#   tools/free_port.sh PORT
set -eu
port=$1

in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

if [ "$port" != 0 ] && in_use "$port"; then
  next=$((port + 1))
  while in_use $next; do next=$((next + 1)); done
  answer=n
  echo "Another program uses port $port." >&2
  [ ! -t 0 ] || read -r -p "Use port $next? [Y/n] " answer
  case "${answer:-y}" in
    [yY]*) port=$next ;;
    *)
      echo "Choose a port, for example: make run PORT=$next" >&2
      exit 1
      ;;
  esac
fi
echo "$port"
