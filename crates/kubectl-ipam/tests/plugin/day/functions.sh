# Functions of the scripts of the day. Each waits until the manager has processed what it creates,
# so that claims get the same addresses in every run.

kubectl() {
  if [ "$1" = ipam ]; then
    shift
    "$PLUGIN" --kubeconfig "$KUBECONFIG_FILE" "$@"
  else
    "$KUBECTL" --kubeconfig "$KUBECONFIG_FILE" "$@"
  fi
}

# Prints the exit code of a command that can fail.
try() {
  code=0
  "$@" || code=$?
  echo "exit code $code"
}

# wait_for CONDITION RESOURCE/NAME [FLAGS]
wait_for() {
  condition=$1 object=$2
  shift 2
  kubectl wait "--for=$condition" --timeout=10m "$object" "$@" >/dev/null
}

# has REASON RESOURCE/NAME [FLAGS]: waits until the condition Ready has the reason.
has() {
  reason=$1 object=$2
  shift 2
  wait_for "jsonpath={.status.conditions[?(@.type=='Ready')].reason}=$reason" "$object" "$@"
}

# claim NAMESPACE NAME KIND POOL [METADATA] [SPEC]
claim() {
  kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata: {namespace: $1, name: $2${5:+, $5}}
spec: {poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: $3, name: $4}${6:+, $6}}
EOF
}

# bound NAMESPACE NAME KIND POOL [METADATA] [SPEC]
bound() {
  claim "$@"
  has AddressAllocated "$CLAIM/$2" --namespace "$1"
}

# waiting REASON NAMESPACE NAME KIND POOL [METADATA] [SPEC]
waiting() {
  reason=$1
  shift
  claim "$@"
  has "$reason" "$CLAIM/$2" --namespace "$1"
}

# pool KIND NAMESPACE NAME SPEC; the namespace of a global pool is "-"
pool() {
  create_pool "$@"
  scope=
  [ "$2" = - ] || scope="--namespace=$2"
  wait_for condition=Ready "$1/$3" $scope
}

create_pool() {
  scope=
  [ "$2" = - ] || scope="namespace: $2, "
  kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: $1
metadata: {${scope}name: $3}
spec: {$4}
EOF
}

# change KIND NAMESPACE NAME PATCH
change() {
  kubectl patch "$1" "$3" --namespace "$2" --type=merge --patch "$4"
}

# release NAMESPACE NAME...
release() {
  namespace=$1
  shift
  kubectl delete ipaddressclaims.ipam.cluster.x-k8s.io --namespace "$namespace" "$@"
}

# Prints stored objects without the identity of the former ones.
restored() {
  sed -E '/^ +(resourceVersion|uid|creationTimestamp): /d' "$1"
}

CLAIM=ipaddressclaims.ipam.cluster.x-k8s.io
ADDRESS=ipaddresses.ipam.cluster.x-k8s.io
NOW=$(date -u +%Y-%m-%dT%H:%M:%SZ)
