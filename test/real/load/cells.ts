/**
 * Cells of the load suite. Each cell is one combination of a client, a path to the API server, a load and a content.
 */
import { type Kubectl, type Transport, speaks } from '../rig/kubectl.ts';

export const WAYS = ['direct', 'unrecorded', 'recorded', 'window-0', 'same-upstream'] as const;
/**
 * Path of a session. `window-0`: recorded with `--recorder-window 0`. `same-upstream`: recorded, with WebSocket between
 * gateway and API server; the other recorded paths use SPDY there.
 */
export type Way = (typeof WAYS)[number];

export const CONDITIONS = ['idle', 'busy', 'slow-reader', 'beyond', 'slow-disk', 'paused'] as const;
/**
 * `busy`: two busy loops for each processor. `slow-reader`: the test reads kubectl's output at 1.5 MB/s. `beyond`: like
 * `slow-reader`, with a very small gateway buffer, so that the API server has to wait. `slow-disk`: each sync of the
 * recorder's disk is delayed. `paused`: the recorder is paused for 3 s near the end of the output.
 */
export type Condition = (typeof CONDITIONS)[number];

export const CONTENTS = ['text', 'random', 'tty-lines', 'small-writes'] as const;
export type Content = (typeof CONTENTS)[number];

export interface Cell {
  readonly name: string;
  readonly kubectl: Kubectl;
  readonly transport: Transport;
  readonly way: Way;
  readonly condition: Condition;
  readonly content: Content;
  /** Size of the contents `text` and `random`. */
  readonly megabytes: number;
}

const BULK_MB = 80;
/** A slow reader needs 13 seconds for this size, at 1.5 MB/s. */
const SLOW_MB = 20;

export interface CellChoice {
  readonly kubectls: readonly Kubectl[];
  /** Size of text and random bytes, instead of the defaults above. */
  readonly megabytes?: number | undefined;
  /** Cells whose name does not match are skipped. */
  readonly only?: RegExp | undefined;
}

/** Returns all useful combinations: conditions of the recorder apply only to recorded paths. */
export function allCells({ kubectls, megabytes, only }: CellChoice): readonly Cell[] {
  const cells = CONDITIONS.flatMap((condition) =>
    CONTENTS.flatMap((content) =>
      kubectls.flatMap((kubectl) =>
        (['spdy', 'websocket'] as const)
          .filter((transport) => speaks(kubectl, transport))
          .flatMap((transport) =>
            WAYS.filter((way) => concerns(condition, way) && has(way, transport)).map((way) =>
              makeCell({ kubectl, transport, way, condition, content, megabytes }),
            ),
          ),
      ),
    ),
  );
  // Omits sessions on a terminal with a slow reader: the slow reader needs a pipe from kubectl.
  const possible = cells.filter(({ condition, content }) => !isSlow(condition) || content !== 'tty-lines');
  return only === undefined ? possible : possible.filter(({ name }) => only.test(name));
}

/**
 * Returns the cells of the table: text under four loads, on four paths, over SPDY with each kubectl and over WebSocket
 * with the newest one.
 */
export function tableCells({ kubectls, megabytes, only }: CellChoice): readonly Cell[] {
  const newest = kubectls.at(-1);
  const cells = (['idle', 'busy', 'slow-reader', 'beyond'] as const).flatMap((condition) =>
    (['direct', 'unrecorded', 'recorded', 'same-upstream'] as const)
      .filter((way) => concerns(condition, way))
      .flatMap((way) =>
        kubectls.flatMap((kubectl) =>
          (kubectl === newest ? (['spdy', 'websocket'] as const) : (['spdy'] as const))
            .filter((transport) => speaks(kubectl, transport) && has(way, transport))
            .map((transport) => makeCell({ kubectl, transport, way, condition, content: 'text', megabytes })),
        ),
      ),
  );
  return only === undefined ? cells : cells.filter(({ name }) => only.test(name));
}

/**
 * Returns a few cells of each kind, for a run of a few minutes. Conditions under which bytes were once lost come first.
 */
export function sampleCells(choice: CellChoice): readonly Cell[] {
  const wanted: readonly (readonly [Condition, Content])[] = [
    ['busy', 'text'],
    ['idle', 'small-writes'],
    ['paused', 'text'],
    ['busy', 'tty-lines'],
    ['slow-disk', 'random'],
    ['slow-reader', 'text'],
  ];
  const cells = allCells({ megabytes: 12, ...choice });
  return wanted.flatMap(([condition, content]) =>
    cells.filter((cell) => cell.condition === condition && cell.content === content),
  );
}

/** Returns true if the test reads kubectl's output slowly. */
export function isSlow(condition: Condition): boolean {
  return condition === 'slow-reader' || condition === 'beyond';
}

function concerns(condition: Condition, way: Way): boolean {
  if (condition === 'beyond') return way !== 'direct';
  if (condition !== 'slow-disk' && condition !== 'paused') return true;
  return way === 'recorded' || way === 'window-0' || way === 'same-upstream';
}

function has(way: Way, transport: Transport): boolean {
  return way !== 'same-upstream' || transport === 'websocket';
}

function makeCell(
  parts: Omit<Cell, 'name' | 'megabytes'> & { readonly megabytes?: number | undefined },
): Cell {
  const { kubectl, transport, way, condition, content } = parts;
  const megabytes = parts.megabytes ?? (isSlow(condition) ? SLOW_MB : BULK_MB);
  const size = content === 'text' || content === 'random' ? ` ${megabytes} MB` : '';
  return {
    ...parts,
    megabytes,
    name: `${condition} ${way} ${transport} kubectl-${kubectl.minor} ${content}${size}`,
  };
}
