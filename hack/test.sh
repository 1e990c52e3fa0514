#!/usr/bin/env bash
# Runs all tests, and several test programs at the same time: each of them often waits.
#
#   hack/test.sh             all tests
#   hack/test.sh ARGUMENTS   the tests that these arguments of `cargo test` select
#
# TEST_JOBS is the number of test programs that run at the same time (default 4), and RUST_TEST_THREADS the number of
# tests that run at the same time in each of them (default: as many as there are processors). Most tests run their own API
# server, and use one processor on average. Their output is kept in target/test-logs.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
cargo=${CARGO:-cargo}
jobs=${TEST_JOBS:-4}
logs=target/test-logs
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(getconf _NPROCESSORS_ONLN)}
# Several API servers run at the same time. With one processor each, a start takes a tenth less processor time.
export GOMAXPROCS=${GOMAXPROCS:-1}

if [ $# -gt 0 ]; then
  exec "$cargo" test --locked --workspace --no-fail-fast "$@"
fi

# Runs one test program. Its output is shown when it fails.
run_one() {
  local name=$1 start=$SECONDS log=$logs/$1.log
  # With fewer packages the dependencies would have other features, and all would be compiled again.
  local arguments=(--workspace --test "$1")
  case $name in
    # The programs by name: those of the fuzz targets have no tests.
    unit)
      arguments=(
        --workspace --lib --bin manager --bin kubectl-ipam --bin list-provider --bin nats-controller
        --bin team-labels --bin operator --bin demo --bin demo-clusters --bin xtask
      )
      ;;
    kubectl-ipam) arguments=(--workspace --test plugin --test krew --test page) ;;
    # Its conformance test runs with that of the in-cluster provider.
    list-provider) arguments=(--workspace --test guide --test late_write --test provider --test size) ;;
    nats-controller) arguments=(--workspace --test controller --test controller_guide --test team_labels) ;;
    # The generated files, too.
    demo) arguments=(--workspace --test demo --test generated) ;;
    model) arguments=(--workspace --test model) ;;
    etcd-provider) arguments=(--manifest-path examples/etcd-provider/Cargo.toml --target-dir target) ;;
    documentation) arguments=(--workspace --doc) ;;
  esac
  if "$cargo" test --locked --quiet --no-fail-fast "${arguments[@]}" >"$log" 2>&1; then
    printf '%-16s ok, %d s, %d tests\n' "$name" $((SECONDS - start)) \
      "$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ all += $1 } END { print all + 0 }')"
  else
    printf '%-16s FAILED after %d s; its output:\n' "$name" $((SECONDS - start))
    cat "$log"
    printf '%-16s FAILED (%s)\n' "$name" "$log"
    return 1
  fi
}
export -f run_one
export cargo logs

mkdir -p "$logs"
"$cargo" test --locked --workspace --no-run
# The client of etcd needs protoc to build.
PROTOC=${PROTOC:-$(hack/ensure-tool.sh protoc)}
export PROTOC
"$cargo" test --locked --manifest-path examples/etcd-provider/Cargo.toml --target-dir target --no-run

# The slowest programs are first.
names=(kubectl-ipam blocks faults conformance views rollout takeover install chaos webhooks cluster repair model)
for file in tests/*.rs tests/*/main.rs; do
  name=$(basename "${file%/main.rs}" .rs)
  [[ " ${names[*]} " == *" $name "* ]] || names+=("$name")
done
names+=(nats nats-controller operator registry demo list-provider etcd-provider unit documentation)

printf '%s\n' "${names[@]}" | xargs -P "$jobs" -I '{}' bash -c 'run_one {}' ||
  { echo 'some tests failed: see above' >&2; exit 1; }
printf 'all tests passed after %d s\n' "$SECONDS"
