#!/usr/bin/env bash
# Runs the fuzz targets one after the other, each for SECONDS_EACH seconds (default 600), and prints executions and
# coverage of each. Stops at the first finding. The arguments are names of targets; default: all.
#
# New inputs are stored in fuzz/target/corpus; the committed corpus in fuzz/corpus is only read (see keep.sh).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

. hack/fuzz/profile.sh
cargo=${CARGO:-cargo}
seconds=${SECONDS_EACH:-600}
# An input that takes longer than 10 seconds is a finding.
options=(-max_total_time="$seconds" -timeout=10 -print_final_stats=1)

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
  mapfile -t targets < <("$cargo" +nightly fuzz list)
fi

for target in "${targets[@]}"; do
  learned=fuzz/target/corpus/$target
  log=fuzz/target/$target.log
  mkdir -p "$learned" "fuzz/corpus/$target"
  "$cargo" +nightly fuzz build "$target"
  if ! "$cargo" +nightly fuzz run "$target" "$learned" "fuzz/corpus/$target" -- "${options[@]}" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "$target: finding; the input is in fuzz/artifacts/$target" >&2
    exit 1
  fi
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  # The last line of progress: #123 DONE cov: 45 ft: 67 corp: 8/9Kb ...
  reached=$(sed -n 's/^#[0-9]*[[:space:]]*DONE *\(cov: [0-9]* ft: [0-9]*\).*/\1/p' "$log")
  slowest=$(sed -n 's/^stat::slowest_unit_time_sec: *//p' "$log")
  echo "$target: $seconds s, $executions executions, $reached, corpus of $(ls "$learned" | wc -l), slowest $slowest s"
done
