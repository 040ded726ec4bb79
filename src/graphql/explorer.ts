/** The page at `/`: says what this is and lets one try it. Loads nothing from anywhere else. */
import { createHash } from 'node:crypto'

const examples = {
  'Place an order': `mutation Place {
  placeOrder(input: {
    customerId: "customer-1"
    items: [{ sku: "coffee", quantity: 2, unitPriceCents: 1250 }]
  }) {
    order { id phase totalCents events { id type status } }
  }
}`,
  'The customer, as the consumer sums it up': `query Summary {
  customerSummary(customerId: "customer-1") { placedCount placedTotalCents shippedCount cancelledCount }
}`,
  'Ship an order': `mutation Ship {
  shipOrder(id: "the id of an order") { order { id phase } }
}`,
  'One order and the state of its events': `query Order {
  order(id: "the id of an order") { phase totalCents events { id type status } }
}`,
} as const

const script = `
const examples = ${JSON.stringify(examples)}
const choice = document.getElementById('example')
const [query, answer, run] = ['query', 'answer', 'run'].map((id) => document.getElementById(id))
async function send() {
  answer.textContent = '…'
  try {
    const response = await fetch('/graphql', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ query: query.value }),
    })
    answer.textContent = JSON.stringify(await response.json(), null, 2)
  } catch (error) {
    answer.textContent = String(error)
  }
}
for (const name of Object.keys(examples)) choice.add(new Option(name))
choice.addEventListener('change', () => { query.value = examples[choice.value] })
query.value = examples[choice.value]
run.addEventListener('click', send)
query.addEventListener('keydown', (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send() })
`

const style = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
textarea, pre { box-sizing: border-box; width: 100%; font: 14px/1.4 ui-monospace, monospace; padding: .75rem; border: 1px solid #bbb; border-radius: 4px }
textarea { height: 14rem } pre { min-height: 6rem; overflow: auto; white-space: pre-wrap; background: #f6f6f6 }
button { font: inherit; padding: .3rem 1rem; margin: .5rem 0 }
`

/**
 * The page itself. With `adminUrl` it leads to what the process says of itself
 * there, which is nothing for the public.
 */
export function explorerPage(adminUrl: string | null): string {
  const admin =
    adminUrl === null
      ? ''
      : `<p>How it stands: <a href="${adminUrl}/readyz">readyz</a>, <a href="${adminUrl}/metrics">metrics</a>. A trace is
drawn by <code>npm run demo -- --trace ID</code>, with the <code>traceId</code> of an answer.</p>`
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>orders-api</title>
<style>${style}</style>
<h1>orders-api</h1>
<p>A GraphQL API at <code>POST /graphql</code>. Each mutation answers with <code>extensions.outbox</code>: the ids of its
events and the trace that leads to them. The contract is <code>schema.graphql</code>; the queries are <code>order</code>,
<code>orders</code> and <code>customerSummary</code>, the mutations <code>placeOrder</code>, <code>shipOrder</code> and
<code>cancelOrder</code>.</p>
${admin}
<label for="example">Example</label> <select id="example"></select><br>
<label for="query">Query (Ctrl+Enter runs it)</label>
<textarea id="query" spellcheck="false"></textarea>
<button id="run" type="button">Run</button>
<pre id="answer" aria-live="polite"></pre>
<script>${script}</script>
</html>
`
}

/** Allows the page its own script and style, by their hashes, and nothing else. */
export const explorerPolicy = [
  "default-src 'none'",
  `script-src '${hashOf(script)}'`,
  `style-src '${hashOf(style)}'`,
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

function hashOf(text: string): string {
  return `sha256-${createHash('sha256').update(text).digest('base64')}`
}
