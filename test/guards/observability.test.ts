/** Dashboards, alerts and their documents, held to the catalogue of metrics and to one another. */

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'
import { parse } from 'yaml'
import { boards, dashboardFiles } from '../../observability/dashboards/all.ts'
import { annotationQuery, variableQueries } from '../../observability/dashboards/board.ts'
import { knownMetrics, queryableLabels, queryableNames } from '../../observability/metric-names.ts'
import { metricsDocument } from '../../observability/metrics-doc.ts'
import { catalogue } from '../../src/messaging/telemetry/catalogue.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))

interface Rule {
  readonly alert?: string
  readonly record?: string
  readonly expr: string
  readonly labels?: { readonly severity: string }
  readonly annotations?: Readonly<Record<string, string>>
}

const rules = (parse(await text('observability/alerts.yaml')) as { groups: { rules: Rule[] }[] }).groups.flatMap(
  (group) => group.rules,
)
const alerts = rules.filter((rule) => rule.alert !== undefined)
const recorded = new Set(rules.flatMap(({ record }) => record ?? []))
const panels = boards.flatMap((board) =>
  board.rows.flatMap((row) => row.panels.map((panel) => ({ ...panel, board: board.uid }))),
)

/** Everything that a dashboard asks of Prometheus. What a variable asks is Grafana's own function over an expression. */
const dashboardExpressions = [
  ...panels.flatMap(({ queries }) => queries.map(([expr]) => expr)),
  ...Object.values(variableQueries).map((query) => /^label_values\((.+), \w+\)$/.exec(query)?.[1] ?? query),
  annotationQuery,
]

test('the dashboards that are committed are those that the code makes', async () => {
  const made = dashboardFiles()
  const committed = (await readdir(join(root, 'observability/dashboards'))).filter((name) => name.endsWith('.json'))

  expect(committed.sort()).toEqual([...made.keys()].sort())
  for (const [name, content] of made) expect(await text(`observability/dashboards/${name}`)).toBe(content)
})

test('docs/metrics.md is what the catalogue says', async () => {
  expect(await text('docs/metrics.md')).toBe(metricsDocument())
})

test('alerts and dashboards ask only for metrics and labels that exist', () => {
  const names = queryableNames()
  const labels = queryableLabels()
  const expressions = [...rules.map(({ expr }) => expr), ...dashboardExpressions]

  const unknown = expressions.flatMap((expr) => {
    const used = readExpression(expr)
    return [
      ...used.metrics.filter((name) => !names.has(name) && !recorded.has(name) && name !== 'ALERTS'),
      ...used.labels.filter((label) => !labels.has(label) && !['alertname', 'alertstate'].includes(label)),
    ]
  })

  expect(unknown).toEqual([])
})

test('a variable takes its values from a label that the metric has', () => {
  const asked = Object.entries(variableQueries).map(([name, query]) => {
    const [, metric, label = ''] = /^label_values\((\w+), (\w+)\)$/.exec(query) ?? []
    const known = knownMetrics.find(({ prometheus }) => prometheus === metric)
    const labels = [
      ...(known?.attributes ?? []).map((attribute) => attribute.replaceAll(/\W/g, '_')),
      'job',
      'instance',
    ]
    return { name, label, exists: known !== undefined && labels.includes(label) }
  })

  expect(asked).toEqual(Object.keys(variableQueries).map((name) => ({ name, label: name, exists: true })))
})

test('a name that does not exist would be found', () => {
  expect(readExpression('sum by (outbox_nam) (rate(outbox_typo_total{jobb="x"}[5m])) > 0')).toEqual({
    metrics: ['outbox_typo_total'],
    labels: ['outbox_nam', 'jobb'],
  })
})

test('every metric of ours is shown or alerted on', () => {
  const used = new Set(
    [...rules.map(({ expr }) => expr), ...panels.flatMap(({ queries }) => queries.map(([expr]) => expr))].flatMap(
      (expr) => readExpression(expr).metrics.map((name) => name.replace(/_(bucket|sum|count)$/, '')),
    ),
  )
  const unused = knownMetrics
    .map(({ prometheus }) => prometheus)
    .filter((name) => !used.has(name) && !used.has(name.replace(/_count$/, '')))

  expect(unused).toEqual([])
})

test('every instrument is recorded by somebody: no panel is empty for ever', async () => {
  const files = (await readdir(join(root, 'src'), { recursive: true })).filter(
    (name) => name.endsWith('.ts') && !name.endsWith('telemetry/catalogue.ts'),
  )
  const code = (await Promise.all(files.map((name) => text(join('src', name))))).join('\n')
  const recorded = new Set([
    ...[...code.matchAll(/(?:getInstruments\(\)|\binstruments)\.(\w+)/g)].map(([, name]) => name),
    ...[...code.matchAll(/\{([^{}]*)\} = getInstruments\(\)/g)].flatMap(([, names = '']) =>
      names.split(',').map((name) => name.trim()),
    ),
  ])

  expect(Object.keys(catalogue).filter((name) => !recorded.has(name))).toEqual([])
})

test('every alert says what it is, how grave it is, and where to look', () => {
  const uids = boards.map(({ uid }) => uid)
  for (const { alert = '', labels, annotations } of alerts) {
    expect(alert).toMatch(/^Outbox[A-Z]/)
    expect(['critical', 'warning', 'info']).toContain(labels?.severity)
    expect(annotations).toEqual({
      summary: expect.stringMatching(/.{20,}/),
      description: expect.stringMatching(/.{20,}/),
      runbook_url: `docs/operating.md#${alert.toLowerCase()}`,
      dashboard_url: expect.stringMatching(new RegExp(`^/d/(${uids.join('|')})$`)),
    })
  }
})

