# The registry cannot be reached; then no manager runs, and what is created or damaged stays so.

sed -E 's/"server":"[^"]*"/"server":"https:\/\/127.0.0.1:1"/' "$FOLDER/hub" >"$FOLDER/unreachable"
kubectl create secret generic hub --namespace capi-ipam-in-cluster-system --dry-run=client --output yaml \
  --from-file=kubeconfig="$FOLDER/unreachable" | kubectl apply -f - 2>/dev/null
has RegistryUnreachable ipregistry/site
until kubectl get events --all-namespaces --field-selector reason=RegistryUnreachable --output name | grep -q .; do
  sleep 0.2
done

kill -KILL "$MANAGER"
kubectl patch deployment capi-ipam-in-cluster-controller-manager --namespace capi-ipam-in-cluster-system \
  --subresource=status --type=merge --patch '{"status": {"readyReplicas": 0}}'
kubectl delete clusterrole capi-ipam-in-cluster-manager-role
claim team-a late InClusterIPPool web
for object in $ADDRESS/rack-2 $CLAIM/left-1; do
  kubectl patch $object --namespace team-a --type=merge --patch '{"metadata": {"finalizers": null}}'
  kubectl delete $object --namespace team-a
done
kubectl create -f - <<EOF
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddress
metadata: {namespace: team-b, name: stray}
spec:
  claimRef: {name: stray}
  address: 10.17.0.1
  prefix: 24
  poolRef: {apiGroup: ipam.cluster.x-k8s.io, kind: InClusterIPPool, name: gone}
EOF
owners=$(kubectl get $ADDRESS web-2 --namespace team-a --output 'jsonpath={.metadata.ownerReferences}')
old=$(echo "$owners" | sed 's/v1beta2/v1beta1/g')
kubectl patch $ADDRESS web-2 --namespace team-a --type=merge --patch "{\"metadata\": {\"ownerReferences\": $old}}"
