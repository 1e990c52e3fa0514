// Modules of which only the definitions of kinds are read, from the module cache. Found by ../ensure.sh.
module capi-ipam/hack/control-plane/definitions

go 1.24.0

require (
	github.com/cilium/cilium v1.20.2
	go.universe.tf/metallb v0.15.2
	sigs.k8s.io/cluster-api-operator v0.29.0
	sigs.k8s.io/external-dns v0.22.0
)
