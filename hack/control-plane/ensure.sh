#!/usr/bin/env bash
# Finds or builds the programs of the test control plane, and prints their folder to stdout. Progress is written to
# stderr.
#
#   ensure.sh                 the folder with etcd, kube-apiserver, kube-controller-manager and kubectl
#   ensure.sh server          the folder with etcd, kube-apiserver and kubectl: all that the demo needs
#   ensure.sh crds            the folder with the core CRDs of Cluster API
#   ensure.sh metallb         the folder with the CRDs of MetalLB
#   ensure.sh cilium          the folder with those of Cilium, in a folder for each version
#   ensure.sh cluster-api-operator  the folder with the CRDs of the Cluster API operator
#   ensure.sh external-dns    the folder with the CRDs of ExternalDNS
#   ensure.sh lua             the folder with glua, the Lua interpreter of Argo CD
#   ensure.sh cluster-api     the folder with clusterctl, and the core manager of Cluster API under the name core
#   ensure.sh helm            the folder with helm
#   ensure.sh otel-collector  the folder with an OpenTelemetry collector
#   ensure.sh nats            the folder with nats-server
#   ensure.sh prometheus      the folder with prometheus and promtool
#   ensure.sh go-provider     the folder with the Go in-cluster provider, under the name cluster-api-ipam-provider-in-cluster
#   ensure.sh chromium        the folder with chromium and chromedriver, which Debian's packages install
#   ensure.sh typescript      the folder with tsc, the compiler of TypeScript, which npm installs
#
# The programs are those in the folder KUBEBUILDER_ASSETS if it contains etcd and kube-apiserver (missing programs are
# built, and linked in another folder), or those in the cache ${XDG_CACHE_HOME:-$HOME/.cache}/capi-ipam. Otherwise they are
# built into the cache from the Go modules beside this script. Those of `server` are downloaded instead, as the archive of
# envtest that the index ENVTEST_INDEX names, if that is possible. The archive has no kube-controller-manager, which the
# tests of garbage collection need.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=versions.env
. "$here/versions.env"

cache=${XDG_CACHE_HOME:-${HOME:?neither XDG_CACHE_HOME nor HOME is set: there is no folder for the programs}/.cache}/capi-ipam
work=""     # the temporary folder of a running build
lock_dir="" # the lock, on systems without flock

