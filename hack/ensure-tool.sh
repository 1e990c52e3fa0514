#!/usr/bin/env bash
# Makes sure that a developer's tool is there in the one version that this tree is checked with, and says where. The
# answer is the one line on stdout; what is being built goes to stderr.
#
#   ensure-tool.sh cargo-deny    the program cargo-deny
#
# The tools lie outside of the tree, in ${XDG_CACHE_HOME:-$HOME/.cache}/capi-ipam/tools, one folder per version.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)

case ${1:-} in
  cargo-deny) version=0.20.2 minutes='3 to 6 minutes on 2 cores' ;;
  *)
    echo "unknown tool: '${1:-}' (cargo-deny)" >&2
    exit 1
    ;;
esac

cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set: no place for the tools}/.cache}
folder=$cache/capi-ipam/tools/$1-$version
program=$folder/bin/$1

if [[ ! -x $program ]]; then
  mkdir -p -- "$folder"
  if command -v flock >/dev/null; then # two builds at once would only slow each other down
    exec 9>"$folder/lock"
    flock 9
  fi
fi
if [[ ! -x $program ]]; then
  echo "tools: building $1 $version: once on this machine, $minutes" >&2
  cd -- "$here" # the compiler is the one of rust-toolchain.toml
  # A target folder set for the product's builds is not for tools.
  env -u CARGO_TARGET_DIR cargo install --locked --quiet --root "$folder" --version "$version" "$1" >&2
  echo "tools: done after $SECONDS s: $program" >&2
fi
printf '%s\n' "$program"
