{{/* Leaves room for the suffixes that Kubernetes appends to the pod names of a StatefulSet or a Job. */}}
{{- define "prorata.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 43 | trimSuffix "-" -}}
{{- end }}

{{- define "prorata.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 43 | trimSuffix "-" -}}
{{- else if contains (include "prorata.name" .) .Release.Name -}}
{{- .Release.Name | trunc 43 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "prorata.name" .) | trunc 43 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "prorata.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "prorata.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{/* The account of what only looks: check and report. */}}
{{- define "prorata.readerServiceAccountName" -}}
{{- if .Values.readerServiceAccount.create -}}
{{- default (printf "%s-reader" (include "prorata.fullname" .)) .Values.readerServiceAccount.name -}}
{{- else -}}
{{- default (include "prorata.serviceAccountName" .) .Values.readerServiceAccount.name -}}
{{- end -}}
{{- end }}

{{/* Labels that never change, for selectors. */}}
{{- define "prorata.selectorLabels" -}}
app.kubernetes.io/name: {{ include "prorata.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "prorata.labels" -}}
{{ include "prorata.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "prorata.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- printf "%s@%s" .repository .digest -}}
{{- else -}}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The port of config.http.listen. */}}
{{- define "prorata.port" -}}
{{- regexFind "[0-9]+$" .Values.config.http.listen -}}
{{- end }}

{{/* Pod spec shared by workers and Jobs, from `serviceAccountName` on. */}}
{{- define "prorata.podSpec" -}}
serviceAccountName: {{ include "prorata.serviceAccountName" . }}
automountServiceAccountToken: false
{{ include "prorata.podPlacement" . }}
{{- end }}

{{/* Pod spec shared with the collector: no service links, security context, and scheduling. */}}
{{- define "prorata.podPlacement" -}}
# Otherwise, Services of the namespace would set PRORATA_… variables, which are configuration.
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if not (kindIs "invalid" .Values.hostUsers) }}
hostUsers: {{ .Values.hostUsers }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.podSecurityContext }}
  {{- if not (kindIs "invalid" .runAsUser) }}
  runAsUser: {{ int64 .runAsUser }}
  {{- end }}
  {{- if not (kindIs "invalid" .runAsGroup) }}
  runAsGroup: {{ int64 .runAsGroup }}
  {{- end }}
  {{- if not (kindIs "invalid" .fsGroup) }}
  fsGroup: {{ int64 .fsGroup }}
  {{- end }}
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "prorata.securityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop:
    - ALL
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
{{- end }}

{{/* Environment of workers and Jobs: the object store and extraEnv. */}}
{{- define "prorata.env" -}}
{{- range $name, $value := .Values.objectStore.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Sources of environment variables of workers and Jobs. */}}
{{- define "prorata.envFrom" -}}
{{- with .Values.objectStore.existingSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- with .Values.extraEnvFrom }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Environment of the collector: of the object store only if it writes there. */}}
{{- define "prorata.collectorEnv" -}}
{{- if .Values.collector.output }}
{{- range $name, $value := .Values.objectStore.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- with .Values.collector.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "prorata.collectorEnvFrom" -}}
{{- if and .Values.collector.output .Values.objectStore.existingSecret }}
- secretRef:
    name: {{ .Values.objectStore.existingSecret }}
{{- end }}
{{- with .Values.collector.extraEnvFrom }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* One variable from a key of a Secret: (list name secret key). */}}
{{- define "prorata.secretEnv" -}}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 }}
{{- end }}

{{- define "prorata.volumeMounts" -}}
- name: config
  mountPath: /etc/prorata
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "prorata.volumes" -}}
- name: config
  configMap:
    name: {{ include "prorata.fullname" . }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmp.sizeLimit }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Environment of containers that use Kafka and the schema registry. */}}
{{- define "prorata.kafkaEnv" -}}
{{- with .Values.kafka.sasl }}
{{- if .existingSecret }}
{{ include "prorata.secretEnv" (list "PRORATA_KAFKA__SASL_USERNAME" .existingSecret .usernameKey) }}
- name: PRORATA_KAFKA__SASL_PASSWORD_FILE
  value: {{ printf "/etc/prorata-secrets/kafka/%s" .passwordKey | quote }}
{{- end }}
{{- end }}
{{- with .Values.kafka.tls }}
{{- if .existingSecret }}
- name: PRORATA_KAFKA__SSL_CA_FILE
  value: {{ printf "/etc/prorata-tls/kafka/%s" .caKey | quote }}
{{- end }}
{{- end }}
{{- with .Values.registry.basicAuth }}
{{- if .existingSecret }}
{{ include "prorata.secretEnv" (list "PRORATA_REGISTRY__USERNAME" .existingSecret .usernameKey) }}
- name: PRORATA_REGISTRY__PASSWORD_FILE
  value: {{ printf "/etc/prorata-secrets/registry/%s" .passwordKey | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* Certificates and passwords as files. */}}
{{- define "prorata.kafkaMounts" -}}
{{- if .Values.kafka.tls.existingSecret }}
- name: kafka-tls
  mountPath: /etc/prorata-tls/kafka
  readOnly: true
{{- end }}
{{- if .Values.kafka.sasl.existingSecret }}
- name: kafka-sasl
  mountPath: /etc/prorata-secrets/kafka
  readOnly: true
{{- end }}
{{- if .Values.registry.basicAuth.existingSecret }}
- name: registry-auth
  mountPath: /etc/prorata-secrets/registry
  readOnly: true
{{- end }}
{{- end }}

{{- define "prorata.kafkaVolumes" -}}
{{- with .Values.kafka.tls.existingSecret }}
- name: kafka-tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.kafka.sasl }}
{{- if .existingSecret }}
{{ include "prorata.passwordVolume" (list "kafka-sasl" .existingSecret .passwordKey) }}
{{- end }}
{{- end }}
{{- with .Values.registry.basicAuth }}
{{- if .existingSecret }}
{{ include "prorata.passwordVolume" (list "registry-auth" .existingSecret .passwordKey) }}
{{- end }}
{{- end }}
{{- end }}

{{/* One key of a Secret as a file: (list volume secret key). */}}
{{- define "prorata.passwordVolume" -}}
- name: {{ index . 0 }}
  secret:
    secretName: {{ index . 1 }}
    items:
      - key: {{ index . 2 }}
        path: {{ index . 2 }}
{{- end }}

{{/* Configuration of the backfill: merged over `config`, without rules if keepRules is set. */}}
{{- define "prorata.backfillConfig" -}}
{{- $config := mergeOverwrite (deepCopy .Values.config) (deepCopy .Values.backfill.config) -}}
{{- toYaml (ternary (omit $config "rules") $config .Values.backfill.keepRules) -}}
{{- end }}
