/** Finds the changed parts of long lines. */
import type { Screen } from './screen.ts';

/** Number of cells that are returned on each side of a change. */
const NEAR = 64;

/**
 * Returns the text of the changed cells of row `y` and of the cells around them, and marks the row as emitted.
 * Therefore, a long line is not emitted completely each time one of its characters is overwritten.
 *
 * @returns undefined if the line is short, or if an adjacent row of the line also changed; the complete line must then
 * be emitted
 */
export function changedPart(screen: Screen, y: number): string | undefined {
  const row = screen.row(y);
  const above = row.wrapped && y > 0 ? screen.row(y - 1) : undefined;
  const next = y + 1 < screen.rows ? screen.row(y + 1) : undefined;
  const below = next?.wrapped === true ? next : undefined;
  const isWide = row.columns > 2 * NEAR;
  const others = [above, below].filter((other) => other !== undefined);
  if (others.some(({ isFresh }) => isFresh) || (!isWide && others.length === 0)) return undefined;
  const near = isWide ? NEAR : row.columns;
  const from = Math.max(0, row.freshFrom - near);
  const to = row.freshTo + near;
  const before = from > 0 ? undefined : above?.text(Math.max(0, above.columns - NEAR), above.columns);
  const after = to < row.columns ? undefined : below?.text(0, Math.min(NEAR, below.end));
  row.settle();
  return [before, row.text(from, Math.min(to, row.end)), after].join('');
}
