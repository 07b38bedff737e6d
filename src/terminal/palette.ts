/** Colours of a terminal as the player shows them, as `0xRRGGBB`. Pure. */

/** Default colours of the player: `--terminal-paper` and `--terminal-ink`. */
export const PAPER = 0x101418;
export const INK = 0xd6dbe0;
/** The first 16 colours of the palette in the player: `--terminal-0` to `--terminal-15`. */
export const THEME: readonly number[] = [
  0x101418, 0xe5534b, 0x57ab5a, 0xc69026, 0x539bf5, 0xb083f0, 0x39c5cf, 0xc3cad2, 0x768390, 0xff938a,
  0x8ddb8c, 0xeac55f, 0x96d0ff, 0xdcbdfb, 0x76e3ea, 0xffffff,
];

/** Returns a colour of the 256-colour palette: 16 colours of the theme, a cube of 6 by 6 by 6 colours, and 24 greys. */
export function paletteColour(index: number): number {
  const themed = THEME[index];
  if (themed !== undefined) return themed;
  if (index >= 232) return (8 + (index - 232) * 10) * 0x010101;
  const level = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return (level(Math.floor(cube / 36)) << 16) | (level(Math.floor(cube / 6) % 6) << 8) | level(cube % 6);
}
