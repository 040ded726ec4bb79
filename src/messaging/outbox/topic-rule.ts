/**
 * Which topic an aggregate type's events go to.
 *
 * A function of the type and of nothing else: events of one aggregate in two
 * topics would have no order between them.
 */

/** Names the topic of an aggregate type. Pure: the same answer in every process, always. */
export type TopicRule = (aggregateType: string) => string

/** The rule that holds unless another is given: `<prefix><aggregate type>.events`. */
export function defaultTopicFor(prefix: string): TopicRule {
  return (aggregateType) => `${prefix}${aggregateType}.events`
}
