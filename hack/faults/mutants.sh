#!/usr/bin/env bash
# Mutation testing of the fault plans: applies each patch in tests/faults/mutants to a copy of the repository, one at a
# time, and checks that a fault plan or a test detects it. The first line of a patch describes the mutant. The lines that
# begin with "plan: " are plans, at least one of which has to detect it. If there is a line that begins with "test: ", it
# names the test that has to detect it instead: the name of a package and one of its unit tests, or the name of a program
# in tests and one of its tests.
#
#   hack/faults/mutants.sh [NAME…]      default: all mutants
#
# With CHECK=1 it only checks that each patch applies and compiles. TRIES is the number of runs of the plans (default
# 3): some mutants are detected only with a certain timing.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
exec </dev/null

cargo=${CARGO:-cargo}
work=$PWD/target/mutants
tree=$work/tree
export CAPI_IPAM_FAULT_LANES=1

names=("$@")
if [ $# -eq 0 ]; then
  for file in tests/faults/mutants/*.patch; do names+=("$(basename -- "$file" .patch)"); done
fi

# Updates the copy to the working tree. Unchanged files keep their modification time, so that little is rebuilt.
copy() {
  git ls-files -z | while IFS= read -r -d '' file; do
    if [ -f "$file" ] && ! cmp -s -- "$file" "$tree/$file"; then install -D -m 644 -- "$file" "$tree/$file"; fi
  done
  # Files that were moved or deleted.
  (cd -- "$tree" && find . -type f -printf '%P\0') | while IFS= read -r -d '' file; do
    if [ ! -f "$file" ]; then rm -f -- "$tree/$file"; fi
  done
}

# Applies a mutant to the copy and builds the manager.
build() {
  # Without this variable git would treat the copy as a part of this repository.
  GIT_CEILING_DIRECTORIES=$work git -C "$tree" apply "$PWD/tests/faults/mutants/$1.patch" || return 1
  CARGO_TARGET_DIR=$work/build "$cargo" "$2" --quiet --locked --manifest-path "$tree/Cargo.toml" --bin manager
}

# Runs the plans of a mutant until one fails, and prints the plan and its violations.
run_plans() {
  local plans found
  plans=$(sed -n 's/^plan: //p' "tests/faults/mutants/$1.patch")
  for ((try = 1; try <= ${TRIES:-3}; try++)); do
    if ! CAPI_IPAM_MANAGER=$work/build/debug/manager CAPI_IPAM_FAULT_PLAN=$plans \
      "$cargo" test --quiet --locked --test faults single_faults -- --nocapture >"$work/$1.log" 2>&1; then
      found=$(grep -B1 '^FAILED: ' "$work/$1.log" | head -n 2 | sed 's/^[0-9/]* //; s/: [0-9.]*s, at rest.*//; s/^FAILED: //' | paste -sd ' ')
      # A run that failed for another reason has detected nothing.
      [ -n "$found" ] && echo "$found" && return 0
      tail -n 5 "$work/$1.log" >&2
    fi
  done
  return 1
}

test_of() {
  sed -n 's/^test: //p' "tests/faults/mutants/$1.patch"
}

# Runs the test of a mutant, and prints its name if it fails.
run_test() {
  local test log=$work/$1.log
  test=$(test_of "$1")
  if [[ $test == capi-ipam* ]]; then
    CARGO_TARGET_DIR=$work/build "$cargo" test --quiet --locked --manifest-path "$tree/Cargo.toml" \
      --package "${test% *}" --lib -- --exact "${test#* }" >"$log" 2>&1 && return 1
  else
    CAPI_IPAM_MANAGER=$work/build/debug/manager \
      "$cargo" test --quiet --locked --test "${test% *}" -- --exact "${test#* }" >"$log" 2>&1 && return 1
  fi
  # A run that failed for another reason has detected nothing.
  grep -q "^test result: FAILED" "$log" && echo "$test" && return 0
  tail -n 5 "$log" >&2
  return 1
}

mkdir -p "$tree"
if [ -z "${CHECK:-}" ]; then "$cargo" test --quiet --locked --test faults --no-run; fi
survived=0
for name in "${names[@]}"; do
  copy
  if [ -n "${CHECK:-}" ]; then
    if build "$name" check; then found='compiles'; else found='DOES NOT COMPILE'; survived=1; fi
  elif ! build "$name" build; then
    found='DOES NOT COMPILE' survived=1
  elif [ -n "$(test_of "$name")" ]; then
    if ! found=$(run_test "$name"); then found='NOT DETECTED' survived=1; fi
  elif ! found=$(run_plans "$name"); then
    found='NOT DETECTED' survived=1
  fi
  printf '%-32s %s\n' "$name" "$found"
done
exit $survived
