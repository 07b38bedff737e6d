/**
 * Log levels, from the least to the most verbose. error and warn require an action. info writes one line for each
 * session. debug is slow, and contains no secrets either.
 */
export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug', 'trace'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
