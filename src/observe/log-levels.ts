/**
 * Log levels, from the least to the most verbose. Messages at the levels `error` and `warn` require an action. At the
 * level `info`, each session adds a line at its start and one at its end. The level `debug` is slow, but its messages
 * contain no secrets.
 */
export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug', 'trace'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
