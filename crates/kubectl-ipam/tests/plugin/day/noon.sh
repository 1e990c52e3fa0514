# Problems that users and administrators cause while the manager runs.

# Another management cluster is gone, and uses a block of this one; networks differ.
kubectl patch ipblock cluster.east --type=merge --patch '{"spec": {"cluster": {"cluster": "east",
  "process": "1", "blocks": 1, "seen": "2020-01-01T12:00:00Z", "exclusions": {"region": "abcd"}}}}'
kubectl patch ipblock block.region.10.40.0.0-28 --type=json \
  --patch '[{"op": "add", "path": "/spec/block/contenders", "value": ["east"]}]'
kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPBlock
metadata: {name: network.edge}
spec: {network: {network: edge, size: 32, sizeOf: east}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPNetwork
metadata: {name: edge}
spec: {namespaces: {from: All}, blocks: {registry: site, size: 16}}
EOF

# Without webhooks the API server accepts more.
kubectl get validatingwebhookconfigurations --output yaml >"$FOLDER/webhooks.yaml"
kubectl delete validatingwebhookconfigurations --all

# Pools that cannot be used.
create_pool InClusterIPPool team-a invalid 'ranges: [{addresses: [10.10.0.0/24], prefix: 24},
  {addresses: [10.10.0.128/25], prefix: 25}]'
has InvalidSpec inclusterippool/invalid --namespace team-a
create_pool InClusterIPPool team-a homeless 'addresses: [10.11.0.10], prefix: 24, network: none'
has NetworkNotFound inclusterippool/homeless --namespace team-a
waiting PoolNotReady team-a invalid-1 InClusterIPPool invalid
waiting PoolNotReady team-a homeless-1 InClusterIPPool homeless
kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPNetwork
metadata: {name: broken}
spec: {namespaces: {from: All}, pools: {matchExpressions: [{key: site, operator: Maybe}]}}
EOF

# A pool that cannot be decoded: its definition has no schema for a moment.
definition=crd/globalinclusterippools.ipam.cluster.x-k8s.io
kubectl get $definition --output yaml >"$FOLDER/definition.yaml"
for version in 0 1; do
  kubectl patch $definition --type=json --patch "[{\"op\": \"replace\",
    \"path\": \"/spec/versions/$version/schema/openAPIV3Schema\",
    \"value\": {\"type\": \"object\", \"x-kubernetes-preserve-unknown-fields\": true}}]" >/dev/null
done
until create_pool GlobalInClusterIPPool - unreadable 'addresses: 10.16.0.1, prefix: 24' 2>/dev/null; do sleep 0.2; done
restored "$FOLDER/definition.yaml" | kubectl replace -f - >/dev/null

# Gateways.
pool InClusterIPPool team-a gateway 'addresses: [10.12.0.10-10.12.0.19], prefix: 24, gateway: 10.12.0.1'
bound team-a gateway-1 InClusterIPPool gateway
change inclusterippool team-a gateway '{"spec": {"gateway": "10.99.0.1"}}'

# The same addresses twice.
pool InClusterIPPool team-a copy 'addresses: [10.0.0.10-10.0.0.19], prefix: 24, gateway: 10.0.0.1'
bound team-a copy-1 InClusterIPPool copy
kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPNetwork
metadata: {name: lab}
spec: {namespaces: {from: All}}
EOF
wait_for condition=Ready ipnetwork/lab
for name in first second; do
  pool InClusterIPPool team-a $name 'addresses: [10.13.0.10], prefix: 24'
  bound team-a $name-1 InClusterIPPool $name
  wait_for condition=Exhausted inclusterippool/$name --namespace team-a
  [ $name = first ] || wait_for condition=Overlapping inclusterippool/first inclusterippool/second --namespace team-a
  change inclusterippool team-a $name '{"spec": {"network": "lab"}}'
  wait_for "jsonpath={.status.network.name}=lab" inclusterippool/$name --namespace team-a
done

# Pools in use that change.
change inclusterippool team-a small '{"spec": {"addresses": ["10.1.0.11-10.1.0.12"]}}'
change inclusterippool team-a ranges '{"spec": {"draining": ["10.5.0.0/24"]}}'
change inclusterippool team-a left '{"spec": {"network": null}}'
kubectl delete inclusterprefixpool pods --namespace team-a --wait=false
waiting PoolNotReady team-a pods-2 InClusterPrefixPool pods
for number in 0 1; do
  pool InClusterIPPool team-a paused-$number "addresses: [10.14.$number.10], prefix: 24"
  kubectl annotate inclusterippool paused-$number --namespace team-a cluster.x-k8s.io/paused=
  has Paused inclusterippool/paused-$number --namespace team-a
