/** Medians and spreads: what may be said of figures taken on a machine that does other things too. */

export interface Spread {
  readonly median: number
  readonly lowest: number
  readonly highest: number
  /** A quarter of the values lies below. */
  readonly lowerQuartile: number
  readonly upperQuartile: number
}

/** Throws when there are no values. */
export function spreadOf(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b)
  const at = (share: number) => {
    const position = (sorted.length - 1) * share
    const low = sorted[Math.floor(position)]
    const high = sorted[Math.ceil(position)]
    if (low === undefined || high === undefined) throw new RangeError('A spread needs at least one value')
    return low + (high - low) * (position - Math.floor(position))
  }
  return { median: at(0.5), lowest: at(0), highest: at(1), lowerQuartile: at(0.25), upperQuartile: at(0.75) }
}

/** The spread of `ours / theirs`, pair by pair: what disturbs a round disturbs both of its halves. */
export function ratioOf(ours: readonly number[], theirs: readonly number[]): Spread {
  return spreadOf(ours.map((value, round) => value / (theirs[round] ?? Number.NaN)))
}
