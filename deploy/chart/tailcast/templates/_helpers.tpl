{{/* Full name of the objects of a role. Argument: dict "root" $ "role" "gateway" */}}
{{- define "tailcast.name" -}}
{{- printf "%s-%s" .root.Release.Name .role | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "tailcast.selector" -}}
app.kubernetes.io/name: tailcast
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- end -}}

{{- define "tailcast.labels" -}}
{{ include "tailcast.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{- define "tailcast.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}{{ with .Values.image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{- define "tailcast.gatewayAccount" -}}
{{ .Values.gateway.serviceAccount.name | default (include "tailcast.name" (dict "root" $ "role" "gateway")) }}
{{- end -}}

{{/* Both containers run as the same user, because tailscaled returns certificates only to its own user. */}}
{{- define "tailcast.lockedDown" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Liveness and readiness probes on the operations listener. Argument: the port's name. */}}
{{- define "tailcast.probes" -}}
startupProbe:
  httpGet: { path: /livez, port: {{ . }} }
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: { path: /livez, port: {{ . }} }
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
readinessProbe:
  httpGet: { path: /readyz, port: {{ . }} }
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end -}}

{{/* Rules for spreading the replicas over machines. Argument: dict "root" "role" "values" */}}
{{- define "tailcast.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq .values.antiAffinity "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "tailcast.selector" . | nindent 12 }}
{{- else if eq .values.antiAffinity "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "tailcast.selector" . | nindent 14 }}
{{- end }}
{{- end -}}

{{/*
The tailscale container, in userspace mode. The container starts before the tailcast container and stops after the
tailcast container, so that sessions can drain.
Argument: dict "root" "tags" "serve" (true if there is a serve configuration)
*/}}
{{- define "tailcast.tailscale" -}}
{{- $values := .root.Values.tailscale -}}
- name: tailscale
  image: {{ $values.image }}
  restartPolicy: Always
  env:
    - name: POD_NAME
      valueFrom: { fieldRef: { fieldPath: metadata.name } }
    - name: POD_UID
      valueFrom: { fieldRef: { fieldPath: metadata.uid } }
    {{- if eq $values.state "volume" }}
    - name: TS_KUBE_SECRET
      value: ""
    - name: TS_STATE_DIR
      value: /var/lib/tailscale
    {{- else }}
    - name: TS_KUBE_SECRET
      value: $(POD_NAME)
    {{- end }}
    - name: TS_HOSTNAME
      value: $(POD_NAME)
    - name: TS_USERSPACE
      value: "true"
    - name: TS_AUTH_ONCE
      value: "true"
    - name: TS_SOCKET
      value: /run/tailscale/sock
    {{- $arguments := list }}
    {{- if or $values.oauthSecret $values.advertiseTags }}{{ $arguments = append $arguments (printf "--advertise-tags=%s" (join "," .tags)) }}{{ end }}
    {{- with $values.loginServer }}{{ $arguments = append $arguments (printf "--login-server=%s" .) }}{{ end }}
    {{- with $arguments }}
    - name: TS_EXTRA_ARGS
      value: {{ join " " . | quote }}
    {{- end }}
    - name: TS_ENABLE_HEALTH_CHECK
      value: "true"
    - name: TS_LOCAL_ADDR_PORT
      value: "[::]:9001"
    {{- if .serve }}
    - name: TS_SERVE_CONFIG
      value: /etc/tailcast/serve.json
    {{- end }}
    {{- if $values.oauthSecret }}
    - name: TS_CLIENT_ID
      valueFrom: { secretKeyRef: { name: {{ $values.oauthSecret }}, key: client_id } }
    - name: TS_CLIENT_SECRET
      valueFrom: { secretKeyRef: { name: {{ $values.oauthSecret }}, key: client_secret } }
    {{- else }}
    - name: TS_AUTHKEY
      valueFrom: { secretKeyRef: { name: {{ $values.authKeySecret.name }}, key: {{ $values.authKeySecret.key }} } }
    {{- end }}
  ports:
    - { name: ts-health, containerPort: 9001 }
  startupProbe:
    httpGet: { path: /healthz, port: ts-health }
    periodSeconds: 2
    failureThreshold: 90
  resources: {{- toYaml $values.resources | nindent 4 }}
  securityContext: {{- include "tailcast.lockedDown" . | nindent 4 }}
  volumeMounts:
    - { name: tailscale, mountPath: /run/tailscale }
    - { name: tailscale-tmp, mountPath: /tmp }
    {{- if eq $values.state "volume" }}
    - { name: tailscale-state, mountPath: /var/lib/tailscale }
    {{- else }}
    - { name: kube-api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true }
    {{- end }}
    {{- if .serve }}
    - { name: serve, mountPath: /etc/tailcast, readOnly: true }
    {{- end }}
{{- end -}}

{{/* Explicit volume for the token, so that only the containers that need the token mount it. */}}
{{- define "tailcast.tokenVolume" -}}
- name: kube-api-access
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: { path: token, expirationSeconds: 3607 }
      - configMap:
          name: kube-root-ca.crt
          items: [{ key: ca.crt, path: ca.crt }]
      - downwardAPI:
          items: [{ path: namespace, fieldRef: { apiVersion: v1, fieldPath: metadata.namespace } }]
{{- end -}}

{{/* Argument: dict "name" "size" "class" (optional) */}}
{{- define "tailcast.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: {{ .name }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .class }}
    storageClassName: {{ . }}
    {{- end }}
    resources: { requests: { storage: {{ .size }} } }
{{- end -}}

{{/* Names of the pod's node in the tailnet. Argument: dict "domain" "more" */}}
{{- define "tailcast.nodeNames" -}}
{{- $names := list "$(POD_NAME)" -}}
{{- if .domain }}{{ $names = append $names (printf "$(POD_NAME).%s" .domain) }}{{ end -}}
{{- join "," (concat $names .more) -}}
{{- end -}}

{{/*
Creates an empty Secret for each replica, and the right to use only these Secrets. The tailscale container of the
replica stores its state in the Secret.
Argument: dict "root" "role" "replicas" "account"
*/}}
{{- define "tailcast.stateSecrets" -}}
{{- $name := include "tailcast.name" . -}}
{{- $argument := . -}}
{{- range $index := until (int .replicas) }}
---
apiVersion: v1
kind: Secret
metadata:
  name: {{ $name }}-{{ $index }}
  namespace: {{ $argument.root.Release.Namespace }}
  labels: {{- include "tailcast.labels" $argument | nindent 4 }}
{{- end }}
{{- if gt (int .replicas) 0 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}-state
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "tailcast.labels" . | nindent 4 }}
rules:
  - apiGroups: [""]
    resources: [secrets]
    resourceNames:
      {{- range $index := until (int .replicas) }}
      - {{ $name }}-{{ $index }}
      {{- end }}
    verbs: [get, patch, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}-state
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "tailcast.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}-state
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
{{- end -}}

{{/* Environment variables. Argument: variables of the chart, merged with those of the user (`env`). */}}
{{- define "tailcast.environment" -}}
{{- range $name, $value := . }}
- name: {{ $name }}
  value: {{ $value | toString | quote }}
{{- end }}
{{- end -}}