done

# Claims that wait, in each way. Those of a pool are created in the order of their names, since the
# creation is stored in whole seconds.
kubectl create -f - <<EOF
apiVersion: cluster.x-k8s.io/v1beta2
kind: Cluster
metadata: {namespace: team-a, name: frozen}
spec: {paused: true, infrastructureRef: {apiGroup: infrastructure.cluster.x-k8s.io, kind: Any, name: frozen}}
EOF
bound team-a small-3 InClusterIPPool small
waiting PoolExhausted team-a small-4 InClusterIPPool small
waiting PoolExhausted team-a small-5 InClusterIPPool small
waiting PoolNotReady team-a lost InClusterIPPool reel
claim team-a typo InClusterIpPool web
waiting PoolNotReady team-a paused-pool InClusterIPPool paused-0
waiting ClusterNotFound team-a no-cluster InClusterIPPool web '' 'clusterName: none'
waiting Paused team-a paused-claim InClusterIPPool web 'annotations: {cluster.x-k8s.io/paused: ""}'
waiting Paused team-a paused-cluster InClusterIPPool web '' 'clusterName: frozen'
waiting RequestedAddressUnavailable team-a wanted-too InClusterIPPool web \
  'annotations: {ipam.cluster.x-k8s.io/requested-address: 10.0.0.30}'
waiting QuotaExceeded team-a limited-2 GlobalInClusterIPPool limited '' 'clusterName: prod'
waiting PoolNotAllowed team-b limited-1 GlobalInClusterIPPool limited
waiting SliceOwnerMissing team-a rack-none InClusterIPPool racks

# Releases that others keep, and a claim that was restored from its manifest.
for name in kept early; do
  bound team-a $name InClusterIPPool web 'finalizers: [vspherevm.infrastructure.cluster.x-k8s.io]'
  kubectl delete $CLAIM/$name --namespace team-a --wait=false
  has Deleting $CLAIM/$name --namespace team-a
done
uid=$(kubectl get $CLAIM early --namespace team-a --output 'jsonpath={.metadata.uid}')
kubectl annotate $CLAIM early --namespace team-a "ipam.cluster.x-k8s.io/release-now=$uid"
has ReleasedEarly $CLAIM/early --namespace team-a
kubectl delete namespace team-c --wait=false
has Deleting $CLAIM/tenant-1 --namespace team-c
bound team-a restored InClusterIPPool web
kubectl get $CLAIM restored --namespace team-a --output yaml >"$FOLDER/restored.yaml"
release team-a restored
restored "$FOLDER/restored.yaml" | kubectl create -f -
has AddressAllocated $CLAIM/restored --namespace team-a

# A Machine that uses another address, and a reservation that is deleted by hand.
kubectl patch machines.cluster.x-k8s.io machine-1 --namespace team-a --subresource=status --type=merge \
  --patch '{"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.1"}]}}'
kubectl delete ipreservation p.team-a.web.10.0.0.11

# Reservations and slices without effect, and an IPAddress that was created by hand.
kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPReservation
metadata: {name: p.team-a.web.10.0.0.35}
spec:
  scope: p.team-a.web
  address: 10.0.0.35
  poolRef: {kind: InClusterIPPool, namespace: team-a, name: web}
  claimRef: {namespace: team-b, name: vip}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPReservation
metadata: {name: p.team-a.gone.10.15.0.10}
spec:
  scope: p.team-a.gone
  address: 10.15.0.10
  poolRef: {kind: InClusterIPPool, namespace: team-a, name: gone}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPSlice
metadata: {name: p.team-a.racks.10.7.0.0-28}
spec: {scope: p.team-a.racks, block: 10.7.0.0/28, owner: {kind: Label, name: r3}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPSlice
metadata: {name: p.team-a.racks.10.7.0.24-29}
spec: {scope: p.team-a.racks, block: 10.7.0.24/29, owner: {kind: Label, name: r4}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPSlice
metadata: {name: p.team-a.racks.10.9.0.0-29}
spec: {scope: p.team-a.racks, block: 10.9.0.0/29, owner: {kind: Label, name: r5}}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPSlice
metadata: {name: g.none.10.0.0.0-28}
spec: {scope: g.none, block: 10.0.0.0/28, owner: {kind: Label, name: r6}}
---
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata: {namespace: team-a, name: twin}
spec:
  claimRef: {name: twin}
  address: 10.0.0.10
  prefix: 24
  poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: web}
EOF

# What the manager notices of the other management cluster.
has BlockSizeDiffers ipnetwork/edge
wait_for condition=BlockConflict ipnetwork/region
wait_for condition=ExclusionsDiffer ipnetwork/region
