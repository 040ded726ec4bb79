/** A rule taken out of the code, and the test that has to notice. */

export interface Edit {
  /** From the root of the tree. */
  readonly file: string
  /** Found exactly once, or the table is out of date. */
  readonly find: string
  readonly replace: string
}

export interface Mutation {
  /** Unique, for `--only`. */
  readonly name: string
  readonly edits: readonly Edit[]
  /** The test file, from the root of the tree. */
  readonly test: string
  /** Part of the test's full title, as plain text. */
  readonly title: string
}
