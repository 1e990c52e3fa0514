#!/usr/bin/env bash
# Runs the fuzz targets once on the inputs in fuzz/corpus. It needs neither nightly Rust nor cargo-fuzz.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cargo=${CARGO:-cargo}
folder=${CARGO_TARGET_DIR:-target}
"$cargo" build --locked --package capi-ipam-fuzz --bins
for corpus in fuzz/corpus/*/; do
  target=$(basename "$corpus")
  if ! "$folder/debug/$target" -timeout=60 "$corpus"/* >"$folder/$target.log" 2>&1; then
    tail -n 60 "$folder/$target.log" >&2
    exit 1
  fi
  echo "$target: $(find "$corpus" -type f | wc -l) inputs"
done
