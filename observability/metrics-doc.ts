/** The reference of metrics, as Markdown. */
import { knownMetrics } from './metric-names.ts'

/** The content of docs/metrics.md. */
export function metricsDocument(): string {
  const rows = knownMetrics
    .filter(({ description }) => description)
    .map(({ name, prometheus, kind, attributes, description }) => {
      const labels = attributes.map((attribute) => `\`${attribute}\``).join(', ')
      return `| \`${name}\` | \`${prometheus}\` | ${kind} | ${labels} | ${description} |`
    })
  return `# Metrics

Made from the catalogue in \`src/messaging/telemetry/catalogue.ts\` and the
service's own in \`src/service/telemetry-gauges.ts\` by
\`npm run generate:observability\`. All threads of a process are at one place,
\`/metrics\` on \`ADMIN_PORT\`; with \`OTEL_METRICS_EXPORTER=otlp\` each thread also
pushes its own. A histogram has \`_bucket\`, \`_sum\` and \`_count\`. An event's id,
key or offset is never a label. Topics, groups and names of outboxes are yours:
each is a series. \`error.type\` is the word that an error states: its \`reason\`,
\`code\` or class. Each thread keeps the first 100 of what it sends, and the first
100 of what it handles; later ones are \`_OTHER\`.

The instrumentations add \`http.server.request.duration\`,
\`db.client.operation.duration\`, \`nodejs.eventloop.*\`, \`v8js.*\` and \`otel.sdk.*\`;
\`service.thread.up\`, at \`/metrics\` alone, tells which threads answer.

| OpenTelemetry | Prometheus | kind | attributes | meaning |
| --- | --- | --- | --- | --- |
${rows.join('\n')}
`
}
