{{/* What values.schema.json cannot say: values that contradict each other, and secrets where everybody can read them. */}}

{{/* Whole seconds of a duration such as 30s or 5m, rounded up: (list key duration). */}}
{{- define "prorata.seconds" -}}
{{- $key := index . 0 -}}
{{- $text := toString (index . 1) -}}
{{- if not (regexMatch "^[0-9]{1,9}(ms|s|m|h|d)$" $text) -}}
{{- fail (printf "%s: '%s' is no duration such as 30s, 5m or 1h" $key $text) -}}
{{- end -}}
{{- $number := regexFind "^[0-9]+" $text | int64 -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- if eq $unit "ms" -}}
{{- div (add $number 999) 1000 -}}
{{- else -}}
{{- mul $number (get (dict "s" 1 "m" 60 "h" 3600 "d" 86400) $unit) -}}
{{- end -}}
{{- end }}

{{/* Refuses what looks like a secret anywhere below a value of the configuration: (list key value). */}}
{{- define "prorata.refuseSecrets" -}}
{{- $key := index . 0 -}}
{{- $value := index . 1 -}}
{{- if kindIs "map" $value -}}
{{- range $name, $inner := $value -}}
{{- include "prorata.refuseSecrets" (list (printf "%s.%s" $key $name) $inner) -}}
{{- end -}}
{{- else if kindIs "slice" $value -}}
{{- range $index, $inner := $value -}}
{{- include "prorata.refuseSecrets" (list (printf "%s.%d" $key $index) $inner) -}}
{{- end -}}
{{- else if and (kindIs "string" $value) $value -}}
{{- if regexMatch "(?i)(password|passphrase|secret|token|credentials?|(access|private|account|sas)[._-]?key|key[._-]pem)$" $key -}}
{{- fail (printf "%s would stand in a ConfigMap for all to read; put it into a Secret, and name that in kafka.sasl, registry.basicAuth, objectStore or extraEnv" $key) -}}
{{- end -}}
{{- if regexMatch "://[^/@]*:[^/@]*@" $value -}}
{{- fail (printf "%s has a password in its URL, which would stand in a ConfigMap for all to read; put it into a Secret" $key) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "prorata.check" -}}
{{- include "prorata.refuseSecrets" (list "config" (omit .Values.config "rules")) -}}
{{- $drain := dig "work" "drain_timeout" "30s" .Values.config -}}
{{- $seconds := include "prorata.seconds" (list "config.work.drain_timeout" $drain) | int64 -}}
{{- if le (int64 .Values.terminationGracePeriodSeconds) $seconds -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is not longer than config.work.drain_timeout (%s): a worker would be killed while it drains" (int64 .Values.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- $shards := dig "root" "shards" 0 .Values.config | int64 -}}
{{- if and $shards (gt (int64 .Values.replicas) $shards) -}}
{{- fail (printf "replicas: %d workers for %d shards (config.root.shards): those without a shard would idle" (int64 .Values.replicas) $shards) -}}
{{- end -}}
{{- $memory := dig "work" "memory_limit" 1073741824 .Values.config | int64 -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if regexMatch "^[0-9]+(Ki|Mi|Gi|Ti)?$" $limit -}}
{{- $factor := get (dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776) (regexFind "[A-Za-z]*$" $limit) -}}
{{- if ge $memory (mul (regexFind "^[0-9]+" $limit | int64) $factor) -}}
{{- fail (printf "resources.limits.memory: %s leaves nothing beside config.work.memory_limit (%d bytes): a worker would be killed for its memory" $limit $memory) -}}
{{- end -}}
{{- end -}}
{{- with .Values.backfill -}}
{{- $root := dig "root" "url" "" $.Values.config | trimSuffix "/" -}}
{{- if and .enabled (not .suspend) $root (eq $root (trimSuffix "/" .lake)) (gt (int64 $.Values.replicas) 0) -}}
{{- fail (printf "backfill.lake: workers hold the shards of %s, and every run on schedule would be refused; name a root of its own, or suspend the schedule" .lake) -}}
{{- end -}}
{{- end -}}
{{- end }}
