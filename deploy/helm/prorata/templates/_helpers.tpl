{{/* Names leave room for what Kubernetes appends to the name of a StatefulSet's or a Job's pods. */}}
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

{{/* What every pod of the release has, and never changes: selectors are made of it. */}}
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

{{/* The port that config.http.listen ends in. */}}
{{- define "prorata.port" -}}
{{- regexFind "[0-9]+$" .Values.config.http.listen -}}
{{- end }}

{{/* What the pods of the workers and of the Jobs have in common, from `serviceAccountName` on. */}}
{{- define "prorata.podSpec" -}}
serviceAccountName: {{ include "prorata.serviceAccountName" . }}
automountServiceAccountToken: false
{{ include "prorata.podPlacement" . }}
{{- end }}

{{/* What they have in common with the collector's pod: no service links, users, and where they run. */}}
{{- define "prorata.podPlacement" -}}
# Services of the namespace would otherwise appear in the environment, where PRORATA_… is configuration.
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if not (kindIs "invalid" .Values.podSecurity.hostUsers) }}
hostUsers: {{ .Values.podSecurity.hostUsers }}
{{- end }}
securityContext:
  runAsNonRoot: true
  {{- with .Values.podSecurity }}
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

{{/* Environment of all: how the object store is reached, and what else the values name. */}}
{{- define "prorata.env" -}}
{{- range $name, $value := .Values.objectStore.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Where all take environment variables from. */}}
{{- define "prorata.envFrom" -}}
{{- with .Values.objectStore.existingSecret }}
- secretRef:
    name: {{ . }}
{{- end }}
{{- with .Values.extraEnvFrom }}
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

{{/* Environment of what reaches Kafka and the schema registry. */}}
{{- define "prorata.kafkaEnv" -}}
{{- with .Values.kafka.sasl }}
{{- if .existingSecret }}
{{ include "prorata.secretEnv" (list "PRORATA_KAFKA__SASL_USERNAME" .existingSecret .usernameKey) }}
{{ include "prorata.secretEnv" (list "PRORATA_KAFKA__SASL_PASSWORD" .existingSecret .passwordKey) }}
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
{{ include "prorata.secretEnv" (list "PRORATA_REGISTRY__PASSWORD" .existingSecret .passwordKey) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "prorata.kafkaMounts" -}}
{{- if .Values.kafka.tls.existingSecret -}}
- name: kafka-tls
  mountPath: /etc/prorata-tls/kafka
  readOnly: true
{{- end }}
{{- end }}

{{- define "prorata.kafkaVolumes" -}}
{{- with .Values.kafka.tls.existingSecret -}}
- name: kafka-tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- end }}

{{/* The backfill's configuration: the workers' under its own, without rules where hours keep theirs. */}}
{{- define "prorata.backfillConfig" -}}
{{- $config := mergeOverwrite (deepCopy .Values.config) (deepCopy .Values.backfill.config) -}}
{{- toYaml (ternary (omit $config "rules") $config .Values.backfill.keepRules) -}}
{{- end }}
