#!/usr/bin/env bash
# Makes each of the mistakes in tests/faults/mistakes in a copy of the tree, one at a time, and sees whether the plans of
# faults find it. The first line of a mistake says what is wrong; the lines that begin with "plan: " are plans, of which
# one has to find it.
#
#   hack/faults/teeth.sh [NAME…]      without names: all of them
#
# With CHECK=1 it only sees whether each can be made and compiles. TRIES says how often the plans are tried (3): some
# mistakes show only when two things happen at the same moment.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
exec </dev/null

cargo=${CARGO:-cargo}
work=$PWD/target/mistakes
tree=$work/tree
export CAPI_IPAM_FAULT_LANES=1

names=("$@")
if [ $# -eq 0 ]; then
  for file in tests/faults/mistakes/*.patch; do names+=("$(basename -- "$file" .patch)"); done
fi

# Brings the copy to what is here, committed or not. What is the same keeps its time, so that little is built anew.
copy() {
  git ls-files -z | while IFS= read -r -d '' file; do
    if [ -f "$file" ] && ! cmp -s -- "$file" "$tree/$file"; then install -D -m 644 -- "$file" "$tree/$file"; fi
  done
}

# Makes a mistake in the copy and builds the manager with it.
build() {
  # Without its own repository the copy would be taken for a part of this one.
  GIT_CEILING_DIRECTORIES=$work git -C "$tree" apply "$PWD/tests/faults/mistakes/$1.patch" || return 1
  CARGO_TARGET_DIR=$work/build "$cargo" "$2" --quiet --locked --manifest-path "$tree/Cargo.toml" --bin manager
}

# Runs the plans of a mistake until one fails; says which, and what was seen.
hunt() {
  local plans found
  plans=$(sed -n 's/^plan: //p' "tests/faults/mistakes/$1.patch")
  for ((try = 1; try <= ${TRIES:-3}; try++)); do
    if ! CAPI_IPAM_MANAGER=$work/build/debug/manager CAPI_IPAM_FAULT_PLAN=$plans \
      "$cargo" test --quiet --locked --test faults one_thing -- --nocapture >"$work/$1.log" 2>&1; then
      found=$(grep -B1 '^FAILED: ' "$work/$1.log" | head -n 2 | sed 's/^[0-9/]* //; s/: [0-9.]*s, at rest.*//; s/^FAILED: //' | paste -sd ' ')
      # A run that failed for another reason found nothing.
      [ -n "$found" ] && echo "$found" && return 0
      tail -n 5 "$work/$1.log" >&2
    fi
  done
  return 1
}

mkdir -p "$tree"
if [ -z "${CHECK:-}" ]; then "$cargo" test --quiet --locked --test faults --no-run; fi
survived=0
for name in "${names[@]}"; do
  copy
  if [ -n "${CHECK:-}" ]; then
    if build "$name" check; then found='can be made'; else found='CANNOT BE MADE'; survived=1; fi
  elif ! build "$name" build; then
    found='CANNOT BE MADE' survived=1
  elif ! found=$(hunt "$name"); then
    found='NOT FOUND' survived=1
  fi
  printf '%-28s %s\n' "$name" "$found"
done
exit $survived
