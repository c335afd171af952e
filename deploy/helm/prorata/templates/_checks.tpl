{{/* What values.schema.json cannot check: values that contradict each other, and secrets in plain sight. */}}

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

{{/* Bytes of an amount such as 2Gi, 1.5G or 1073741824: below 2^53, so that a float holds it exactly. */}}
{{- define "prorata.bytes" -}}
{{- if kindIs "string" . -}}
{{- $factors := dict "m" 0.001 "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $factors (regexFind "[A-Za-z]*$" .)) | int64 -}}
{{- else -}}
{{- int64 . -}}
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
{{- include "prorata.refuseSecrets" (list "backfill.config" (omit .Values.backfill.config "rules")) -}}
{{- $drain := dig "work" "drain_timeout" "30s" .Values.config -}}
{{- $seconds := include "prorata.seconds" (list "config.work.drain_timeout" $drain) | int64 -}}
{{- if le (int64 .Values.terminationGracePeriodSeconds) $seconds -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is not longer than config.work.drain_timeout (%s): a worker would be killed while it drains" (int64 .Values.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- $shards := dig "root" "shards" 0 .Values.config | int64 -}}
{{- if and $shards (gt (int64 .Values.replicas) $shards) -}}
{{- fail (printf "replicas: %d workers for %d shards (config.root.shards): those without a shard would idle" (int64 .Values.replicas) $shards) -}}
{{- end -}}
{{- with .Values.autoscaling -}}
{{- if .enabled -}}
{{- if not (kindIs "invalid" $.Values.replicas) -}}
{{- fail (printf "replicas: %d would be set back at every upgrade while autoscaling.enabled; set replicas to null" (int64 $.Values.replicas)) -}}
{{- end -}}
{{- if not .prometheus.serverAddress -}}
{{- fail "autoscaling.prometheus.serverAddress: name the Prometheus whose prorata_lag_seconds decides" -}}
{{- end -}}
{{- $most := default $shards .maxReplicas | int64 -}}
{{- if not $most -}}
{{- fail "autoscaling.maxReplicas: without config.root.shards the most workers must be named here" -}}
{{- end -}}
{{- if and $shards (gt $most $shards) -}}
{{- fail (printf "autoscaling.maxReplicas: %d workers for %d shards (config.root.shards): those without a shard would idle" $most $shards) -}}
{{- end -}}
{{- if gt (int64 .minReplicas) $most -}}
{{- fail (printf "autoscaling.minReplicas: %d is more than the most, %d" (int64 .minReplicas) $most) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $memory := dig "work" "memory_limit" 1073741824 .Values.config | int64 -}}
{{- $limit := include "prorata.bytes" .Values.resources.limits.memory | int64 -}}
{{- if ge $memory $limit -}}
{{- fail (printf "resources.limits.memory: %d bytes leave nothing besides config.work.memory_limit (%d bytes): a worker would be killed for its memory" $limit $memory) -}}
{{- end -}}
{{- range $component := list "check" "report" -}}
{{- with index $.Values $component -}}
{{- if and .enabled (not (or .lake (dig "root" "url" "" $.Values.config))) -}}
{{- fail (printf "%s.lake: name the lake here, or set config.root.url" $component) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.report.enabled (not .Values.report.out) -}}
{{- fail "report.out: name the page, such as s3://bucket/reports/costs.html" -}}
{{- end -}}
{{- with .Values.backfill -}}
{{- if and .keepRules (hasKey .config "rules") -}}
{{- fail "backfill.keepRules: hours cannot keep their rules and be given those of backfill.config.rules; leave out one of the two" -}}
{{- end -}}
{{- $root := dig "root" "url" "" $.Values.config | trimSuffix "/" -}}
{{- if and .enabled (not .suspend) $root (eq $root (trimSuffix "/" .lake)) (ne (toString $.Values.replicas) "0") -}}
{{- fail (printf "backfill.lake: workers hold the shards of %s, and every run on schedule would be refused; name a root of its own, or suspend the schedule" .lake) -}}
{{- end -}}
{{- end -}}
{{- end }}
