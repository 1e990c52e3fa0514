#!/usr/bin/env bash
# Packs a built kubectl-ipam for krew, the plugin manager of kubectl:
#
#   krew.sh PROGRAM [URL]
#
#   target/krew/kubectl-ipam_OS_ARCH.tar.gz  the program, the script for tab completion, and the licence
#   target/krew/ipam.yaml                    the manifest of the plugin
#
# URL is the folder where the archive will be published. Without a publication, krew installs both files:
#
#   kubectl krew install --manifest=target/krew/ipam.yaml --archive=target/krew/kubectl-ipam_OS_ARCH.tar.gz
set -euo pipefail
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
program=${1:?usage: krew.sh PROGRAM [URL]}
url=${2:-https://example.com/releases}

version=v$(sed -n '/^\[workspace.package\]/,/^$/ s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")
os=$(uname -s | tr '[:upper:]' '[:lower:]')
case $(uname -m) in
  x86_64) architecture=amd64 ;;
  aarch64 | arm64) architecture=arm64 ;;
  *) architecture=$(uname -m) ;;
esac
folder=$root/target/krew
archive=kubectl-ipam_${os}_${architecture}.tar.gz
mkdir -p -- "$folder/files"
cp -- "$program" "$folder/files/kubectl-ipam"
cp -- "$root/crates/kubectl-ipam/kubectl_complete-ipam" "$folder/files/kubectl_complete-ipam"
cp -- "$root/LICENSE" "$folder/files/LICENSE"
chmod 755 "$folder/files/kubectl-ipam" "$folder/files/kubectl_complete-ipam"
# Without times and owners, equal programs have equal archives.
tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --directory="$folder/files" \
  kubectl-ipam kubectl_complete-ipam LICENSE | gzip --no-name >"$folder/$archive"
rm -rf -- "$folder/files"
sum=$(sha256sum -- "$folder/$archive")

cat >"$folder/ipam.yaml" <<END
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: ipam
spec:
  version: $version
  homepage: ${url%/*}
  shortDescription: Shows IP address pools of Cluster API
  description: |
    Shows the IP address pools of Cluster API's in-cluster IPAM provider, their addresses, who holds them and why
    claims wait. Finds and repairs what is wrong, reserves addresses, and converts tables of pools to manifests.
  caveats: |
    For tab completion after "kubectl ipam", kubectl looks for kubectl_complete-ipam in PATH, which krew does not link:
      root=\${KREW_ROOT:-\$HOME/.krew}
      ln -sf "\$root/store/ipam/$version/kubectl_complete-ipam" "\$root/bin/"
  platforms:
    - selector:
        matchLabels:
          os: $os
          arch: $architecture
      uri: $url/$version/$archive
      sha256: ${sum%% *}
      bin: kubectl-ipam
      files:
        - from: kubectl-ipam
          to: .
        - from: kubectl_complete-ipam
          to: .
        - from: LICENSE
          to: .
END
printf 'krew: %s/ipam.yaml\n' "$folder"
