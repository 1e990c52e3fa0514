#!/usr/bin/env bash
# Writes the software bill of materials of the image beside its archive, in the format of CycloneDX (JSON), and prints its
# path to stdout. It contains every crate that the program is built from, with version, licence and checksum.
#
#   sbom.sh [linux/amd64,linux/arm64]     one file for each of these platforms; default: that of this machine
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd -- "$here/../.." && pwd -P)

IFS=, read -ra platforms <<<"${1:-linux/$(uname -m)}"
archive=$("$here/build.sh" --print-archive)
tool=$("$here/../ensure-tool.sh" cargo-cyclonedx)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
mkdir -p -- "${archive%/*}"

# The tool writes a file beside the Cargo.toml of each package of the workspace.
name=sbom-$$
trap 'find "$root" -maxdepth 3 -name "$name.json" -delete' EXIT
for platform in "${platforms[@]}"; do
  case $platform in
    linux/amd64 | linux/x86_64) architecture=amd64 triple=x86_64-unknown-linux-musl ;;
    linux/arm64 | linux/aarch64) architecture=arm64 triple=aarch64-unknown-linux-musl ;;
    *)
      printf "sbom: unknown platform: '%s' (linux/amd64, linux/arm64)\n" "$platform" >&2
      exit 1
      ;;
  esac
  (cd -- "$root" && "$tool" cyclonedx --quiet --format json --spec-version 1.5 --target "$triple" --no-build-deps \
    --override-filename "$name" >&2)
  # Identifiers of local packages contain the path of the checkout.
  sed "s|path+file://$root|path+file://|g" "$root/$name.json" >"${archive%.tar}-$architecture.cdx.json"
  printf '%s\n' "${archive%.tar}-$architecture.cdx.json"
done
