{{/*
The files are those of the kustomize tree. These templates change what the values select, and nothing else.
*/}}

{{/* A file in which the namespace of the manifests is that of the release. */}}
{{- define "capi-ipam.file" -}}
{{ .root.Files.Get (printf "files/%s.yaml" .name) | replace "capi-ipam-in-cluster-system" .root.Release.Namespace }}
{{- end }}

{{- define "capi-ipam.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* Changes a Deployment. */}}
{{- define "capi-ipam.deployment" -}}
{{- $values := .root.Values -}}
{{- $_ := set .object.spec "replicas" $values.replicas -}}
{{- $metadata := .object.spec.template.metadata -}}
{{- $_ := set $metadata "annotations" (merge (dict) $metadata.annotations $values.podAnnotations) -}}
{{- $_ := set $metadata "labels" (merge (dict) $metadata.labels $values.podLabels) -}}
{{- $pod := .object.spec.template.spec -}}
{{- range $field := list "imagePullSecrets" "nodeSelector" "affinity" "tolerations" "priorityClassName" -}}
{{- with get $values $field -}}
{{- $_ := set $pod $field . -}}
{{- else -}}
{{- $_ := unset $pod $field -}}
{{- end -}}
{{- end -}}
{{- $container := index $pod.containers 0 -}}
{{- $_ := set $container "image" (include "capi-ipam.image" .root) -}}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy -}}
{{- $_ := set $container "resources" $values.resources -}}
{{- range $values.namespaces -}}
{{- $_ := set $container "args" (append $container.args (printf "--namespace=%s" .)) -}}
{{- end -}}
{{- with $values.watchFilter -}}
{{- $_ := set $container "args" (append $container.args (printf "--watch-filter=%s" .)) -}}
{{- end -}}
{{- if $values.clusterAddressing -}}
{{- $_ := set $container "args" (append $container.args "--cluster-addressing") -}}
{{- end -}}
{{- if $values.dnsEndpoints -}}
{{- $_ := set $container "args" (append $container.args "--dns-endpoints") -}}
{{- end -}}
{{- if $values.metrics.rollouts -}}
{{- $_ := set $container "args" (append $container.args "--rollout-metrics") -}}
{{- end -}}
{{- $_ := set $container "args" (concat $container.args $values.extraArgs) -}}
{{- end }}

{{/* Changes a ClusterRole. */}}
{{- define "capi-ipam.clusterRole" -}}
{{- if and .root.Values.poolEditors (eq .object.metadata.name "capi-ipam-in-cluster-editor-role") -}}
{{- range list "admin" "edit" -}}
{{- $_ := set $.object.metadata.labels (printf "rbac.authorization.k8s.io/aggregate-to-%s" .) "true" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Changes a CustomResourceDefinition. */}}
{{- define "capi-ipam.definition" -}}
{{- if .root.Values.crds.keep -}}
{{- $annotations := .object.metadata.annotations | default (dict) -}}
{{- $_ := set .object.metadata "annotations" (set $annotations "helm.sh/resource-policy" "keep") -}}
{{- end -}}
{{- end }}

{{/* Changes the MutatingWebhookConfiguration. */}}
{{- define "capi-ipam.mutatingWebhook" -}}
{{- if eq .root.Values.certificates "cert-manager" -}}
{{- $certificate := printf "%s/capi-ipam-in-cluster-serving-cert" .root.Release.Namespace -}}
{{- $_ := set .object.metadata "annotations" (dict "cert-manager.io/inject-ca-from" $certificate) -}}
{{- end -}}
{{- end }}

{{/* Changes a NetworkPolicy. */}}
{{- define "capi-ipam.networkPolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- $from := list -}}
{{- range $policy.apiServers -}}
{{- $from = append $from (dict "ipBlock" (dict "cidr" .)) -}}
{{- end -}}
{{- $_ := set (index .object.spec.ingress 0) "from" $from -}}
{{- $selector := index (index .object.spec.ingress 1).from 0 -}}
{{- $_ := set $selector.namespaceSelector "matchLabels" (dict "kubernetes.io/metadata.name" $policy.metricsNamespace) -}}
{{- end }}
