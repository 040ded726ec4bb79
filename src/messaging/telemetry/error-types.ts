/**
 * Keeps the values of `error.type` few in metrics. Each is a series for as long
 * as its thread lives, and a handler or a driver may state any word it likes: a
 * `code` with a number of its own in each error would be a series an error.
 */

import { OTHER_ERROR } from './attributes.ts'

/** More than databases, brokers and handlers have words for; what comes after these is one word. */
const MOST_TYPES = 100

/**
 * Makes the memory of one side: the words of handlers do not crowd out those of
 * the broker. What it returns gives a type back as it is, and `_OTHER` for one
 * that is met for the first time after 100 others.
 */
export function rememberErrorTypes(): (type: string) => string {
  const met = new Set<string>()
  return (type) => {
    if (met.size < MOST_TYPES) met.add(type)
    return met.has(type) ? type : OTHER_ERROR
  }
}
