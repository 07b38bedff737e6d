import { pino, type DestinationStream, type Logger as PinoLogger } from 'pino';
import { escapeLogLines } from '../safe-text.ts';
import type { LogLevel } from './log-levels.ts';

/** The logger that modules receive as an argument. Messages are constant, and fields contain the variable data. */
export type Logger = Pick<PinoLogger, 'error' | 'warn' | 'info' | 'debug' | 'trace'>;

/**
 * Creates a logger that writes JSON lines to `destination`. Header values that may contain credentials are removed.
 * Default destination: standard error.
 */
export function createLogger(options: {
  readonly level: LogLevel;
  readonly destination?: DestinationStream;
}): Logger {
  return pino(
    {
      level: options.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      // fields may contain text of clients and recorders, which must not control the terminal on which a log is read
      hooks: { streamWrite: escapeLogLines },
      redact: {
        paths: ['authorization', 'cookie', '*.authorization', '*.cookie', '*["sec-websocket-protocol"]'],
        censor: '[secret]',
      },
    },
    options.destination ?? pino.destination({ dest: 2, sync: true }),
  );
}

/** Returns a logger that discards all messages, for tests and tools. */
export function createSilentLogger(): Logger {
  return createLogger({ level: 'silent' });
}
