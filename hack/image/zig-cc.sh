#!/usr/bin/env bash
# Wraps zig (the variable ZIG) as a C compiler, and translates the target names of Rust.
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