say() { printf 'control plane: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# shellcheck disable=SC2329 # called by the trap
clean_up() {
  if [[ -n $work ]]; then rm -rf -- "$work"; fi
  if [[ -n $lock_dir ]]; then rm -rf -- "$lock_dir"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# === versions ===

# requires SET MODULE VERSION: checks that the go.mod of the set requires this version of the module.
requires() {
  grep -qE "^(require )?[[:space:]]*$2 $3( |\$)" "$here/$1/go.mod" ||
    die "versions.env has $2 $3, and $1/go.mod has another version: change both, then run 'go mod tidy' in hack/control-plane/$1"
}

# replaces SET VERSION: checks that every replacement in the go.mod of the set has this version.
replaces() {
  local other
  other=$(grep -F ' => ' "$here/$1/go.mod" | grep -vE " ${2//./\\.}\$" | head -n 1) || true
  [[ -z $other ]] ||
    die "versions.env has $2, and $1/go.mod has '${other#"${other%%[![:space:]]*}"}': change both, then run 'go mod tidy' in hack/control-plane/$1"
}

check_versions() {
  requires etcd go.etcd.io/etcd/server/v3 "$ETCD_VERSION"
  requires kubernetes k8s.io/kubernetes "$KUBERNETES_VERSION"
  replaces kubernetes "$STAGING_VERSION"
  requires cluster-api sigs.k8s.io/cluster-api "$CLUSTER_API_VERSION"
  replaces cluster-api "$CLUSTER_API_VERSION"
  requires otel-collector go.opentelemetry.io/collector/otelcol "$OTEL_COLLECTOR_VERSION"
  requires helm helm.sh/helm/v4 "$HELM_VERSION"
  requires go-provider sigs.k8s.io/cluster-api-ipam-provider-in-cluster "$GO_PROVIDER_VERSION"
  requires prometheus github.com/prometheus/prometheus "$PROMETHEUS_VERSION"
  requires definitions go.universe.tf/metallb "$METALLB_VERSION"
  requires definitions github.com/cilium/cilium "$CILIUM_VERSION"
  requires definitions sigs.k8s.io/cluster-api-operator "$CLUSTER_API_OPERATOR_VERSION"
  requires definitions sigs.k8s.io/external-dns "$EXTERNAL_DNS_VERSION"
  requires lua github.com/yuin/gopher-lua "$LUA_VERSION"
  requires nats github.com/nats-io/nats-server/v2 "$NATS_VERSION"
}

# === Go ===

# go_in SET ARGUMENT...: runs go in the module of the set, independent of the Go settings of the user.
go_in() {
  local module=$1
  shift
  (cd -- "$here/$module" &&
    env -u GOOS -u GOARCH -u GOEXPERIMENT \
      GO111MODULE=on GOWORK=off GOFLAGS='-mod=readonly -buildvcs=false' CGO_ENABLED=0 go "$@")
}

# check_go SET: checks that Go can build this set. Go may download a newer toolchain, so it runs in the module.
check_go() {
  local need have
  need=$(sed -n 's/^go //p' "$here/$1/go.mod")
  command -v go >/dev/null ||
    die "go is missing: the programs are built with Go $need or later (or set KUBEBUILDER_ASSETS to a folder that contains them)"
  have=$(go_in "$1" env GOVERSION 2>&1) || die "go fails, Go $need or later is required: $have"
  have=${have%% *}
  if [[ $have == go[0-9]* && $(printf '%s\n' "$need" "${have#go}" | sort -V | head -n 1) != "$need" ]]; then
    die "go is too old: this is ${have#go}, the programs need $need or later"
  fi
}

# stamp_flags PACKAGE VERSION: linker flags that set the version of a program, which is v0.0.0 without them.
stamp_flags() {
  local major minor
  IFS=. read -r major minor _ <<<"${2#v}"
  printf -- '-X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s ' "$1" "$2" "$1" "$major" "$1" "$minor"
}

# progress SET TOTAL: reads the names of the packages that Go builds and prints what part of TOTAL they are. Other lines
# are errors. This is a loop of the shell, since some versions of awk read their input in blocks, and so print the parts
# only at the end.
progress() {
  local set=$1 total=$2 line part built=0 shown=0
  while IFS= read -r line; do
    if [[ ! $line =~ ^[[:alnum:]._/~+-]+$ ]]; then
      printf '%s\n' "$line" >&2
      continue
    fi
    built=$((built + 1))
    part=$((10 * built / total))
    if ((part > shown && part < 10)); then
      shown=$part
      printf 'control plane: %d %% of the packages of %s\n' $((10 * part)) "$set" >&2
    fi
  done
}

# go_build SET FOLDER PACKAGE...: builds packages of a set in one run.
go_build() {
  local module=$1 folder=$2 flags='-s -w ' tags='' total
  shift 2
  case $module in
    kubernetes)
      flags+=$(stamp_flags k8s.io/component-base/version "$KUBERNETES_VERSION")
      flags+=" $(stamp_flags k8s.io/client-go/pkg/version "$KUBERNETES_VERSION")"
      ;;
    cluster-api) flags+=$(stamp_flags sigs.k8s.io/cluster-api/version "$CLUSTER_API_VERSION") ;;
    prometheus) tags=remove_all_sd ;; # The tests name their targets.
  esac
  total=$(go_in "$module" list -deps -tags "$tags" "$@" | wc -l)
  go_in "$module" build -v -trimpath -tags "$tags" -ldflags "$flags" -o "$folder/" "$@" 2>&1 | progress "$module" "$total"
}

# === the cache ===

# complete FOLDER PROGRAM...: whether the folder contains the programs of a finished build.
complete() {
  local folder=$1 program
  shift
  [[ -f $folder/.stamp ]] || return 1
  for program; do [[ -x $folder/$program ]] || return 1; done
}

# Only one build runs at a time: the second one waits and uses its result.
take_lock() {
  [[ -z $lock_dir ]] || return 0 # it is held already
  mkdir -p -- "$cache"
  if command -v flock >/dev/null; then
    exec 9>"$cache/lock"
    if ! flock -n 9; then
      say 'waiting for another build'
      flock 9
    fi
    return
  fi
  local printed="" holder
  until mkdir -- "$cache/lock.d" 2>/dev/null; do
    holder=$(cat -- "$cache/lock.d/pid" 2>/dev/null || true)
    if [[ -n $holder ]] && ! kill -0 "$holder" 2>/dev/null; then
      rm -rf -- "$cache/lock.d" # its holder has exited
      continue
    fi
    [[ -n $printed ]] || say 'waiting for another build'
    printed=yes
    sleep 1
  done
  lock_dir=$cache/lock.d
  echo $$ >"$lock_dir/pid"
}

