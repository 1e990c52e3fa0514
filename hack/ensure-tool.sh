#!/usr/bin/env bash
# Installs a development tool in its pinned version and prints its path to stdout. Progress is written to stderr.
#
#   ensure-tool.sh cargo-cyclonedx  the program cargo-cyclonedx
#   ensure-tool.sh cargo-deny       the program cargo-deny
#   ensure-tool.sh protoc           the program protoc, from the crate that holds it
#   ensure-tool.sh zig              the program zig: a C compiler for all architectures, from the wheel that holds it
#
# The tools are installed outside of the repository, in ${XDG_CACHE_HOME:-$HOME/.cache}/capi-ipam/tools, one folder per
# version.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)

case ${1:-} in
  cargo-cyclonedx) version=0.5.9 doing='building, about a minute on 2 cores' ;;
  cargo-deny) version=0.20.2 doing='building, 1 to 3 minutes on 2 cores' ;;
  protoc) version=3.3.0 doing='downloading 5 MB' ;;
  zig) version=0.17.1 doing='downloading 100 MB' ;;
  *)
    echo "unknown tool: '${1:-}' (cargo-cyclonedx, cargo-deny, protoc or zig)" >&2
    exit 1
    ;;
esac

cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set: there is no folder for the tools}/.cache}
folder=$cache/capi-ipam/tools/$1-$version
case $1 in
  zig) program=$folder/ziglang/zig ;;
  *) program=$folder/bin/$1 ;;
esac

# Builds tools that are Rust programs, with the compiler of rust-toolchain.toml. They run for seconds, so a build without
# optimization is the fastest. The target folder of the product is not used.
build() {
  cd -- "$here"
  env -u CARGO_TARGET_DIR cargo install --debug --locked --quiet --root "$folder" --version "$version" "$1" >&2
}

# A program that depends on the crate prints the path of protoc in the sources of the crate.
fetch_protoc() {
  local work path
  work=$(mktemp -d "$folder/.fetching.XXXXXX")
  # shellcheck disable=SC2064 # expanded now on purpose
  trap "rm -rf -- '$work'" EXIT
  mkdir -p -- "$work/src" "$folder/bin"
  cat >"$work/Cargo.toml" <<EOF
[package]
name = "find-protoc"
edition = "2024"
[dependencies]
protoc-bin-vendored = "=$version"
[workspace]
EOF
  cat >"$work/src/main.rs" <<'EOF'
fn main() {
    println!("{}", protoc_bin_vendored::protoc_bin_path().expect("this platform has a protoc").display());
}
EOF
  path=$(cd -- "$here" && cargo run --quiet --manifest-path "$work/Cargo.toml" --target-dir "$work/target")
  # The well-known types are in a folder beside it.
  cp -R -- "$(dirname -- "$path")/../include" "$folder/include"
  cp -- "$path" "$folder/bin/protoc"
}

# The hashes of the wheels for Linux, x86_64 and aarch64.
fetch_zig() {
  local work
  python3 -m pip --version >/dev/null 2>&1 || {
    echo 'tools: zig is installed with pip: install Python 3 with pip (or another C compiler, see hack/image/build-binary.sh)' >&2
    exit 1
  }
  work=$(mktemp -d "$folder/.fetching.XXXXXX")
  # shellcheck disable=SC2064 # expanded now on purpose
  trap "rm -rf -- '$work'" EXIT
  cat >"$work/requirements" <<EOF
ziglang==$version \\
  --hash=sha256:ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54 \\
  --hash=sha256:b7c5f02fccd40f89b999ee16a1f5ddced56e6182370f8affe494bcf8a28cf07e
EOF
  PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --requirement "$work/requirements" --target "$work/target" >&2
  mv -- "$work/target/ziglang" "$folder/ziglang"
}

if [[ ! -x $program ]]; then
  mkdir -p -- "$folder"
  if command -v flock >/dev/null; then # only one build at a time
    exec 9>"$folder/lock"
    flock 9
  fi
fi
if [[ ! -x $program ]]; then
  echo "tools: $1 $version: $doing, once on this machine" >&2
  case $1 in
    protoc) fetch_protoc ;;
    zig) fetch_zig ;;
    *) build "$1" ;;
  esac
  echo "tools: done after $SECONDS s: $program" >&2
fi
printf '%s\n' "$program"
