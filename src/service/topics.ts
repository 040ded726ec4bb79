/** Where events go, and how their topics are made: what every role of the service has to see alike. */
import { defaultTopicFor, type TopicRule } from '../messaging/index.ts'
import type { ServiceConfig } from './config.ts'

type TopicConfig = Pick<ServiceConfig, 'topics'>

/** The topic rule under `TOPIC_PREFIX`. */
export function topicRule({ topics }: TopicConfig): TopicRule {
  return defaultTopicFor(topics.prefix)
}

/** For the relay: the rule, and how a topic is made at its first use. */
export function topicOptions(config: TopicConfig) {
  const { partitionCount, replicationFactor } = config.topics
  return { topicFor: topicRule(config), createTopics: { partitionCount, replicationFactor } }
}
