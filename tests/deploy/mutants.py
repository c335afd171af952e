#!/usr/bin/env python3
"""Breaks a copy of deploy/ in one way after another, and reports which breakage the checks do not find.

`check --mutants [FILE]` starts it, for all files or those whose path contains FILE. Every line below names a
file, a part of it, and its replacement.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent
CHART = "helm/prorata/"
TEMPLATES = CHART + "templates/"
WORKER, BACKFILL, REPLAY, MAINTAIN, JOB, HELPERS, CHECKS = (
    TEMPLATES + name
    for name in (
        "statefulset.yaml",
        "backfill.yaml",
        "replay.yaml",
        "maintain.yaml",
        "_job.tpl",
        "_helpers.tpl",
        "_checks.tpl",
    )
)
LOOK, TEST, ALERTS = (TEMPLATES + name for name in ("look.yaml", "test.yaml", "prometheusrule.yaml"))
CI, RELEASE = "github/workflows/ci.yml", "github/workflows/release.yml"
SCHEMA, VALUES = CHART + "values.schema.json", CHART + "values.yaml"

MUTANTS = [
    (WORKER, "podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady"),
    (WORKER, "type: RollingUpdate", "type: OnDelete"),
    (WORKER, "FallbackToLogsOnError", "File"),
    (WORKER, "fieldPath: metadata.name", "fieldPath: metadata.uid"),
    (WORKER, "PRORATA_KAFKA__GROUP_INSTANCE_ID", "PRORATA_KAFKA__INSTANCE_ID"),
    (WORKER, "            - work\n", "            - worker\n"),
    (
        WORKER,
        "checksum/config: {{ toYaml .Values.config | sha256sum }}",
        "checksum/config: {{ .Chart.Version | sha256sum }}",
    ),
    (WORKER, "toYaml .Values.config | sha256sum", "toYaml .Values | sha256sum"),
    (
        WORKER,
        "terminationGracePeriodSeconds: {{ int64 .Values.terminationGracePeriodSeconds }}",
        "terminationGracePeriodSeconds: 30",
    ),
    (WORKER, "path: /readyz", "path: /livez"),
    (WORKER, 'containerPort: {{ include "prorata.port" . }}', "containerPort: 8080"),
    (
        WORKER,
        "          startupProbe:\n            httpGet:\n              path: /livez",
        "          startupProbe:\n            httpGet:\n              path: /",
    ),
    (
        WORKER,
        "              path: /livez\n              port: http\n            {{- toYaml .Values.livenessProbe",
        "              path: /livez\n              port: metrics\n"
        "            {{- toYaml .Values.livenessProbe",
    ),
    (
        WORKER,
        'serviceName: {{ include "prorata.fullname" . }}',
        'serviceName: {{ include "prorata.fullname" . }}-headless',
    ),
    (
        HELPERS,
        '"/etc/prorata-secrets/kafka/%s" .passwordKey',
        '"/etc/prorata-secrets/kafka/%s" .usernameKey',
    ),
    (HELPERS, "PRORATA_REGISTRY__PASSWORD_FILE", "PRORATA_REGISTRY__PASSWD_FILE"),
    (HELPERS, '"registry-auth" .existingSecret .passwordKey', '"registry-auth" .existingSecret .usernameKey'),
    (HELPERS, "secretName: {{ . }}", "secretName: kafka-authority"),
    (
        HELPERS,
        "  mountPath: /etc/prorata-tls/kafka\n  readOnly: true\n",
        "  mountPath: /etc/prorata-tls/kafka\n",
    ),
    (HELPERS, "mountPath: /etc/prorata-tls/kafka", "mountPath: /etc/prorata/tls"),
    (
        WORKER,
        "        app.kubernetes.io/component: worker\n        {{- with .Values.podLabels }}",
        "        {{- with .Values.podLabels }}",
    ),
    (
        WORKER,
        '          securityContext:\n            {{- include "prorata.securityContext" . | nindent 12 }}\n',
        "",
    ),
    (WORKER, "          resources:\n            {{- toYaml .Values.resources | nindent 12 }}\n", ""),
    (
        WORKER,
        "topologySpreadConstraints:\n        {{- toYaml . | nindent 8 }}",
        "topologySpreadConstraints: []",
    ),
    (HELPERS, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
    (HELPERS, "    - ALL", "    - NET_RAW"),
    (HELPERS, "type: RuntimeDefault", "type: Unconfined"),
    (HELPERS, "allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"),
    (HELPERS, "automountServiceAccountToken: false", "automountServiceAccountToken: true"),
    (HELPERS, "enableServiceLinks: false\n", ""),
    (HELPERS, "runAsUser: {{ int64 .runAsUser }}", "runAsUser: 0"),
    (HELPERS, '{{- if not (kindIs "invalid" .fsGroup) }}', "{{- if true }}"),
    (HELPERS, "mountPath: /tmp", "mountPath: /var/tmp"),
    (HELPERS, "  mountPath: /etc/prorata\n  readOnly: true", "  mountPath: /etc/prorata"),
    (HELPERS, "mountPath: /etc/prorata\n", "mountPath: /etc/cost\n"),
    (HELPERS, "    sizeLimit: {{ .Values.tmp.sizeLimit }}", "    medium: Memory"),
    (HELPERS, '{{- printf "%s@%s" .repository .digest -}}', '{{- printf "%s:%s" .repository .tag -}}'),
    (HELPERS, "trunc 43", "trunc 63"),
    (
        HELPERS,
        "app.kubernetes.io/instance: {{ .Release.Name | quote }}",
        "app.kubernetes.io/instance: {{ .Release.Name | quote }}\n"
        "app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}",
    ),
    (HELPERS, "{{- with .Values.tolerations }}", "{{- with .Values.nothing }}"),
    (BACKFILL, "concurrencyPolicy: Forbid", "concurrencyPolicy: Allow"),
    (BACKFILL, "timeZone: Etc/UTC\n", "\n"),
    (JOB, "values: [2, 3]", "values: [2]"),
    (JOB, "containerName: {{ .component }}", "containerName: worker"),
    (JOB, "- action: Ignore", "- action: Count"),
    (JOB, "restartPolicy: Never", "restartPolicy: OnFailure"),
    (JOB, "activeDeadlineSeconds: {{ int64 .activeDeadlineSeconds }}\n", "\n"),
    (
        JOB,
        "        app.kubernetes.io/component: {{ .component }}\n        {{- with",
        "        app.kubernetes.io/component: worker\n        {{- with",
    ),
    (
        JOB,
        'securityContext:\n            {{- include "prorata.securityContext" $root | nindent 12 }}',
        "securityContext: {}",
    ),
    (
        JOB,
        '{{- with include "prorata.envFrom" $root | trim }}',
        "{{- with $root.Values.kafka.sasl.existingSecret }}",
    ),
    (JOB, "{{- toYaml .resources", "{{- toYaml .root.Values.resources"),
    (JOB, "{{- with .env | trim }}", '{{- with .environment | default "" | trim }}'),
    (JOB, "{{- with .mounts }}", "{{- with .nothing }}"),
    (BACKFILL, "suspend: {{ .suspend }}", "suspend: false"),
    (BACKFILL, "{{- if .takeOver }}", "{{- if true }}"),
    (BACKFILL, "startingDeadlineSeconds: {{ int64 .startingDeadlineSeconds }}\n", "\n"),
    (BACKFILL, '"--lake" .lake', '"--lake" .events'),
    (BACKFILL, '"/etc/prorata/backfill.yaml"', '"/etc/prorata/prorata.yaml"'),
    (BACKFILL, "(concat $args (default list .extraArgs))", "$args"),
    (BACKFILL, '"resources" .resources', '"resources" $.Values.resources'),
    (BACKFILL, '"backoffLimit" .backoffLimit', '"backoffLimit" 2'),
    (MAINTAIN, "suspend: {{ .suspend }}", "suspend: false"),
    (MAINTAIN, "concurrencyPolicy: Forbid", "concurrencyPolicy: Allow"),
    (MAINTAIN, '"/etc/prorata/prorata.yaml"', '"/etc/prorata/backfill.yaml"'),
    (MAINTAIN, "(default list .extraArgs)", "list"),
    (MAINTAIN, '"env" (include "prorata.env" $)', '"env" ""'),
    (MAINTAIN, '"resources" .resources', '"resources" $.Values.resources'),
    (MAINTAIN, '"placement" .placement', '"placement" dict'),
    (REPLAY, "suspend: true", "suspend: false"),
    (REPLAY, "concurrencyPolicy: Forbid", "concurrencyPolicy: Allow"),
    (REPLAY, '"/etc/prorata/prorata.yaml"', '"/etc/prorata/backfill.yaml"'),
    (REPLAY, ' "--replay"', ""),
    (REPLAY, '(include "prorata.kafkaEnv" $ | trim)', '""'),
    (REPLAY, '(include "prorata.env" $ | trim)', '""'),
    (REPLAY, '"mounts" (include "prorata.kafkaMounts" $ | trim)', '"mounts" ""'),
    (REPLAY, '"backoffLimit" 0', '"backoffLimit" 2'),
    (REPLAY, "}}-replay", "}}-dead-letters"),
    (REPLAY, '"resources" .resources', '"resources" $.Values.resources'),
    (REPLAY, "(concat $args (default list .extraArgs))", "$args"),
    (HELPERS, "mergeOverwrite (deepCopy", "merge (deepCopy"),
    (HELPERS, '(omit $config "rules") $config', "$config $config"),
    (TEMPLATES + "configmap.yaml", '{{- include "prorata.check" . -}}\n', ""),
    (TEMPLATES + "configmap.yaml", "{{- toYaml .Values.config", "{{- toYaml .Values"),
    (TEMPLATES + "configmap.yaml", "{{- if .Values.backfill.enabled }}", "{{- if true }}"),
    (
        TEMPLATES + "configmap.yaml",
        "{{- toYaml .Values.config | nindent 4 }}",
        "{{- range $key, $value := .Values.config.work }}\n    {{ $key }}: {{ $value }}{{ end }}",
    ),
    (TEMPLATES + "service.yaml", "clusterIP: None", 'clusterIP: ""'),
    (TEMPLATES + "service.yaml", "name: http", "name: metrics"),
    (TEMPLATES + "service.yaml", "    app.kubernetes.io/component: worker\n", ""),
    (TEMPLATES + "service.yaml", "publishNotReadyAddresses", "publishNotReadyAdresses"),
    (TEMPLATES + "serviceaccount.yaml", "automountServiceAccountToken: false\n", ""),
    (TEMPLATES + "serviceaccount.yaml", ".Values.serviceAccount.annotations", ".Values.podAnnotations"),
    (TEMPLATES + "poddisruptionbudget.yaml", "unhealthyPodEvictionPolicy: AlwaysAllow\n", "\n"),
    (TEMPLATES + "poddisruptionbudget.yaml", "      app.kubernetes.io/component: worker\n", ""),
    (
        TEMPLATES + "poddisruptionbudget.yaml",
        "maxUnavailable: {{ .Values.podDisruptionBudget.maxUnavailable }}",
        "minAvailable: 1",
    ),
    (
        TEMPLATES + "networkpolicy.yaml",
        "    - Ingress\n    {{- if .Values.networkPolicy.egress }}\n    - Egress\n    {{- end }}",
        "    - Ingress\n    - Egress",
    ),
    (TEMPLATES + "networkpolicy.yaml", "protocol: UDP", "protocol: TCP"),
    (TEMPLATES + "servicemonitor.yaml", "path: /metrics", "path: /status"),
    (
        TEMPLATES + "servicemonitor.yaml",
        "      app.kubernetes.io/component: {{ $component }}\n  {{ if",
        "      app.kubernetes.io/component: worker\n  {{ if",
    ),
    (TEMPLATES + "servicemonitor.yaml", "replacement: {{ $name }}", "replacement: prorata"),
    (TEMPLATES + "servicemonitor.yaml", "podMetricsEndpoints", "podEndpoints"),
    (TEMPLATES + "service.yaml", ".Values.service.annotations", ".Values.podAnnotations"),
    (WORKER, "int64 .Values.revisionHistoryLimit", "10"),
    (HELPERS, "hostUsers: {{ .Values.hostUsers }}", "hostUsers: true"),
    (LOOK, '"--allow-warnings"', '"--json"'),
    (LOOK, "schedule: {{ .schedule | quote }}", 'schedule: "0 0 * * *"'),
    (LOOK, "suspend: {{ .suspend }}", "suspend: true"),
    (LOOK, '"placement" .placement', '"placement" dict'),
    (TEST, "- ready\n", "- work\n"),
    (TEST, "helm.sh/hook: test", "helm.sh/hook: post-install"),
    (TEST, "app.kubernetes.io/component: test", "app.kubernetes.io/component: worker"),
    (ALERTS, "prorata_organizations_held{%s}) > 0", "prorata_organizations_held{%s}) > 2"),
    (ALERTS, "prorata_collector_queue_depth{%s}) > 900", "prorata_collector_queue_depth{%s}) > 1100"),
    (ALERTS, 'printf "%s-collector"', 'printf "%s-collect"'),
    (ALERTS, "min by (pod) (prorata_checkpoint_age", "max by (pod) (prorata_checkpoint_age"),
    (TEMPLATES + "service.yaml", "app.kubernetes.io/component: collector\n{{- end }}", "app: x\n{{- end }}"),
    (CHART + "examples/aws.yaml", "shards: 16", "shards: 2"),
    (CHART + "README.md", "`replicas` | `2`", "`replicas` | `3`"),
    ("compose/compose.yaml", "- ./prometheus.yaml", "- ./prometheus.yml"),
    (TEMPLATES + "NOTES.txt", 'dig "root" "url"', 'dig "work" "lake"'),
    (
        CHECKS,
        "le (int64 .Values.terminationGracePeriodSeconds) $seconds",
        "lt (int64 .Values.terminationGracePeriodSeconds) $seconds",
    ),
    (CHECKS, "{{- div (add $number 999) 1000 -}}", "{{- div $number 1000 -}}"),
    (CHECKS, '"m" 60', '"m" 1'),
    (CHECKS, '"drain_timeout" "30s"', '"drain_timeout" "20s"'),
    (CHECKS, "{{- if ge $memory", "{{- if gt $memory"),
    (CHECKS, '{{- if kindIs "string" . -}}', "{{- if true -}}"),
    (CHECKS, '"^[0-9.]+"', '"^[0-9]+"'),
    (CHECKS, '"m" 0.001', '"m" 1'),
    (CHECKS, '"k" 1e3', '"k" 1024'),
    (CHECKS, '"M" 1e6', '"M" 1e9'),
    (CHECKS, '"G" 1e9', '"G" 1073741824'),
    (CHECKS, '"T" 1e12', '"T" 1e9'),
    (CHECKS, '"Ki" 1024', '"Ki" 1000'),
    (CHECKS, '"Ti" 1099511627776', '"Ti" 1073741824'),
    (CHECKS, "if and .keepRules", "if and false"),
    (CHECKS, '"backfill.config" (omit .Values.backfill.config "rules")', '"backfill.config" dict'),
    (CHECKS, "gt (int64 .Values.replicas) $shards", "ge (int64 .Values.replicas) $shards"),
    (CHECKS, "|token|", "|tokens|"),
    (CHECKS, '(omit .Values.config "rules")', ".Values.config"),
    (CHECKS, "not .suspend", "true"),
    (CHECKS, '"://[^/@]*:[^/@]*@"', '"://:@"'),
    (SCHEMA, '"minimum": 1\n    },\n    "basic"', '"minimum": 0\n    },\n    "basic"'),
    (SCHEMA, "(SECRET|PASSWORD|TOKEN|(ACCESS|ACCOUNT", "(PASSWORD|TOKEN|(ACCOUNT"),
    (
        SCHEMA,
        '"then": {"description": "A secret comes from valueFrom", "not": {"required": ["value"]}}',
        '"then": {}',
    ),
    (SCHEMA, "^(0\\\\.0\\\\.0\\\\.0|", "^([0-9.]+|"),
    (
        SCHEMA,
        '"replicas": {"type": ["integer", "null"], "minimum": 0}',
        '"replicas": {"type": ["integer", "string"]}',
    ),
    (SCHEMA, '"then": {"properties": {"events": {"minLength": 1}, "lake": {"minLength": 1}}}', '"then": {}'),
    (
        SCHEMA,
        '"type": "object",\n  "additionalProperties": false',
        '"type": "object",\n  "additionalProperties": true',
    ),
    (SCHEMA, '"tolerations"', '"tolerances"'),
    (VALUES, "# Tolerations of pods.\n", ""),
    (VALUES, "    # Key with the password.\n", ""),
    (VALUES, "takeOver: false", "takeOver: true"),
    (VALUES, "suspend: true", "suspend: false"),
    (
        VALUES,
        "replay:\n  # Create a CronJob for the replay.\n  enabled: false",
        "replay:\n  # Create a CronJob for the replay.\n  enabled: true",
    ),
    (VALUES, "keepRules: false", "keepRules: true"),
    (VALUES, "terminationGracePeriodSeconds: 60", "terminationGracePeriodSeconds: 30"),
    (VALUES, "  limits:\n    memory: 2Gi", "  limits:\n    memory: 1536Mi"),
    (VALUES, "listen: 0.0.0.0:8080", "listen: 0.0.0.0:8081"),
    (VALUES, "    format: json", "    style: json"),
    (VALUES, "runAsUser: 65532", "runAsUser: 1000"),
    (CHART + "Chart.yaml", 'appVersion: "0.2.0"', 'appVersion: "0.3.0"'),
    (CHART + "Chart.yaml", ">=1.29.0-0", ">=1.20.0-0"),
    ("prorata.yaml", "drain_timeout: 30s", "drain_timeout: 45s"),
    ("prorata.yaml", "group_instance_id:", "group_instance:"),
    ("Dockerfile", "USER 65532:65532", "USER prorata"),
    ("Dockerfile", "USER 65532:65532\n", ""),
    ("Dockerfile", "@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f", ""),
    ("Dockerfile", "debian:trixie-20261005-slim", "debian:bookworm-20261005-slim"),
    ("Dockerfile", "rust:1.95.0", "rust:1.94.0"),
    ("Dockerfile", "perl \\", "perl cmake \\"),
    ("compile", "--locked ", ""),
    ("compile", "--profile dist", "--profile release"),
    ("compile", '|| set -- --profile', '&& set -- --profile'),
    ("compile", "SOURCE_DATE_EPOCH=0", "SOURCE_DATE_EPOCH=$(date +%s)"),
    ("compile", '"$PWD=prorata" ', ""),
    ("compile", ' "$target=target"', ""),
    ("compile", '${CARGO_HOME:-$HOME/.cargo}', "$HOME/.cargo"),
    ("compile", ' CXXFLAGS="$CFLAGS"', ""),
    ("Dockerfile", "target/dist/prorata", "target/release/prorata"),
    ("compile", "tls-vendored", "ssl-vendored"),
    ("Dockerfile", 'ENTRYPOINT ["/usr/local/bin/prorata"]', "ENTRYPOINT prorata"),
    ("Dockerfile", "WORKDIR /src\n", "WORKDIR /src\nADD https://example.test/x /x\n"),
    ("Dockerfile", "ARG REVISION=unknown", "ARG REVISION=unknown\nENV AWS_SECRET_ACCESS_KEY=x"),
    ("Dockerfile", "ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt\n", ""),
    ("Dockerfile", "EXPOSE 8080", "EXPOSE"),
    ("dockerignore", "*\n!Cargo.toml", "target\n!Cargo.toml"),
    ("dockerignore", "!schemas\n", ""),
    ("dockerignore", "**/.env\n", ""),
    ("dockerignore", "!deploy/compile\n", ""),
    (CI, "RUSTUP_TOOLCHAIN: 1.95.0", "RUSTUP_TOOLCHAIN: 1.94.0"),
    (CI, "  contents: read", "  contents: write"),
    (CI, "hashFiles('Cargo.lock'", "hashFile('Cargo.lock'"),
    (CI, "    timeout-minutes: 60\n", ""),
    (RELEASE, "@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0", "@v5"),
    (RELEASE, "steps.names.outputs.version", "steps.name.outputs.version"),
    (RELEASE, "needs: verify\n    strategy", "strategy"),
    (RELEASE, "      contents: read\n      packages: write", "      contents: write\n      packages: write"),
    (RELEASE, 'tests/deploy/release.py "$GITHUB_REF_NAME"\n', "true\n"),
]


def found(file: str, part: str, instead: str) -> bool:
    """Whether the checks fail on a copy in which a part of a file is something else."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "deploy"
        shutil.copytree(REPOSITORY / "deploy", copy)
        shutil.copy(REPOSITORY / ".dockerignore", copy / "dockerignore")
        shutil.copytree(REPOSITORY / ".github", copy / "github")
        text = (copy / file).read_text()
        if part not in text:
            sys.exit(f"{file} has no part {part!r}: fix the list of mutants")
        (copy / file).write_text(text.replace(part, instead))
        environment = {**os.environ, "PRORATA_DEPLOY": str(copy)}
        return (
            subprocess.run(
                [HERE / "checks.py", "--failfast"], env=environment, capture_output=True, check=False
            ).returncode
            == 1
        )


def main() -> int:
    if not found("Dockerfile", "USER 65532:65532", "USER 0:0") or found(
        "Dockerfile", "# The image", "# The Image"
    ):
        sys.exit("the checks do not distinguish a broken copy from a whole one: run tests/deploy/check first")
    chosen = [mutant for mutant in MUTANTS if len(sys.argv) < 2 or sys.argv[1] in mutant[0]]
    missed = 0
    for file, part, instead in chosen:
        ok = found(file, part, instead)
        missed += not ok
        print(f"{'found ' if ok else 'MISSED'} {file}: {part!r} -> {instead!r}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
