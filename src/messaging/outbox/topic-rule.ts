/**
 * Which topic an aggregate type's events go to.
 *
 * A function of the type and of nothing else: events of one aggregate in two
 * topics would have no order between them.
 */

import { InvalidOptionError } from '../errors.ts'

/** Names the topic of an aggregate type. Pure: the same answer in every process, always. */
export type TopicRule = (aggregateType: string) => string

/** Throws {@link InvalidOptionError} unless `topicFor` was not given or is a rule. */
export function requireTopicRule(topicFor: unknown): void {
  if (topicFor !== undefined && typeof topicFor !== 'function') {
    throw new InvalidOptionError('topicFor', topicFor, 'a function of the aggregate type, as defaultTopicFor makes')
  }
}

/**
 * `topicFor` as a rule that always answers: where it throws or names nothing, a
 * name that no topic can have. So that type alone rests, told by name, and an
 * event with a topic of its own never depends on the rule.
 */
export function answeringTopicRule(topicFor: TopicRule): TopicRule {
  return (aggregateType) => {
    try {
      const topic: unknown = topicFor(aggregateType)
      if (typeof topic === 'string') return topic
    } catch {
      // Told by the look-up of the name, like a rule that names nothing.
    }
    return `(the topic rule names none for ${aggregateType})`
  }
}

/** The rule that holds unless another is given: `<prefix><aggregate type>.events`. Throws {@link InvalidOptionError} for a prefix that is no text. */
export function defaultTopicFor(prefix: string): TopicRule {
  if (typeof prefix !== 'string') throw new InvalidOptionError('prefix', prefix, 'text, empty for none')
  return (aggregateType) => `${prefix}${aggregateType}.events`
}
