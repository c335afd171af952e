{{/*
The spec of a CronJob's Job:
(dict "root" $ "component" name "args" list "env" text "mounts" text "volumes" text "resources" map
      "activeDeadlineSeconds" number "backoffLimit" number "ttlSecondsAfterFinished" number
      "placement" map).
*/}}
{{- define "prorata.job" -}}
{{- $values := deepCopy .root.Values -}}
{{- range $key, $value := .placement -}}
{{- $_ := set $values $key $value -}}
{{- end -}}
{{- $root := dict "Values" $values "Release" .root.Release "Chart" .root.Chart -}}
metadata:
  labels:
    {{- include "prorata.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  activeDeadlineSeconds: {{ int64 .activeDeadlineSeconds }}
  backoffLimit: {{ int64 .backoffLimit }}
  ttlSecondsAfterFinished: {{ int64 .ttlSecondsAfterFinished }}
  podFailurePolicy:
    rules:
      # Do not retry wrong usage or configuration, a shard that a worker holds (2), or dead-lettered input
      # (3).
      - action: FailJob
        onExitCodes:
          containerName: {{ .component }}
          operator: In
          values: [2, 3]
      # Evictions, preemptions and drains do not count as failures.
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
  template:
    metadata:
      labels:
        {{- include "prorata.selectorLabels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .component }}
        {{- with $root.Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with $root.Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      {{- include "prorata.podSpec" $root | nindent 6 }}
      restartPolicy: Never
      # A run may be killed at any time; the next one resumes from the last checkpoint.
      terminationGracePeriodSeconds: 5
      containers:
        - name: {{ .component }}
          image: {{ include "prorata.image" $root | quote }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          # The last lines of the log say why it stopped.
          terminationMessagePolicy: FallbackToLogsOnError
          args:
            {{- range .args }}
            - {{ . | quote }}
            {{- end }}
          {{- with .env | trim }}
          env:
            {{- . | nindent 12 }}
          {{- end }}
          {{- with include "prorata.envFrom" $root | trim }}
          envFrom:
            {{- . | nindent 12 }}
          {{- end }}
          resources:
            {{- toYaml .resources | nindent 12 }}
          securityContext:
            {{- include "prorata.securityContext" $root | nindent 12 }}
          volumeMounts:
            {{- include "prorata.volumeMounts" $root | nindent 12 }}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "prorata.volumes" $root | nindent 8 }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
{{- end }}
