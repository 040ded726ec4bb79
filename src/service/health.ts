/** What the process says of its own condition, role by role. */
import type { Status } from '../messaging/index.ts'
import type { Role } from './config.ts'

/** Every role's condition, and whether all of them are ready. */
export interface Report extends Status {
  readonly roles: Readonly<Partial<Record<Role, Status>>>
}

export interface Health {
  /** One role's condition; `null` if this process does not have the role. */
  ofRole(role: Role): Promise<Status | null>
  /** All roles'. */
  report(): Promise<Report>
  /** Says what the roles that have not started wait for, in a sentence; `null` when nothing is in their way. */
  waitsFor(problem: string | null): void
  /** From now on nothing is ready: load balancers turn away before requests are refused. */
  drain(): void
}

const stopping: Status = { ready: false, problems: ['Stopping'] }

/**
 * The health of a process with `roles`. `checks` may be filled in later: a role
 * without a check is still starting.
 */
export function createHealth(roles: readonly Role[], checks: Partial<Record<Role, () => Promise<Status>>>): Health {
  let draining = false
  let waiting: string | null = null

  const starting = (): Status => ({ ready: false, problems: [waiting ?? 'Starting'] })

  async function ofRole(role: Role): Promise<Status | null> {
    if (!roles.includes(role)) return null
    if (draining) return stopping
    return (await checks[role]?.()) ?? starting()
  }

  return {
    ofRole,
    async report() {
      const statuses = await Promise.all(roles.map(async (role) => [role, (await ofRole(role)) ?? starting()] as const))
      return {
        ready: statuses.every(([, { ready }]) => ready),
        problems: statuses.flatMap(([role, { problems }]) => problems.map((problem) => `${role}: ${problem}`)),
        roles: Object.fromEntries(statuses),
      }
    },
    waitsFor(problem) {
      waiting = problem
    },
    drain() {
      draining = true
    },
  }
}
