import { pino, type DestinationStream, type Logger as PinoLogger } from 'pino';
import type { LogLevel } from './log-levels.ts';

/** The logger every folder takes as an argument. Constant message, data in fields. */
export type Logger = Pick<PinoLogger, 'error' | 'warn' | 'info' | 'debug' | 'trace'> & {
  child(fields: Record<string, unknown>): Logger;
};

/** JSON lines on `destination` (default: standard error), with header values that may carry credentials removed. */
export function createLogger(options: {
  readonly level: LogLevel;
  readonly destination?: DestinationStream;
  /** On every line. */
  readonly fields?: Readonly<Record<string, unknown>>;
}): Logger {
  return pino(
    {
      level: options.level,
      base: options.fields ?? null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      redact: {
        paths: ['authorization', 'cookie', '*.authorization', '*.cookie', '*["sec-websocket-protocol"]'],
        censor: '[secret]',
      },
    },
    options.destination ?? pino.destination({ dest: 2, sync: true }),
  );
}

/** A logger that says nothing, for tests and tools. */
export function createSilentLogger(): Logger {
  return createLogger({ level: 'silent' });
}
