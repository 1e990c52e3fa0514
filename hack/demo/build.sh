#!/usr/bin/env bash
# Builds what the demo needs: etcd, kube-apiserver and kubectl, unless the machine has them, and at the same time the
# manager, the plugin of kubectl and the demo itself.
#
#   hack/demo/build.sh         for `make demo`
#   hack/demo/build.sh nats    for `make demo-clusters`, with nats-server
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

hack/control-plane/ensure.sh server >/dev/null &
programs=$!
# It ends with this script: a build that fails is not waited for.
trap 'kill "$programs" 2>/dev/null || true' EXIT

"${CARGO:-cargo}" build --locked --package capi-ipam --package kubectl-ipam --package demo --bins
if kill -0 "$programs" 2>/dev/null; then
  echo 'demo: waiting for the control plane' >&2
fi
wait "$programs"
# The definitions of Cluster API are part of a Go module.
hack/control-plane/ensure.sh crds >/dev/null
if [ "${1:-}" = nats ]; then
  hack/control-plane/ensure.sh nats >/dev/null
fi
trap - EXIT
