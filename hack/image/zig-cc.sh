#!/usr/bin/env bash
# zig (the variable ZIG) as the C compiler of a build: it calls the targets of Rust by other names.
set -euo pipefail

arguments=()
for argument; do
  if [[ $argument == --target=*-unknown-linux-musl ]]; then
    cpu=${argument#--target=}
    arguments+=(-target "${cpu%%-*}-linux-musl")
  else
    arguments+=("$argument")
  fi
done
exec "$ZIG" cc "${arguments[@]}"
