/**
 * Log levels, from the least to the most verbose. Messages of `error` and `warn` require an action. The level `info`
 * writes one line for each session. The level `debug` is slow, but its messages contain no secrets.
 */
export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug', 'trace'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
