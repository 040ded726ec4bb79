/**
 * A volume of its own that a test can fill: ext4 in a file, mounted by loop
 * device. That takes Linux, root and `/dev/loop*`; where one is missing
 * {@link volumeProblem} says so, and tests name it in their titles.
 */
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, open, rm, statfs } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)

/** Bytes that are rather written than reserved. */
const SMALL_BYTES = 8_000_000

export interface Volume extends AsyncDisposable {
  /** Where it is mounted; everybody may enter. */
  readonly dir: string
  /** Takes all the room that is left. Safe to call again: takes what has become free since. */
  fill(): Promise<void>
  /** Gives back what {@link fill} has taken. */
  makeRoom(): Promise<void>
}

export interface VolumeOptions {
  /** For the file behind it, which takes only the room that is used. */
  readonly dir: string
  readonly megabytes: number
  /** Where it is mounted. @defaultValue `<dir>/volume` */
  readonly mount?: string
  /** Leaves the file, to be mounted again. @defaultValue false */
  readonly keep?: boolean
}

/** Mounts a new volume. Rejects where that cannot be done. */
export async function createVolume({
  dir,
  megabytes,
  mount = join(dir, 'volume'),
  keep = false,
}: VolumeOptions): Promise<Volume> {
  const image = join(dir, 'volume.img')
  const ballast = join(mount, 'ballast')
  await mkdir(mount, { recursive: true })
  await rm(image, { force: true })
  await run('truncate', ['-s', `${megabytes}M`, image])
  // No room is kept for root, which would go on writing to a full disk.
  await run('mkfs.ext4', ['-q', '-F', '-m', '0', image])
  await run('mount', ['-o', 'loop', image, mount])
  return {
    dir: mount,
    async fill() {
      for (let free = await freeBytes(mount); free > SMALL_BYTES; free = await freeBytes(mount)) {
        // Not all of it: the file system needs some to keep account of it.
        const bytes = Math.floor((free * 9) / 10)
        await run('fallocate', ['--offset', await sizeOf(ballast), '-l', String(bytes), ballast])
      }
      await writeUntilFull(ballast)
    },
    makeRoom: () => rm(ballast, { force: true }),
    async [Symbol.asyncDispose]() {
      // Lazily: a server that was killed a moment ago may still hold a file.
      await run('umount', ['--lazy', mount])
      if (!keep) await rm(image, { force: true })
    },
  }
}

/** Why no volume can be had here, in words for a title; `null` where one can. */
export async function volumeProblem(): Promise<string | null> {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-volume-'))
  try {
    await using _volume = await createVolume({ dir, megabytes: 8 })
    return null
  } catch (error) {
    const { stderr, message } = error as { stderr?: string; message: string }
    return `no volume can be mounted here: ${(stderr?.trim() || message).split('\n')[0]}`
  } finally {
    await rm(dir, { recursive: true, force: true })
  }
}

async function freeBytes(mount: string): Promise<number> {
  const { bavail, bsize } = await statfs(mount)
  return bavail * bsize
}

async function sizeOf(path: string): Promise<string> {
  const file = await open(path, 'a')
  const { size } = await file.stat()
  await file.close()
  return String(size)
}

/** Block by block, in the end: somebody else may take or free some meanwhile. */
async function writeUntilFull(path: string): Promise<void> {
  const file = await open(path, 'a')
  try {
    for (const bytes of [1_048_576, 4_096]) {
      const block = Buffer.alloc(bytes, 'x')
      while (await written(file.appendFile(block))) {
        await file.datasync()
      }
    }
  } finally {
    await file.close()
  }
}

async function written(writing: Promise<void>): Promise<boolean> {
  try {
    await writing
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC') return false
    throw error
  }
}