# begin SET WHAT...: starts a build, with the lock held, in a temporary folder that `finish` renames.
begin() {
  check_go "$1"
  shift
  say "building $*"
  rm -rf -- "$cache"/.building.* # leftovers of killed builds
  work=$(mktemp -d "$cache/.building.XXXXXX")
}

finish() {
  : >"$work/.stamp"
  chmod 755 "$work"
  rm -rf -- "$1"
  mv -- "$work" "$1"
  work=""
  say "done after $SECONDS s: $1"
}

# add_to FOLDER: ends a build, and adds its programs to those of the folder.
add_to() {
  mkdir -p -- "$1"
  mv -f -- "$work"/* "$1/"
  : >"$1/.stamp"
  rm -rf -- "$work"
  work=""
  say "done after $SECONDS s: $1"
}

# === commands ===

server=(etcd kube-apiserver kubectl)
all=("${server[@]}" kube-controller-manager)
full=$cache/kubernetes-$KUBERNETES_VERSION-etcd-$ETCD_VERSION

# missing_in FOLDER PROGRAM...: prints the programs that the folder does not contain.
missing_in() {
  local folder=$1 program
  shift
  for program; do [[ -x $folder/$program ]] || printf '%s\n' "$program"; done
}

# ensure_built FOLDER PROGRAM...: builds the programs that the folder does not contain.
ensure_built() {
  local folder=$1 program packages=() missing=()
  shift
  complete "$folder" "$@" && return
  take_lock
  complete "$folder" "$@" && return
  mapfile -t missing < <(missing_in "$folder" "$@")
  begin kubernetes "${missing[*]} (Kubernetes $KUBERNETES_VERSION, etcd $ETCD_VERSION): once on this machine," \
    'up to 11 minutes on 2 cores'
  for program in "${missing[@]}"; do
    if [[ $program == etcd ]]; then
      go_build etcd "$work" go.etcd.io/etcd/server/v3
      mv -- "$work/server" "$work/etcd" # Go names a program after the package's folder
    else
      packages+=("k8s.io/kubernetes/cmd/$program")
    fi
  done
  if ((${#packages[@]} > 0)); then go_build kubernetes "$work" "${packages[@]}"; fi
  add_to "$folder"
}

# fetch URL FILE SECONDS: downloads a file. It fails after 5 s if the server cannot be reached.
fetch() {
  local protocol=https
  if [[ $1 == http://127.0.0.1:* ]]; then protocol=http; fi # of a test
  curl --fail --silent --show-error --location --proto "=$protocol" --connect-timeout 5 --max-time "$3" \
    --output "$2" "$1" >&2
}

# sha512_is HASH FILE
sha512_is() {
  local sum
  if command -v sha512sum >/dev/null; then sum=$(sha512sum <"$2"); else sum=$(shasum -a 512 <"$2"); fi
  [[ ${sum%% *} == "$1" ]]
}

# download FOLDER: downloads the archive of envtest for this machine, with the hash in its index, into the folder.
download() {
  local system machine archive hash="" url="" program
  command -v curl >/dev/null || return 1
  system=$(uname -s | tr '[:upper:]' '[:lower:]')
  machine=$(uname -m | sed 's/^x86_64$/amd64/; s/^aarch64$/arm64/')
  archive=envtest-$ENVTEST_VERSION-$system-$machine.tar.gz
  take_lock
  complete "$1" "${server[@]}" && return
  rm -rf -- "$cache"/.building.* # leftovers of killed builds
  work=$(mktemp -d "$cache/.building.XXXXXX")
  fetch "$ENVTEST_INDEX" "$work/index" 20 || return 1
  read -r hash url < <(awk -v name="$archive:" '
    /:$/ { found = $1 == name }
    found && $1 == "hash:" { hash = $2 }
    found && $1 == "selfLink:" { print hash, $2 }' "$work/index") || true
  [[ -n $url ]] || { say "$ENVTEST_INDEX has no $archive"; return 1; }
  say "downloading $archive: once on this machine"
  fetch "$url" "$work/archive" 600 || return 1
  sha512_is "$hash" "$work/archive" || { say "$archive does not have the SHA-512 of the index"; return 1; }
  tar -C "$work" -xzf "$work/archive" --strip-components 2 || return 1
  [[ -z $(missing_in "$work" "${server[@]}") ]] || { say "$archive lacks ${server[*]}"; return 1; }
  rm -- "$work/archive" "$work/index"
  finish "$1"
}

# server_programs: the folder with the programs of the demo.
server_programs() {
  local published=$cache/envtest-$ENVTEST_VERSION
  if ! complete "$full" "${server[@]}"; then
    if complete "$published" "${server[@]}" || download "$published"; then
      printf '%s\n' "$published"
      return
    fi
    say 'the archive of envtest cannot be used: the programs are built instead'
  fi
  ensure_built "$full" "${server[@]}"
  printf '%s\n' "$full"
}

# beside ASSETS PROGRAM...: a folder with links to the programs in ASSETS, and to built ones for these, which are missing
# there.
beside() {
  local assets=$1 tools=$full linked program
  shift
  if ! complete "$full" "$@"; then
    tools=$cache/kubernetes-$KUBERNETES_VERSION-tools
    ensure_built "$tools" "$@"
  fi
  linked=$cache/beside-$(printf '%s' "$assets $KUBERNETES_VERSION" | cksum | cut -d ' ' -f 1)
  mkdir -p -- "$linked"
  for program in "${all[@]}"; do
    if [[ -x $assets/$program ]]; then
      ln -sfn -- "$assets/$program" "$linked/$program"
    elif [[ -x $tools/$program ]]; then
      ln -sfn -- "$tools/$program" "$linked/$program"
    fi
  done
  printf '%s\n' "$linked"
}

# programs PROGRAM...: the folder with these programs.
programs() {
  local assets=${KUBEBUILDER_ASSETS:-} missing=()
  if [[ -n $assets && -x $assets/etcd && -x $assets/kube-apiserver ]]; then
    assets=$(cd -- "$assets" && pwd -P)
    mapfile -t missing < <(missing_in "$assets" "$@")
    if ((${#missing[@]} > 0)); then
      beside "$assets" "${missing[@]}"
    else
      printf '%s\n' "$assets"
    fi
    return
  fi
  [[ -z $assets ]] || say "KUBEBUILDER_ASSETS is set, but $assets does not contain etcd and kube-apiserver: ignored"
  if [[ $* == "${server[*]}" ]]; then
    server_programs
    return
  fi
  ensure_built "$full" "$@"
  printf '%s\n' "$full"
}

cluster_api() {
  local folder=$cache/cluster-api-$CLUSTER_API_VERSION
  if ! complete "$folder" clusterctl core; then
    take_lock
    if ! complete "$folder" clusterctl core; then
      begin cluster-api "clusterctl and the core manager of Cluster API $CLUSTER_API_VERSION:" \
        'once on this machine, about 4 minutes on 2 cores'
      go_build cluster-api "$work" sigs.k8s.io/cluster-api/cmd/clusterctl sigs.k8s.io/cluster-api/core
      finish "$folder"
    fi
  fi
  printf '%s\n' "$folder"
}

# programs_of SET VERSION WHAT PACKAGE...: the folder with the programs of a set, named after their packages, or after the
# set if the package is its own.
programs_of() {
  local module=$1 version=$2 what=$3 folder=$cache/$1-$2 names=() package
  shift 3
  for package; do names+=("$(basename -- "${package/#./$module}")"); done
  if ! complete "$folder" "${names[@]}"; then
    take_lock
    if ! complete "$folder" "${names[@]}"; then
      begin "$module" "$what $version: once on this machine, 1 to 4 minutes on 2 cores"
      go_build "$module" "$work" "$@"
      finish "$folder"
    fi
  fi
  printf '%s\n' "$folder"
}

nats() {
  local folder=$cache/nats-$NATS_VERSION
  if ! complete "$folder" nats-server; then
    take_lock
    if ! complete "$folder" nats-server; then
      begin nats "nats-server $NATS_VERSION: once on this machine, about a minute on 2 cores"
      go_build nats "$work" github.com/nats-io/nats-server/v2
      finish "$folder"
    fi
  fi
  printf '%s\n' "$folder"
}

# chromium and chromedriver of one version: those in PATH, or else those of Debian.
chromium() {
  local driver
  if ! command -v chromedriver >/dev/null || ! command -v chromium >/dev/null; then
    command -v apt-get >/dev/null ||
      die 'chromium and chromedriver are missing: install them (on Debian the packages chromium and chromium-driver)'
    take_lock
    if ! command -v chromedriver >/dev/null || ! command -v chromium >/dev/null; then
      install_chromium
    fi
  fi
  driver=$(command -v chromedriver)
  dirname -- "$driver"
}

# The fonts are those of the pictures; without any font the page has no text.
install_chromium() {
  local packages=(chromium chromium-driver fonts-dejavu-core) as_root=()
  if [[ $(id -u) != 0 ]]; then as_root=(sudo -n); fi
  say "installing ${packages[*]} with apt-get: once on this machine, about a minute"
  "${as_root[@]}" apt-get update -qq >&2 && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "${packages[@]}" >&2 ||
    die "apt-get fails: install ${packages[*]} by hand"
  say "done after $SECONDS s"
}

# tsc checks the scripts of the page of `kubectl ipam web`.
typescript() {
  local folder=$cache/typescript-$TYPESCRIPT_VERSION
  if ! complete "$folder" node_modules/.bin/tsc; then
    command -v npm >/dev/null || die 'npm is missing: install Node.js with npm'
    take_lock
    if ! complete "$folder" node_modules/.bin/tsc; then
      say "installing typescript $TYPESCRIPT_VERSION with npm: once on this machine, some seconds"
      work=$(mktemp -d "$cache/.building.XXXXXX")
      npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$work" \
        "typescript@$TYPESCRIPT_VERSION" >&2 || die 'npm fails'
      finish "$folder"
    fi
  fi
  printf '%s\n' "$folder/node_modules/.bin"
}

# crds SET MODULE VERSION FOLDER: the folder of a module in the Go module cache, from which CRDs are read. The path is
# cached, since the query takes long.
crds() {
  local memory=$cache/${2##*/}-$3.crds folder=""
  if [[ -f $memory ]]; then folder=$(<"$memory"); fi
  if [[ -z $folder || ! -d $folder ]]; then
    check_go "$1"
    folder=$(go_in "$1" mod download -json "$2@$3" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p')/$4
    [[ -d $folder ]] || die "$2 $3 has no folder $4"
    mkdir -p -- "$cache"
    printf '%s\n' "$folder" >"$memory.$$"
    mv -- "$memory.$$" "$memory"
  fi
  printf '%s\n' "$folder"
}

