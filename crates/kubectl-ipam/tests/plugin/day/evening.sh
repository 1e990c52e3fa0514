# Everything is repaired, as doctor says.

kubectl patch ipblock cluster.east --type=merge --patch '{"spec": {"cluster": {"cluster": "east",
  "process": "1", "blocks": 1, "seen": "2020-01-01T12:00:00Z", "exclusions": null}}}'
kubectl patch ipblock block.region.10.40.0.0-28 --type=json \
  --patch '[{"op": "remove", "path": "/spec/block/contenders"}]'
kubectl delete globalinclusterippool unreadable
restored "$FOLDER/webhooks.yaml" | kubectl create -f -
release team-a invalid-1 homeless-1 lost typo paused-pool no-cluster paused-cluster paused-claim wanted-too \
  rack-none limited-2 pods-2 pods-1
release team-b limited-1
release team-a copy-1 second-1 gateway-1
kubectl annotate inclusterippool paused-0 paused-1 --namespace team-a cluster.x-k8s.io/paused-
kubectl delete inclusterippool invalid homeless paused-0 paused-1 --namespace team-a
kubectl delete ipnetwork broken edge
kubectl delete ipblock network.edge
change inclusterippool team-a gateway '{"spec": {"gateway": "10.12.0.1"}}'
kubectl delete inclusterippool copy --namespace team-a
change inclusterippool team-a left '{"spec": {"network": "backbone"}}'
change inclusterippool team-a ranges '{"spec": {"draining": null}}'
change inclusterippool team-a small '{"spec": {"addresses": ["10.1.0.10-10.1.0.19"]}}'
has AddressAllocated $CLAIM/small-4 --namespace team-a
has AddressAllocated $CLAIM/small-5 --namespace team-a
own='{"metadata": {"finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"]}}'
change $CLAIM team-a kept "$own"
change $CLAIM team-a early '{"metadata": {"finalizers": null}}'
wait_for delete $CLAIM/kept --namespace team-a
wait_for delete $CLAIM/early --namespace team-a
change $CLAIM team-c tenant-1 "$own"
wait_for delete namespace/team-c
release team-a restored
kubectl patch machines.cluster.x-k8s.io machine-1 --namespace team-a --subresource=status --type=merge \
  --patch '{"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.10"}]}}'
kubectl delete $ADDRESS twin --namespace team-a
kubectl delete ipslice p.team-a.racks.10.7.0.0-28 p.team-a.racks.10.7.0.24-29 p.team-a.racks.10.9.0.0-29 g.none.10.0.0.0-28
kubectl ipam unreserve team-a/web 10.0.0.35
kubectl ipam unreserve team-a/gone 10.15.0.10
try kubectl ipam unreserve team-a/web 10.0.0.10
try kubectl ipam unreserve team-a/web 10.0.0.20
kubectl ipam unreserve team-a/web 10.0.0.20 --yes
kubectl ipam registry release --cluster-id east --yes
wait_for condition=BlockConflict=false ipnetwork/region
wait_for condition=ExclusionsDiffer=false ipnetwork/region