test('the dashboard that an alert names shows what it is about, and leads back to its runbook', () => {
  const asked = (expr: string): string[] =>
    readExpression(expr).metrics.flatMap((name) => {
      const rule = rules.find(({ record }) => record === name)
      return rule === undefined ? [name] : [name, ...asked(rule.expr)]
    })
  const links = panels.flatMap((panel) => (panel.alerts ?? []).map((alert) => ({ alert, panel })))
  const linked = links.map(({ alert, panel: { board } }) => `${alert} on /d/${board}`)

  const astray = links.filter(({ alert, panel }) => {
    const rule = alerts.find((each) => each.alert === alert)
    const shown = panel.queries.flatMap(([expr]) => asked(expr))
    return rule === undefined || !asked(rule.expr).some((name) => shown.includes(name))
  })
  expect(astray).toEqual([])
  for (const { alert, annotations } of alerts) expect(linked).toContain(`${alert} on ${annotations?.dashboard_url}`)
})

test('docs/operating.md has one section for each alert, and none for others', async () => {
  const sections = [...(await text('docs/operating.md')).matchAll(/^### (Outbox\w+)$/gm)].map(([, name]) => name)

  expect(sections.sort()).toEqual(alerts.map(({ alert }) => alert).sort())
})

test('every alert has a test in which it fires and one in which it is silent', async () => {
  const tests = [await text('observability/alerts.test.yaml'), await text('observability/alerts.slow.test.yaml')]
  const cases = tests.flatMap(
    (file) => (parse(file) as { tests: { name: string; promql_expr_test: { exp_samples: unknown[] }[] }[] }).tests,
  )
  for (const { alert } of alerts) {
    const counts = cases
      .filter(({ name }) => name.startsWith(`${alert} `))
      .map(({ promql_expr_test }) => promql_expr_test[0]?.exp_samples.length)
    expect({ alert, counts: [...new Set(counts)].sort() }).toEqual({ alert, counts: [0, 1] })
  }
})

test('every panel has a title, a unit and a description of its own', () => {
  const titles = panels.map(({ board, title }) => `${board}/${title}`)
  expect(new Set(titles).size).toBe(titles.length)
  for (const { description, unit } of panels) {
    expect(description).toMatch(/.{20,}\.$/)
    expect(unit).not.toBe('')
  }
})

test('one copy of the loader hooks is installed: a second would make both silent', () => {
  const tree = execFileSync('npm', ['ls', 'import-in-the-middle', '--all', '--parseable'], {
    cwd: root,
    encoding: 'utf8',
  })

  expect(new Set(tree.trim().split('\n'))).toHaveProperty('size', 1)
})

// Where Prometheus' own tool is missing these are skipped, and shown as such; in CI that is a failure.
const hasPromtool = spawnSync('promtool', ['--version']).status === 0
const withPromtool = hasPromtool || process.env.CI ? test : test.skip

withPromtool(
  'promtool accepts the rules, and every alert fires and is silent as its tests say',
  () => {
    const run = (...args: string[]) => execFileSync('promtool', args, { cwd: root, encoding: 'utf8' })

    expect(run('check', 'rules', 'observability/alerts.yaml')).toContain('SUCCESS')
    run('test', 'rules', 'observability/alerts.test.yaml', 'observability/alerts.slow.test.yaml')
  },
  180_000,
)

withPromtool('promtool accepts every expression of the dashboards', async () => {
  const file = {
    groups: [
      {
        name: 'dashboards',
        rules: dashboardExpressions.map((expr, index) => ({
          record: `dashboard:expression:${index}`,
          expr: expr.replaceAll('$__rate_interval', '5m').replaceAll(/\$\w+/g, 'x'),
        })),
      },
    ],
  }
  const dir = await mkdtemp(join(tmpdir(), 'dashboards-'))
  await writeFile(join(dir, 'dashboards.yaml'), JSON.stringify(file))
  try {
    expect(execFileSync('promtool', ['check', 'rules', join(dir, 'dashboards.yaml')], { encoding: 'utf8' })).toContain(
      'SUCCESS',
    )
  } finally {
    await rm(dir, { recursive: true })
  }
})

async function text(path: string): Promise<string> {
  return await readFile(join(root, path), 'utf8')
}

/** The metrics and labels that a PromQL expression names. */
function readExpression(expr: string): { metrics: string[]; labels: string[] } {
  const labels: string[] = []
  const withoutStrings = expr.replaceAll(/"(?:[^"\\]|\\.)*"/g, '""')
  const withoutLabels = withoutStrings
    .replaceAll(/\{([^}]*)\}/g, (_all, inside: string) => {
      labels.push(...[...inside.matchAll(/(\w+)\s*(?:=~|!~|!=|=)/g)].map(([, label = '']) => label))
      return ''
    })
    .replaceAll(/\b(?:by|on|without|ignoring)\s*\(([^)]*)\)/g, (_all, inside: string) => {
      labels.push(...inside.split(',').map((label) => label.trim()))
      return ''
    })
    .replaceAll(/\[[^\]]*\]|\boffset \S+/g, '')
  const words = [...withoutLabels.matchAll(/[a-zA-Z_][\w:]*(?!\w*\s*\()/g)].map(([word]) => word)
  const metrics = words.filter((word) => word.includes('_') || word === 'ALERTS')
  return {
    metrics: metrics.filter((word) => !/^(histogram_quantile|predict_linear)$/.test(word)),
    labels: labels.filter(Boolean).reverse(),
  }
}
