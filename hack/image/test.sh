#!/usr/bin/env bash
# Tests the image that `make image` made: what is in the archive (tests/image.rs), and then its very program against a
# real API server, run as in a container (contain.sh).
#
#   test.sh [ARGUMENT...]     arguments of `cargo test`: which tests the program has to pass
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
[[ -f $archive ]] || die "$archive is missing: make image"
CAPI_IPAM_IMAGE=$archive "$cargo" test --locked --test image -- --include-ignored

# === its program ===

[[ $(uname -s) == Linux ]] || die 'the program of the image runs on Linux only'
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
layer=$(tar -xOf "$archive" manifest.json | sed 's|.*"Layers":\["\([^"]*\)"\].*|\1|')
tar -xOf "$archive" "$layer" | tar -xzf - -C "$work"

if unshare --user --map-root-user --mount true 2>/dev/null; then
  export CAPI_IPAM_CONTAINED=$work/manager
  program=$here/contain.sh
else
  say 'this user may not make namespaces: the program runs without a container around it'
  program=$work/manager
fi
answer=$("$program" --version) || die "the program of the archive does not run here; is it for a $(uname -m)?"
say "$answer"
[[ ${answer##* } == "$(basename -- "$archive" .tar | sed 's/^capi-ipam-//')" ]] || die "but the archive is $archive"
CAPI_IPAM_MANAGER=$program "$cargo" test --locked --no-fail-fast "$@"
