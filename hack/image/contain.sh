#!/usr/bin/env bash
# Runs a program as in a container of the image: as user 65532, with an empty environment, without capabilities, and
# with a read-only root file system that contains only this program and the folders in flags. Only network and processes
# are those of the host. It needs Linux, and no privileges where users may create namespaces.
#
#   CAPI_IPAM_CONTAINED=PROGRAM contain.sh ARGUMENT...
#
# Folders in flags are mounted at their path: that of the file in --kubeconfig=FILE, and --webhook-cert-dir=FOLDER.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
program=$(readlink -f -- "${CAPI_IPAM_CONTAINED:?must contain the path of the program}")
folders=()
for argument; do
  case $argument in
    --kubeconfig=/*)
      folder=${argument#*=}
      folders+=("${folder%/*}")
      ;;
    --webhook-cert-dir=/*) folders+=("${argument#*=}") ;;
  esac
done

# Each step replaces the previous one with exec, so that the process id stays the same. The inner shell runs in
# namespaces in which this user may mount; the last step enters one in which it is an unprivileged user. The new root is
# mounted on the folder of this script: any folder works, since the mount is private.
# shellcheck disable=SC2016 # the inner shell expands it
exec unshare --user --map-root-user --mount -- bash -c '
  set -euo pipefail
  root=$1 program=$2 count=$3
  shift 3
  mount -t tmpfs -o mode=755 tmpfs "$root"
  install -m 755 -- "$program" "$root/manager"
  for folder in "${@:1:count}"; do
    mkdir -p -- "$root$folder"
    mount --rbind -- "$folder" "$root$folder"
    mount -o remount,bind,ro,nosuid,nodev -- "$root$folder"
  done
  shift "$count"
  mount -o remount,bind,ro -- "$root"
  exec env --ignore-environment "$(command -v unshare)" --user --map-user=65532 --map-group=65532 --root="$root" \
    --wd=/ -- /manager "$@"
' contain "$here" "$program" "${#folders[@]}" "${folders[@]}" "$@"
