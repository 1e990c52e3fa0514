#!/usr/bin/env bash
# Runs a program as a container of the image would: as user 65532, with no environment, no capability, and a read-only
# root file system in which there is nothing but this program and the folders that flags name. Only the network and
# the processes are those of this machine. It needs Linux, and no privilege where users may make namespaces.
#
#   CAPI_IPAM_CONTAINED=PROGRAM contain.sh ARGUMENT...
#
# A flag's folder is mounted where it is: that of the file in --kubeconfig=FILE, and --webhook-cert-dir=FOLDER.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
program=$(readlink -f -- "${CAPI_IPAM_CONTAINED:?names the program}")
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

# Each step replaces the one before, so that the process has one number from here to the end. First namespaces in which
# this user may mount (the inner shell), then one more in which it is only a user without rights. The new root is mounted
# on the folder of this script: any would do, for nobody else sees it.
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