check_versions
case ${1:-programs} in
  programs) programs "${all[@]}" ;;
  server) programs "${server[@]}" ;;
  crds) crds cluster-api sigs.k8s.io/cluster-api "$CLUSTER_API_VERSION" core/config/crd/bases ;;
  metallb) crds definitions go.universe.tf/metallb "$METALLB_VERSION" config/crd/bases ;;
  cilium) crds definitions github.com/cilium/cilium "$CILIUM_VERSION" pkg/k8s/apis/cilium.io/client/crds ;;
  cluster-api-operator)
    crds definitions sigs.k8s.io/cluster-api-operator "$CLUSTER_API_OPERATOR_VERSION" config/crd/bases
    ;;
  external-dns) crds definitions sigs.k8s.io/external-dns "$EXTERNAL_DNS_VERSION" config/crd/standard ;;
  lua) programs_of lua "$LUA_VERSION" 'a Lua interpreter' github.com/yuin/gopher-lua/cmd/glua ;;
  cluster-api) cluster_api ;;
  otel-collector) programs_of otel-collector "$OTEL_COLLECTOR_VERSION" 'the OpenTelemetry collector' . ;;
  chromium) chromium ;;
  typescript) typescript ;;
  go-provider)
    programs_of go-provider "$GO_PROVIDER_VERSION" 'the Go in-cluster provider' \
      sigs.k8s.io/cluster-api-ipam-provider-in-cluster
    ;;
  helm) programs_of helm "$HELM_VERSION" helm helm.sh/helm/v4/cmd/helm ;;
  nats) nats ;;
  prometheus)
    programs_of prometheus "$PROMETHEUS_VERSION" 'Prometheus and promtool' \
      github.com/prometheus/prometheus/cmd/{prometheus,promtool}
    ;;
  *) die "unknown argument '$1' (expected none, 'chromium', 'cilium', 'crds', 'cluster-api', 'cluster-api-operator', 'external-dns', 'go-provider', 'helm', 'lua', 'metallb', 'nats', 'otel-collector', 'prometheus', 'server' or 'typescript')" ;;
esac
