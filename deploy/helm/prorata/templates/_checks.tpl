{{/* Checks beyond values.schema.json: contradictory values, and secrets in plain text. */}}

{{/* Seconds of a duration such as 30s or 5m, rounded up: (list key duration). */}}
{{- define "prorata.seconds" -}}
{{- $key := index . 0 -}}
{{- $text := toString (index . 1) -}}
{{- if not (regexMatch "^[0-9]{1,9}(ms|s|m|h|d)$" $text) -}}
{{- fail (printf "%s: '%s' is not a duration such as 30s, 5m or 1h" $key $text) -}}
{{- end -}}
{{- $number := regexFind "^[0-9]+" $text | int64 -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- if eq $unit "ms" -}}
{{- div (add $number 999) 1000 -}}
{{- else -}}
{{- mul $number (get (dict "s" 1 "m" 60 "h" 3600 "d" 86400) $unit) -}}
{{- end -}}
{{- end }}

{{/* Bytes of a quantity such as 2Gi, 1.5G or 1073741824, below 2^53 so that a float is exact. */}}
{{- define "prorata.bytes" -}}
{{- if kindIs "string" . -}}
{{- $factors := dict "m" 0.001 "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $factors (regexFind "[A-Za-z]*$" .)) | int64 -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end }}

{{/* Fails on a configuration value that looks like a secret: (list key value). */}}
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
{{- fail (printf "%s would be stored in plain text in a ConfigMap; put it into a Secret, and set kafka.sasl, registry.basicAuth, objectStore or extraEnv to it" $key) -}}
{{- end -}}
{{- if regexMatch "://[^/@]*:[^/@]*@" $value -}}
{{- fail (printf "%s has a password in its URL, which would be stored in plain text in a ConfigMap; put it into a Secret" $key) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "prorata.check" -}}
{{- include "prorata.refuseSecrets" (list "config" (omit .Values.config "rules")) -}}
{{- include "prorata.refuseSecrets" (list "backfill.config" (omit .Values.backfill.config "rules")) -}}
{{- $drain := dig "work" "drain_timeout" "30s" .Values.config -}}
{{- $seconds := include "prorata.seconds" (list "config.work.drain_timeout" $drain) | int64 -}}
{{- if le (int64 .Values.terminationGracePeriodSeconds) $seconds -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is not longer than config.work.drain_timeout (%s): a worker would be killed while it drains; raise it" (int64 .Values.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- $shards := dig "root" "shards" 0 .Values.config | int64 -}}
{{- if and $shards (gt (int64 .Values.replicas) $shards) -}}
{{- fail (printf "replicas: %d workers for %d shards (config.root.shards): workers without a shard are idle; lower it" (int64 .Values.replicas) $shards) -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- if not (kindIs "invalid" $.Values.replicas) -}}
{{- fail (printf "replicas: with autoscaling.enabled, every upgrade would reset the workers to %d; set replicas to null" (int64 $.Values.replicas)) -}}
{{- end -}}
{{- if not .prometheus.serverAddress -}}
{{- fail "autoscaling.prometheus.serverAddress: set the URL of the Prometheus that has prorata_lag_seconds" -}}
{{- end -}}
{{- $most := default $shards .maxReplicas | int64 -}}
{{- if not $most -}}
{{- fail "autoscaling.maxReplicas: set it, or set config.root.shards" -}}
{{- end -}}
{{- if and $shards (gt $most $shards) -}}
{{- fail (printf "autoscaling.maxReplicas: %d workers for %d shards (config.root.shards): workers without a shard are idle; lower it" $most $shards) -}}
{{- end -}}
{{- if gt (int64 .minReplicas) $most -}}
{{- fail (printf "autoscaling.minReplicas: %d is more than the maximum, %d" (int64 .minReplicas) $most) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $memory := dig "work" "memory_limit" 1073741824 .Values.config | int64 -}}
{{- $limit := include "prorata.bytes" .Values.resources.limits.memory | int64 -}}
{{- if ge $memory $limit -}}
{{- fail (printf "resources.limits.memory: %d bytes is not more than config.work.memory_limit (%d bytes): a worker would be OOM-killed; set it to twice as much" $limit $memory) -}}
{{- end -}}
{{- range $component := list "check" "report" -}}
{{- with index $.Values $component -}}
{{- if and .enabled (not (or .lake (dig "root" "url" "" $.Values.config))) -}}
{{- fail (printf "%s.lake: set it, or set config.root.url" $component) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.report.enabled (not .Values.report.output) -}}
{{- fail "report.output: set the URL of the page, such as s3://bucket/reports/costs.html" -}}
{{- end -}}
{{- with .Values.backfill -}}
{{- if and .keepRules (hasKey .config "rules") -}}
{{- fail "backfill.keepRules: contradicts backfill.config.rules; remove one of the two" -}}
{{- end -}}
{{- $root := dig "root" "url" "" $.Values.config | trimSuffix "/" -}}
{{- if and .enabled (not .suspend) $root (eq $root (trimSuffix "/" .lake)) (ne (toString $.Values.replicas) "0") -}}
{{- fail (printf "backfill.lake: workers hold the shards of %s, so every scheduled run would be refused; use another root, or set backfill.suspend" .lake) -}}
{{- end -}}
{{- end -}}
{{- end }}
