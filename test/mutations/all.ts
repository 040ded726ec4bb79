/** Every mutation there is. */
import { ADOPTION } from './adoption.ts'
import { CONSUMER } from './consumer.ts'
import { DRIVER } from './driver.ts'
import type { Mutation } from './mutation.ts'
import { RELAY } from './relay.ts'
import { SKIP } from './skips.ts'
import { WRITE_SIDE } from './write-side.ts'

export const MUTATIONS: readonly Mutation[] = [...WRITE_SIDE, ...RELAY, ...SKIP, ...ADOPTION, ...DRIVER, ...CONSUMER]
