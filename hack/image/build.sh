#!/usr/bin/env bash
# Builds the container image without a container runtime: one archive that `docker load`, `podman load`, `skopeo copy`
# and `kind load image-archive` accept. Progress is written to stderr, and the path of the archive to stdout.
#
#   build.sh [linux/amd64,linux/arm64]     for these platforms; default: that of this machine
#   build.sh --print-archive               only prints the path of the archive
#
# Variables: IMAGE, the name without a tag (localhost/capi-ipam; the tag is v and the version in Cargo.toml), and
# SOURCE_DATE_EPOCH, the creation time of the image (default: that of the last commit). The same sources, compilers and
# time produce an identical image.
#
# An image consists of JSON files and a tar file, each named by its digest
# (https://github.com/opencontainers/image-spec). `make image-test` tests the result. The script needs GNU tar.
set -euo pipefail
shopt -s inherit_errexit # a failure within $(...) is a failure here

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
root=$(cd -- "$here/../.." && pwd -P)

say() { printf 'image: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# from_manifest KEY: a field of the package in Cargo.toml, or the one that it inherits from the workspace.
from_manifest() {
  local table
  for table in package workspace.package; do
    sed -n "/^\[$table\]/,/^\$/ s/^$1 = \"\(.*\)\"\$/\1/p" "$root/Cargo.toml"
  done | head -n 1
}

version=$(from_manifest version)
archive=$root/target/image/capi-ipam-$version.tar
if [[ ${1:-} == --print-archive ]]; then
  printf '%s\n' "$archive"
  exit
fi

case $(uname -m) in
  x86_64 | amd64) own=linux/amd64 ;;
  aarch64 | arm64) own=linux/arm64 ;;
  *) own="" ;;
esac
platforms=${1:-$own}
[[ -n $platforms ]] || die "unknown machine $(uname -m): set the platforms, for example PLATFORMS=linux/amd64,linux/arm64"
IFS=, read -ra platforms <<<"$platforms"
for platform in "${platforms[@]}"; do
  [[ $platform == linux/amd64 || $platform == linux/arm64 ]] || die "unknown platform: '$platform' (linux/amd64, linux/arm64)"
done

tar --version 2>/dev/null | grep -q 'GNU tar' || die 'GNU tar is needed to pack the image'
for program in gzip sha256sum; do command -v "$program" >/dev/null || die "$program is missing"; done

# === metadata of the image ===

name=${IMAGE:-localhost/capi-ipam}
revision=$(git -C "$root" rev-parse HEAD 2>/dev/null) || revision=unknown
if [[ $revision != unknown && -n $(git -C "$root" status --porcelain) ]]; then revision+=-dirty; fi
export CAPI_IPAM_REVISION=$revision # the program states it
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 0)}
created=$(date --utc --date="@$epoch" +%Y-%m-%dT%H:%M:%SZ)

# === the files of an image ===

mkdir -p -- "${archive%/*}"
work=$(mktemp -d "${archive%/*}/.building.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
layout=$work/layout
mkdir -p -- "$layout/blobs/sha256"

digest() { sha256sum <"$1" | cut -d ' ' -f 1; }

# blob MEDIA-TYPE FILE [MORE]: moves a file into the layout, and prints its descriptor.
blob() {
  local sum size
  sum=$(digest "$2")
  size=$(wc -c <"$2")
  mv -- "$2" "$layout/blobs/sha256/$sum"
  printf '{"mediaType":"%s","digest":"sha256:%s","size":%d%s}' "$1" "$sum" "$size" "${3:-}"
}

# digest_of DESCRIPTOR: the digest in a descriptor of `blob`.
digest_of() {
  local rest=${1#*\"sha256:}
  printf '%s\n' "${rest%%\"*}"
}

# pack FOLDER FILE...: writes a reproducible tar file to stdout.
pack() {
  local folder=$1
  shift
  tar --create --directory="$folder" --format=ustar --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$epoch" --mode='u=rwX,go=rX' -- "$@"
}

# one PLATFORM: the image of one platform; what an index says of it.
one() {
  local architecture=${1#linux/} program config layer unpacked
  program=$("$here/build-binary.sh" "$architecture")
  mkdir -p -- "$work/files"
  install -m 755 -- "$program" "$work/files/manager"
  pack "$work/files" manager >"$work/layer"
  unpacked=$(digest "$work/layer")
  gzip --best --no-name "$work/layer"
  layer=$(blob application/vnd.oci.image.layer.v1.tar+gzip "$work/layer.gz")
  cat >"$work/config" <<EOF
{
  "created": "$created",
  "architecture": "$architecture",
  "os": "linux",
  "config": {
    "User": "65532:65532",
    "Entrypoint": ["/manager"],
    "WorkingDir": "/",
    "Labels": {
      "org.opencontainers.image.title": "$(from_manifest name)",
      "org.opencontainers.image.description": "$(from_manifest description)",
      "org.opencontainers.image.licenses": "$(from_manifest license)",
      "org.opencontainers.image.version": "$version",
      "org.opencontainers.image.revision": "$revision"
    }
  },
  "rootfs": {"type": "layers", "diff_ids": ["sha256:$unpacked"]}
}
EOF
  config=$(blob application/vnd.oci.image.config.v1+json "$work/config")
  cat >"$work/manifest" <<EOF
{
  "schemaVersion": 2,
  "mediaType": "application/vnd.oci.image.manifest.v1+json",
  "config": $config,
  "layers": [$layer]
}
EOF
  # Read by `docker load` without the containerd image store, which supports only one platform.
  if [[ $1 == "$own" || ! -f $layout/manifest.json ]]; then
    printf '[{"Config":"blobs/sha256/%s","RepoTags":["%s"],"Layers":["blobs/sha256/%s"]}]\n' \
      "$(digest_of "$config")" "$name:v$version" "$(digest_of "$layer")" >"$layout/manifest.json"
  fi
  blob application/vnd.oci.image.manifest.v1+json "$work/manifest" \
    ",\"platform\":{\"architecture\":\"$architecture\",\"os\":\"linux\"}"
}

# === the archive ===

images=()
for platform in "${platforms[@]}"; do
  image=$(one "$platform")
  say "$platform: sha256:$(digest_of "$image")"
  images+=("$image")
done

if ((${#images[@]} == 1)); then
  top=${images[0]}
else
  list=$(printf ',%s' "${images[@]}")
  printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}\n' "${list#,}" >"$work/index"
  top=$(blob application/vnd.oci.image.index.v1+json "$work/index")
fi
names="{\"io.containerd.image.name\":\"$name:v$version\",\"org.opencontainers.image.ref.name\":\"v$version\"}"
printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]}\n' \
  "${top%\}},\"annotations\":$names}" >"$layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}\n' >"$layout/oci-layout"

pack "$layout" oci-layout index.json manifest.json blobs >"$work/archive"
mv -- "$work/archive" "$archive"
say "$name:v$version, sha256:$(digest_of "$top"), $(($(wc -c <"$archive") / 1024 / 1024)) MiB"
printf '%s\n' "$archive"
