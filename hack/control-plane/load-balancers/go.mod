// The definitions of kinds for load balancers, which are read from the module cache. Found by ../ensure.sh.
module capi-ipam/hack/control-plane/load-balancers

go 1.24.0

require (
	github.com/cilium/cilium v1.20.2
	go.universe.tf/metallb v0.15.2
)
