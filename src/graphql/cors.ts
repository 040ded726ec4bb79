/**
 * Which pages of other origins may call the API from a browser: those that are
 * named, and no others. There are no cookies here, so none are allowed along.
 */
import type { RequestHandler } from 'express'

/** Seconds for which a browser may keep a preflight's answer. */
const PREFLIGHT_SECONDS = 600

/**
 * Answers preflights, and marks answers as readable, for `origins` alone. To
 * every other page a preflight is refused, with what to do in its body; the
 * browser then sends nothing more. With no origins none is allowed.
 */
export function allowOrigins(origins: readonly string[]): RequestHandler {
  const allowed = new Set(origins)
  return (request, response, next) => {
    const {
      origin,
      'access-control-request-method': wanted,
      'access-control-request-headers': headers,
    } = request.headers
    // A cache must not hand one page's answer to another.
    if (allowed.size > 0) response.vary('Origin')
    const mayRead = origin !== undefined && allowed.has(origin)
    if (mayRead) response.set('access-control-allow-origin', origin)
    if (request.method !== 'OPTIONS' || wanted === undefined) return next()
    if (!mayRead) {
      response.status(403).json({
        errors: [{ message: 'CORS_ORIGINS does not name the origin of this page', extensions: { code: 'FORBIDDEN' } }],
      })
      return
    }
    response.set('access-control-allow-methods', 'GET, POST')
    if (headers !== undefined) response.set('access-control-allow-headers', headers)
    response.set('access-control-max-age', String(PREFLIGHT_SECONDS)).vary('Access-Control-Request-Headers').status(204)
    response.end()
  }
}
