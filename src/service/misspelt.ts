/** Variables that are set and that nobody reads, under names so near to ours that one of ours was meant. */
import { distance } from 'fastest-levenshtein'

/** Letters of a name from which two wrong ones may be a slip; below, `KAFKA_PORT` would be taken for `KAFKA_CERT`. */
const LONG = 12

/**
 * A sentence for each name of `environment` that is a slip for one of `known`,
 * never with a value. Single words are left alone, since they belong to
 * anybody, and so is what is near a name that is set itself.
 */
export function misspelt(
  environment: Readonly<Record<string, string | undefined>>,
  known: readonly string[],
): readonly string[] {
  const missing = known.filter((name) => !environment[name])
  return Object.keys(environment)
    .filter((name) => name.includes('_') && !known.includes(name))
    .sort()
    .flatMap((name) => {
      const slips = name.length < LONG ? 1 : 2
      const meant = missing.find((each) => each.includes('_') && distance(name, each) <= slips)
      return meant === undefined ? [] : [`Unknown setting ${name}; did you mean ${meant}?`]
    })
}
