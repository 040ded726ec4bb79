/** How a dashboard is put together: what all of them share, and the few kinds of panels that they use. */
import {
  AnnotationQueryBuilder,
  type Dashboard,
  DashboardBuilder,
  DashboardLinkBuilder,
  DashboardLinkType,
  DatasourceVariableBuilder,
  QueryVariableBuilder,
  RowBuilder,
  TextBoxVariableBuilder,
  ThresholdsConfigBuilder,
  ThresholdsMode,
  VariableRefresh,
} from '@grafana/grafana-foundation-sdk/dashboard'
import { PanelBuilder as HeatmapBuilder } from '@grafana/grafana-foundation-sdk/heatmap'
import { DataqueryBuilder, PromQueryFormat } from '@grafana/grafana-foundation-sdk/prometheus'
import { PanelBuilder as StatBuilder } from '@grafana/grafana-foundation-sdk/stat'
import { PanelBuilder as TableBuilder } from '@grafana/grafana-foundation-sdk/table'
import { PanelBuilder as TimeseriesBuilder } from '@grafana/grafana-foundation-sdk/timeseries'

/** One panel. */
export interface Panel {
  readonly title: string
  /** What it shows and what to make of it, one or two sentences. */
  readonly description: string
  /** Grafana's unit: s, short, percentunit, bytes, reqps. */
  readonly unit: string
  /** @defaultValue graph */
  readonly kind?: 'graph' | 'stat' | 'heatmap' | 'table'
  /** PromQL, and how each series is called. */
  readonly queries: readonly (readonly [expr: string, legend: string])[]
  /** Of 24. @defaultValue 12 */
  readonly width?: number
  /** Where green ends. */
  readonly redFrom?: number
  /** The alerts on what it shows: it has a link to the runbook of each. @defaultValue none */
  readonly alerts?: readonly string[]
}

export interface Row {
  readonly title: string
  readonly panels: readonly Panel[]
}

export interface Board {
  /** Stable: links and alerts point to it. */
  readonly uid: string
  readonly title: string
  readonly description: string
  readonly rows: readonly Row[]
}

const DATASOURCE = { type: 'prometheus', uid: '$datasource' } as const

/** What the variables of every dashboard ask for their values. */
export const variableQueries = {
  outbox_name: 'label_values(outbox_pending_count, outbox_name)',
  job: 'label_values(service_thread_up, job)',
} as const

/** What every dashboard marks on its graphs. */
export const annotationQuery = 'ALERTS{alertname=~"Outbox.+", alertstate="firing"}'

/** The dashboard as Grafana reads it. */
export function buildBoard({ uid, title, description, rows }: Board): Dashboard {
  const builder = new DashboardBuilder(title)
    .uid(uid)
    .description(description)
    .tags(['outbox-mixin'])
    .time({ from: 'now-1h', to: 'now' })
    .refresh('30s')
    .timezone('browser')
    .link(
      new DashboardLinkBuilder('Outbox').type(DashboardLinkType.Dashboards).tags(['outbox-mixin']).asDropdown(false),
    )
    .link(
      new DashboardLinkBuilder('Jaeger')
        .type(DashboardLinkType.Link)
        .url('http://127.0.0.1:16686/search?service=orders-api')
        .targetBlank(true),
    )
    .withVariable(new DatasourceVariableBuilder('datasource').label('Data source').type('prometheus'))
    .withVariable(labelVariable('outbox_name', 'Outbox'))
    .withVariable(labelVariable('job', 'Job'))
    .withVariable(new TextBoxVariableBuilder('runbooks').label('Runbooks').defaultValue('docs/operating.md'))
    .annotation(
      new AnnotationQueryBuilder()
        .name('Alerts')
        .datasource(DATASOURCE)
        .enable(true)
        .iconColor('red')
        .expr(annotationQuery),
    )
  for (const row of rows) {
    builder.withRow(new RowBuilder(row.title))
    for (const panel of row.panels) builder.withPanel(buildPanel(panel))
  }
  return builder.build()
}

function labelVariable(name: keyof typeof variableQueries, label: string) {
  return new QueryVariableBuilder(name)
    .label(label)
    .datasource(DATASOURCE)
    .query(variableQueries[name])
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .includeAll(true)
    .allValue('.*')
    .multi(true)
}

function buildPanel(panel: Panel) {
  const builder = createBuilder(panel)
    .title(panel.title)
    .description(panel.description)
    .datasource(DATASOURCE)
    .span(panel.width ?? 12)
    .height(8)
    .links((panel.alerts ?? []).map(runbookLink))
  for (const [expr, legend] of panel.queries) builder.withTarget(buildQuery(panel, expr, legend))
  return builder
}

/** Where the runbooks are is asked of the dashboard: nobody but its owner knows. */
function runbookLink(alert: string) {
  return new DashboardLinkBuilder(`Runbook: ${alert}`)
    .type(DashboardLinkType.Link)
    .url(`$runbooks#${alert.toLowerCase()}`)
    .targetBlank(true)
}

function createBuilder(panel: Panel) {
  const { unit, redFrom } = panel
  switch (panel.kind ?? 'graph') {
    case 'graph':
      return new TimeseriesBuilder().unit(unit).min(0)
    case 'stat':
      return new StatBuilder().unit(unit).thresholds(thresholds(redFrom))
    case 'heatmap':
      return new HeatmapBuilder().unit(unit)
    case 'table':
      return new TableBuilder().unit(unit)
  }
}

function thresholds(redFrom: number | undefined) {
  const steps = redFrom === undefined ? [] : [{ value: redFrom, color: 'red' }]
  return new ThresholdsConfigBuilder().mode(ThresholdsMode.Absolute).steps([{ value: null, color: 'green' }, ...steps])
}

function buildQuery({ kind }: Panel, expr: string, legend: string) {
  const query = new DataqueryBuilder().expr(expr).legendFormat(legend)
  if (kind === 'heatmap') return query.format(PromQueryFormat.Heatmap)
  if (kind === 'table') return query.format(PromQueryFormat.Table).instant()
  return query
}
