/** Levels in the order of noise; the logger in `observe/` knows the same ones. */
export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug', 'trace'] as const;
