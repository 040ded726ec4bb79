/** A span as a service exports it, for tests that have no service. */

/** Sends a trace of one span, `create orders` of `orders-api`, over OTLP in JSON; resolves to the answer's status. */
export async function sendSpan(otlpEndpoint: string, traceId: string): Promise<number> {
  const response = await fetch(`${otlpEndpoint}/v1/traces`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(oneSpan(traceId)),
  })
  return response.status
}

function oneSpan(traceId: string) {
  const now = BigInt(Date.now()) * 1_000_000n
  const span = {
    traceId,
    spanId: 'b7ad6b7169203331',
    name: 'create orders',
    kind: 4,
    startTimeUnixNano: String(now),
    endTimeUnixNano: String(now + 1_000_000n),
  }
  const attributes = [{ key: 'service.name', value: { stringValue: 'orders-api' } }]
  return { resourceSpans: [{ resource: { attributes }, scopeSpans: [{ spans: [span] }] }] }
}
