/**
 * Log levels by verbosity. error/warn: an operator must act. info: one line per session. debug: slow, never
 * secret.
 */
export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug', 'trace'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
