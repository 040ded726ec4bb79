/** Writes what is made from the catalogue: the dashboards' JSON and docs/metrics.md. A guard test fails when that was forgotten. */
import { writeFile } from 'node:fs/promises'
import { dashboardFiles } from '../observability/dashboards/all.ts'
import { metricsDocument } from '../observability/metrics-doc.ts'

for (const [name, content] of dashboardFiles()) {
  await writeFile(new URL(`../observability/dashboards/${name}`, import.meta.url), content)
}
await writeFile(new URL('../docs/metrics.md', import.meta.url), metricsDocument())
