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
