#!/usr/bin/env bash
# Copies manifests/ to a release in the layout of clusterctl, and writes a clusterctl.yaml that refers to it:
#
#   target/release-files/ipam-in-cluster/vVERSION/{ipam-components,metadata}.yaml
#   target/release-files/clusterctl.yaml
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

version=v$(sed -n '/^\[workspace.package\]/,/^$/ s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
releases=$root/target/release-files
folder=$releases/ipam-in-cluster/$version

# Replaces a file at once: a concurrent reader never finds a part of it.
write() {
  local temporary
  temporary=$(mktemp "$1.XXXXXX")
  cat >"$temporary"
  chmod 644 -- "$temporary"
  mv -f -- "$temporary" "$1"
}

mkdir -p -- "$folder"
for name in ipam-components.yaml metadata.yaml; do write "$folder/$name" <"$root/manifests/$name"; done
write "$releases/clusterctl.yaml" <<END
providers:
  - name: in-cluster
    type: IPAMProvider
    url: $releases/ipam-in-cluster/latest/ipam-components.yaml
END
printf 'release %s of the provider in-cluster: %s/clusterctl.yaml\n' "$version" "$releases"
