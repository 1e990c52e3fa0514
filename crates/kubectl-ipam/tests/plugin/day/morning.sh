# Everything works: pools of all kinds, networks, a registry, and bound claims.

kubectl create namespace team-a
kubectl create namespace team-b
kubectl create namespace team-c

# The registry is at the same API server. Another management cluster, east, has a block.
kubectl apply -f "$ROOT/manifests/registry.yaml"
kubectl wait --for=condition=Established --timeout=10m crd/ipblocks.ipam.cluster.x-k8s.io >/dev/null
kubectl create secret generic hub --namespace capi-ipam-in-cluster-system --from-file=kubeconfig="$FOLDER/hub"
kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPBlock
metadata: {name: cluster.east}
spec: {cluster: {cluster: east, process: "1", blocks: 1, seen: $NOW}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPBlock
metadata: {name: block.region.10.40.0.16-28}
spec: {block: {network: region, block: 10.40.0.16/28, cluster: east, used: 3, since: $NOW}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPRegistry
metadata: {name: site}
spec: {clusterID: west, kubernetes: {secretName: hub}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPNetwork
metadata: {name: region}
spec: {namespaces: {from: All}, blocks: {registry: site, size: 16, spare: 1}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPNetwork
metadata: {name: backbone}
spec: {namespaces: {from: Names, names: [team-a, team-b]}, excluded: [10.4.0.30-10.4.0.31]}
EOF
wait_for condition=Ready ipregistry/site
wait_for condition=Ready ipnetwork/region
wait_for condition=Ready ipnetwork/backbone

pool InClusterIPPool team-a web 'addresses: [10.0.0.10-10.0.0.40], prefix: 24, gateway: 10.0.0.1,
  excludedAddresses: [10.0.0.12], allocation: {requests: true}, reclaim: {verify: Report}'
pool InClusterIPPool team-a small 'addresses: [10.1.0.10-10.1.0.12], prefix: 24, gateway: 10.1.0.1'
pool InClusterIPPool team-a cool 'addresses: [10.1.1.0/28], prefix: 28, gateway: 10.1.1.1,
  addressReuseGracePeriodSeconds: 3600, allocation: {sticky: true}'
pool InClusterIPPool team-a v6 'addresses: ["fd00:1::10-fd00:1::1f"], prefix: 64, gateway: "fd00:1::1",
  allocation: {order: RoundRobin}'
pool InClusterIPPool team-a racks 'addresses: [10.7.0.0/27], prefix: 24, gateway: 10.7.0.1,
  slices: {size: 8, per: Label, label: rack, mostEach: 1}'
kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPSlice
metadata: {name: p.team-a.racks.10.7.0.16-29}
spec: {scope: p.team-a.racks, block: 10.7.0.16/29, owner: {kind: Label, name: r2}}
EOF
wait_for 'jsonpath={.status.slices.assigned}=1' inclusterippool/racks --namespace team-a
pool InClusterIPPool team-a ranges 'ranges: [{addresses: [10.5.0.10-10.5.0.14], prefix: 24, gateway: 10.5.0.1},
  {addresses: [10.6.0.0/28], prefix: 28, gateway: 10.6.0.1}]'
pool InClusterIPPool team-a left 'addresses: [10.4.0.0/27], prefix: 24, gateway: 10.4.0.1, network: backbone'
pool InClusterIPPool team-b right 'addresses: [10.4.0.16-10.4.0.47], prefix: 24, gateway: 10.4.0.1, network: backbone'
pool InClusterIPPool team-b machines 'addresses: [10.40.0.0/26], prefix: 24, gateway: 10.40.0.1, network: region'
pool InClusterPrefixPool team-a pods 'prefixes: ["fd00:2::/60"], allocationPrefixLength: 64,
  excludedPrefixes: ["fd00:2::/64"]'
pool GlobalInClusterIPPool - tenants 'addresses: [10.3.0.0/26], prefix: 24, gateway: 10.3.0.1,
  slices: {size: 16, per: Namespace, keepSeconds: 86400}'
pool GlobalInClusterIPPool - limited 'addresses: [10.9.0.10-10.9.0.15], prefix: 24, gateway: 10.9.0.1,
  allowedNamespaces: {from: Names, names: [team-a]}, limits: {perNamespace: 3, perCluster: 1},
  headroom: {addresses: 2, for: {matchLabels: {control-plane: "true"}}},
  addressMetadata: {labels: {example.com/vlan: "9"}}'
pool GlobalInClusterPrefixPool - lans 'prefixes: [10.8.0.0/24], allocationPrefixLength: 28'

kubectl create -f - <<EOF
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: team-a, name: prod}
spec: {paused: false, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: Any, name: prod}}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: Machine
metadata: {namespace: team-a, name: machine-1}
spec:
  clusterName: prod
  bootstrap: {dataSecretName: none}
  infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: Any, name: machine-1}
EOF
uid=$(kubectl get machines.cluster.x-k8s.io machine-1 --namespace team-a --output 'jsonpath={.metadata.uid}')
kubectl patch machines.cluster.x-k8s.io machine-1 --namespace team-a --subresource=status --type=merge \
  --patch '{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.10"}]}}'

kubectl ipam reserve team-a/web 10.0.0.20 --for team-a/vip
kubectl ipam reserve team-a/web 10.0.0.21 --dry-run=server
bound team-a web-1 InClusterIPPool web "ownerReferences: [{apiVersion: cluster.x-k8s.io/v1beta2,
  kind: Machine, name: machine-1, uid: $uid}]" 'clusterName: prod'
bound team-a web-2 InClusterIPPool web 'labels: {tier: front}' 'clusterName: prod'
bound team-a vip InClusterIPPool web
bound team-a wanted InClusterIPPool web 'annotations: {ipam.cluster.x-k8s.io/requested-address: 10.0.0.30}'
bound team-a small-1 InClusterIPPool small
bound team-a small-2 InClusterIPPool small
bound team-a cool-1 InClusterIPPool cool
bound team-a cool-2 InClusterIPPool cool
bound team-a six-1 InClusterIPPool v6
bound team-a six-2 InClusterIPPool v6
bound team-a rack-1 InClusterIPPool racks 'labels: {rack: r1}'
bound team-a rack-2 InClusterIPPool racks 'labels: {rack: r2}'
bound team-a range-1 InClusterIPPool ranges
bound team-a left-1 InClusterIPPool left
bound team-b right-1 InClusterIPPool right
bound team-b machine-1 InClusterIPPool machines
bound team-a pods-1 InClusterPrefixPool pods
bound team-a tenant-1 GlobalInClusterIPPool tenants
bound team-b tenant-1 GlobalInClusterIPPool tenants
bound team-a limited-1 GlobalInClusterIPPool limited '' 'clusterName: prod'
bound team-c tenant-1 GlobalInClusterIPPool tenants 'finalizers: [vspherevm.infrastructure.cluster.x-k8s.io]'
bound team-b lan-1 GlobalInClusterPrefixPool lans
kubectl ipam reserve team-a/web
release team-a cool-1
try kubectl ipam reserve team-a/web 10.0.0.10
try kubectl ipam reserve team-a/web 10.0.0.12
try kubectl ipam reserve team-a/racks
try kubectl ipam reserve team-a/none

# The first sign of life with the exclusions of the network is written within a minute.
wait_for condition=ExclusionsDiffer=false ipnetwork/region
# The next sweep reports that the reservations of users are valid.
wait_for condition=Ready ipreservation/p.team-a.web.10.0.0.13
wait_for condition=Ready ipreservation/p.team-a.web.10.0.0.20
