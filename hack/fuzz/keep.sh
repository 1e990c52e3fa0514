#!/usr/bin/env bash
# Minimizes the corpus in fuzz/corpus together with the new inputs in fuzz/target/corpus: the fewest inputs with the
# same coverage, without the largest, at most 200 inputs and 200 KiB per target. The arguments are names of targets;
# default: all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. hack/fuzz/profile.sh
cargo=${CARGO:-cargo}
most_files=200
most_bytes=$((200 * 1024))

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  mapfile -t targets < <("$cargo" +nightly fuzz list)
fi

for target in "${targets[@]}"; do
  kept=fuzz/corpus/$target
  learned=fuzz/target/corpus/$target
  new=$(mktemp -d)
  mkdir -p "$kept" "$learned"
  # Coverage without counters.
  "$cargo" +nightly fuzz run "$target" "$new" "$kept" "$learned" -- -set_cover_merge=1 -use_counters=0 -timeout=10 \
    >"fuzz/target/$target.log" 2>&1 || { tail -n 60 "fuzz/target/$target.log" >&2; exit 1; }
  rm -rf "$kept"
  mkdir -p "$kept"
  files=0 bytes=0
  while read -r size name; do
    files=$((files + 1)) bytes=$((bytes + size))
    if [ $files -gt $most_files ] || [ $bytes -gt $most_bytes ]; then break; fi
    cp "$new/$name" "$kept/$name"
  done < <(find "$new" -type f -printf '%s %f\n' | sort -n)
  echo "$target: $(ls "$kept" | wc -l) of $(ls "$new" | wc -l) inputs kept, $(du -bs "$kept" | cut -f1) bytes"
  rm -rf "$new"
done
