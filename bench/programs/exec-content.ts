/** Output of the programs in the exec cases. */
const LINES_PER_BLOCK = 1000;

/** Lines of 20 bytes, as a terminal gets them; longer output repeats them. */
export const LINES_BLOCK = Buffer.from(
  Array.from(
    { length: LINES_PER_BLOCK },
    (_, index) => `line ${String(index).padStart(4, '0')} of bench\r\n`,
  ).join(''),
);
export const LINE_BYTES = LINES_BLOCK.length / LINES_PER_BLOCK;

export const PROMPT = Buffer.from('/ # ');

/** One screen: a sequence that moves the cursor home, the time (20 digits), and output like that of `top`. */
export const REDRAW_BYTES = 4096;
export const SCREEN_TIME_START = 3;
export const SCREEN_TIME_END = 23;
export const SCREEN = Buffer.alloc(
  REDRAW_BYTES,
  '\u001b[7m 4711 root      20   0  123m  45m  6m S  0.7  \u001b[0m\r\n',
);
SCREEN.write('\u001b[H', 0, 'latin1');
