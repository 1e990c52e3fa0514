#!/usr/bin/env bash
# Tests the image of `make image`: the content of the archive (tests/image.rs), and its binary against a real API
# server, run as in a container (contain.sh).
#
#   test.sh [ARGUMENT...]     arguments of `cargo test` that select the tests of the binary
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
cd -- "$here/../.."
cargo=${CARGO:-cargo}
if (($# == 0)); then set -- --test cluster --test webhooks -- bind:: certificates::; fi

say() { printf 'image test: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

archive=$("$here/build.sh" --print-archive)
[[ -f $archive ]] || die "$archive is missing: run make image"
CAPI_IPAM_IMAGE=$archive "$cargo" test --locked --test image -- --include-ignored

# === the binary ===

[[ $(uname -s) == Linux ]] || die 'the binary of the image runs on Linux only'
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
layer=$(tar -xOf "$archive" manifest.json | sed 's|.*"Layers":\["\([^"]*\)"\].*|\1|')
tar -xOf "$archive" "$layer" | tar -xzf - -C "$work"

if unshare --user --map-root-user --mount true 2>/dev/null; then
  export CAPI_IPAM_CONTAINED=$work/manager
  program=$here/contain.sh
else
  say 'this user may not create namespaces: the binary runs without a container'
  program=$work/manager
fi
answer=$("$program" --version) || die "the binary of the archive does not run; is it for $(uname -m)?"
say "$answer"
built=$(basename -- "$archive" .tar | sed 's/^capi-ipam-//')
[[ $answer == *" $built ("*")" ]] || die "but the archive is $archive"
CAPI_IPAM_MANAGER=$program "$cargo" test --locked --no-fail-fast "$@"
