{{/* One alert: (dict "url" text "name" text "expr" text "for" text "severity" text "summary" text). */}}
{{- define "prorata.alert" -}}
- alert: {{ .name }}
  expr: {{ .expr | quote }}
  for: {{ .for }}
  labels:
    severity: {{ .severity }}
  annotations:
    summary: {{ .summary | quote }}
    {{- with .url }}
    runbook_url: {{ printf "%s#%s" . ($.name | lower) | quote }}
    {{- end }}
{{- end }}
