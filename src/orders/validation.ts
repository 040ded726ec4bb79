/** The rules on what a command carries, all checked at once: who fills in a form sees every mistake. */
import type { OrderItem } from './events.ts'
import type { Problem } from './refusal.ts'

/** What the API's Int can carry, in cents. */
export const MAX_TOTAL_CENTS = 2_147_483_647
/** Items in one order. Keeps an event far below the size that brokers accept. */
export const MAX_ITEMS = 100
const MAX_NAME_LENGTH = 64
const MAX_REASON_LENGTH = 500
const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

export interface PlaceOrder {
  readonly customerId: string
  readonly items: readonly OrderItem[]
}

/** The sum over `items`. Exact below 2^53; above it still above any limit. */
export function totalOf(items: readonly OrderItem[]): number {
  return items.reduce((sum, { quantity, unitPriceCents }) => sum + quantity * unitPriceCents, 0)
}

/** Everything that is wrong with `command`. */
export function problemsOf({ customerId, items }: PlaceOrder): readonly Problem[] {
  const problems = [...textProblems(['customerId'], customerId, MAX_NAME_LENGTH)]
  if (items.length < 1 || items.length > MAX_ITEMS) {
    return [
      ...problems,
      { path: ['items'], message: `items must have 1 to ${MAX_ITEMS} entries; there are ${items.length}` },
    ]
  }
  problems.push(...items.flatMap(itemProblems))
  if (problems.length === 0 && totalOf(items) > MAX_TOTAL_CENTS) {
    problems.push({ path: ['items'], message: `the total of items must be at most ${MAX_TOTAL_CENTS} cents` })
  }
  return problems
}

/** Everything that is wrong with a cancellation's `reason`. */
export function reasonProblems(reason: string): readonly Problem[] {
  return textProblems(['reason'], reason, MAX_REASON_LENGTH)
}

/** Whether orders of a customer with this id can be placed. */
export function isCustomerId(id: string): boolean {
  return textProblems(['customerId'], id, MAX_NAME_LENGTH).length === 0
}

/** Whether `id` has the form of an order's id. What has not cannot exist. */
export function isOrderId(id: string): boolean {
  return UUID.test(id)
}

function itemProblems({ sku, quantity, unitPriceCents }: OrderItem, index: number): readonly Problem[] {
  return [
    ...textProblems(['items', index, 'sku'], sku, MAX_NAME_LENGTH),
    ...wholeNumberProblems(['items', index, 'quantity'], quantity, 1),
    ...wholeNumberProblems(['items', index, 'unitPriceCents'], unitPriceCents, 0),
  ]
}

function textProblems(path: Problem['path'], text: string, maxLength: number): readonly Problem[] {
  const where = render(path)
  if (text.trim() === '') return [{ path, message: `${where} must not be empty` }]
  // Counted as Postgres counts: a pair of surrogates is one character.
  if ([...text].length > maxLength) return [{ path, message: `${where} must have at most ${maxLength} characters` }]
  if (text.includes('\0') || !text.isWellFormed()) {
    return [{ path, message: `${where} must be text: it holds a zero character or half a surrogate pair` }]
  }
  return []
}

function wholeNumberProblems(path: Problem['path'], value: number, least: number): readonly Problem[] {
  if (Number.isInteger(value) && value >= least && value <= MAX_TOTAL_CENTS) return []
  return [{ path, message: `${render(path)} must be a whole number from ${least} to ${MAX_TOTAL_CENTS}` }]
}

/** `items[2].quantity` */
function render(path: Problem['path']): string {
  return path.reduce<string>(
    (text, part) => (typeof part === 'number' ? `${text}[${part}]` : text ? `${text}.${part}` : part),
    '',
  )
}
