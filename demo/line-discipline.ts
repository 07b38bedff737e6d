/** Effects of typed input: data for the program, echo for the screen, and signals for Ctrl-C and Ctrl-D. */
export interface TypedResult {
  readonly deliver: Uint8Array;
  readonly echo: Uint8Array;
  readonly interrupt: boolean;
  readonly end: boolean;
}

/**
 * Minimal line discipline for a shell on pipes, if no pseudo-terminal is available: echo, backspace, Ctrl-C, Ctrl-D,
 * and the conversion of `\n` to `\r\n` in the output. A line has at most 4096 bytes, as in the kernel. Further input is
 * dropped, and the bell rings.
 */
export interface LineDiscipline {
  typed(bytes: Uint8Array): TypedResult;
  printed(bytes: Uint8Array): Uint8Array;
}

const MAX_LINE_BYTES = 4096;
const KEY = {
  interrupt: 0x03,
  end: 0x04,
  bell: 0x07,
  backspace: 0x08,
  newline: 0x0a,
  enter: 0x0d,
  delete: 0x7f,
};

/** Creates the line discipline of one terminal. */
export function createLineDiscipline(): LineDiscipline {
  let line: number[] = [];
  return {
    typed(bytes) {
      const deliver: number[] = [];
      const echo: number[] = [];
      let interrupt = false;
      let end = false;
      for (const byte of bytes) {
        if (byte === KEY.interrupt) {
          line = [];
          interrupt = true;
          echo.push(...Buffer.from('^C\r\n'));
        } else if (byte === KEY.end) {
          end ||= line.length === 0;
          deliver.push(...line);
          line = [];
        } else if (byte === KEY.backspace || byte === KEY.delete) {
          if (line.pop() !== undefined) echo.push(...Buffer.from('\b \b'));
        } else if (byte === KEY.enter || byte === KEY.newline) {
          deliver.push(...line, KEY.newline);
          echo.push(KEY.enter, KEY.newline);
          line = [];
        } else if (line.length < MAX_LINE_BYTES) {
          line.push(byte);
          echo.push(byte);
        } else {
          echo.push(KEY.bell);
        }
      }
      return { deliver: Uint8Array.from(deliver), echo: Uint8Array.from(echo), interrupt, end };
    },
    printed(bytes) {
      if (!bytes.includes(KEY.newline)) return bytes;
      const result: number[] = [];
      for (const byte of bytes) {
        if (byte === KEY.newline) result.push(KEY.enter);
        result.push(byte);
      }
      return Uint8Array.from(result);
    },
  };
}
