/** Claims a data folder and keeps it until it is killed. */
import { claimDataDir } from '../../src/local/data-dir.ts'

const [dir = ''] = process.argv.slice(2)
const claim = await claimDataDir(dir)
console.log('claimed')
setInterval(() => claim, 60_000)
