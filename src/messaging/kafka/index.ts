/** The door of the Kafka driver: the package's `./kafka`. */
export { countLag, type LagOptions } from './count-lag.ts'
export type { KafkaOptions, KafkaSasl } from './options.ts'
export { createKafkaPublisher } from './publisher.ts'
export type { KafkaPublisherOptions } from './publisher-options.ts'
export { createKafkaSubscriber } from './subscriber.ts'
export type { KafkaSubscriberOptions } from './subscriber-options.ts'
