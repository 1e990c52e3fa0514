#!/usr/bin/env bash
# Builds the static manager binary of the image and prints its path to stdout. Progress is written to stderr. `make
# image` and the Dockerfile use this script.
#
#   build-binary.sh amd64|arm64
#
# The program states the commit in the variable CAPI_IPAM_REVISION as its revision.
#
# The target is Linux with musl, which Rust includes with its linker (rust-lld). Only the C and assembly code of the
# crate `ring` needs a C compiler, and no C library. The first available one of these is used:
#
#   CC_x86_64_unknown_linux_musl, CC_aarch64_unknown_linux_musl    variables with a compiler
#   cc                                                    for the architecture of this machine
#   clang                                                 for any other
#   aarch64-linux-gnu-gcc or x86_64-linux-gnu-gcc         for that architecture
#   zig, installed by pip into the cache                  for any other
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd -- "$here/../.." && pwd -P)

die() {
  printf 'image: %s\n' "$*" >&2
  exit 1
}

case ${1:-} in
  amd64) cpu=x86_64 ;;
  arm64) cpu=aarch64 ;;
  *) die "unknown architecture: '${1:-}' (amd64 or arm64)" ;;
esac
triple=$cpu-unknown-linux-musl
cd -- "$root" # the compiler is the one of rust-toolchain.toml
cargo=${CARGO:-cargo}
command -v "$cargo" >/dev/null || die 'cargo is missing: install Rust with rustup'

# === the Rust target ===

libraries=$(rustc --print target-libdir --target "$triple")
if [[ ! -d $libraries ]]; then
  command -v rustup >/dev/null || die "this Rust has no target $triple, and there is no rustup to add it"
  rustup target add "$triple" >&2
fi

# === the C compiler ===

machine=$(uname -m)
if [[ $machine == arm64 ]]; then machine=aarch64; fi

cc_variable=CC_${triple//-/_}
if [[ -z ${!cc_variable:-} ]]; then
  if [[ $(uname -s) == Linux && $machine == "$cpu" ]] && command -v cc >/dev/null; then
    compiler=cc
  elif command -v clang >/dev/null; then
    compiler=clang
  elif command -v "$cpu-linux-gnu-gcc" >/dev/null; then
    compiler=$cpu-linux-gnu-gcc
  elif command -v python3 >/dev/null; then
    ZIG=$("$here/../ensure-tool.sh" zig)
    export ZIG
    compiler=$here/zig-cc.sh
  else
    die "no C compiler for $cpu: install clang or gcc-$cpu-linux-gnu (or Python with pip, which installs zig)"
  fi
  export "$cc_variable=$compiler"
fi

# === the program ===

# Paths of this machine are remapped, so that builds in any folder are identical.
cargo_home=${CARGO_HOME:-${HOME:?neither CARGO_HOME nor HOME is set}/.cargo}
flags=(
  -Clinker=rust-lld -Clink-self-contained=yes -Ctarget-feature=+crt-static
  "--remap-path-prefix=$cargo_home=/cargo" "--remap-path-prefix=$root=/src"
)
separator=$'\x1f'
printf -v encoded "%s$separator" "${flags[@]}"
target=${CARGO_TARGET_DIR:-$root/target}

printf 'image: building the manager for %s with %s\n' "$triple" "${!cc_variable}" >&2
env -u RUSTFLAGS CARGO_ENCODED_RUSTFLAGS="${encoded%"$separator"}" \
  "$cargo" build --locked --release --bin manager --target "$triple" --target-dir "$target" >&2
printf '%s\n' "$target/$triple/release/manager"
