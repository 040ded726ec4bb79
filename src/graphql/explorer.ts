/** The page at `/`: says what this is and lets one try it. Loads nothing from anywhere else. */
import { createHash } from 'node:crypto'

const example = `mutation Place {
  placeOrder(input: {
    customerId: "customer-1"
    items: [{ sku: "coffee", quantity: 2, unitPriceCents: 1250 }]
  }) {
    order { id phase totalCents events { id type status } }
  }
}`

const script = `
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
run.addEventListener('click', send)
query.addEventListener('keydown', (event) => { if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send() })
`

const style = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; background: #fff }
textarea, pre { box-sizing: border-box; width: 100%; font: 14px/1.4 ui-monospace, monospace; padding: .75rem; border: 1px solid #bbb; border-radius: 4px }
textarea { height: 14rem } pre { min-height: 6rem; overflow: auto; white-space: pre-wrap; background: #f6f6f6 }
button { font: inherit; padding: .3rem 1rem; margin: .5rem 0 }
`

/** The page itself. */
export const explorerPage = `<!doctype html>
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
<label for="query">Query (Ctrl+Enter runs it)</label>
<textarea id="query" spellcheck="false">${example}</textarea>
<button id="run" type="button">Run</button>
<pre id="answer" aria-live="polite"></pre>
<script>${script}</script>
</html>
`

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
