/** In the order of noise: error/warn = someone must act; info = one line per session; debug is slow, never secret. */
export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug', 'trace'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
