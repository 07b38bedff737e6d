/** What the load suite runs: one cell is a client, a way to the API server, what goes on beside it, and what is written. */
import { type Kubectl, type Transport, speaks } from '../rig/kubectl.ts';

export const WAYS = ['direct', 'unrecorded', 'recorded', 'window-0', 'same-upstream'] as const;
/**
 * `window-0`: recorded, and shown when durable. `same-upstream`: recorded, over WebSocket to the gateway and on to the API server; the others
 * go on over SPDY.
 */
export type Way = (typeof WAYS)[number];

export const CONDITIONS = ['idle', 'busy', 'slow-reader', 'beyond', 'slow-disk', 'paused'] as const;
/**
 * `busy`: two busy loops for each processor. `slow-reader`: who reads kubectl's output takes 1.5 MB/s. `beyond`:
 * the same, and the gateway may keep next to nothing for them, so that the API server has to wait. `slow-disk`: each sync of the
 * recorder takes long. `paused`: the recorder stands still for 3 s while the end of the output is under way.
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
  /** Of `text` and `random`. */
  readonly megabytes: number;
}

const BULK_MB = 80;
/** What takes 13 seconds at 1.5 MB/s. */
const SLOW_MB = 20;

export interface CellChoice {
  readonly kubectls: readonly Kubectl[];
  /** Instead of the usual sizes. */
  readonly megabytes?: number | undefined;
  /** Only cells whose name fits. */
  readonly only?: RegExp | undefined;
}

/** Every combination that makes a difference: a recorder's troubles do not reach those that have none. */
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
  // a terminal has no pipe that could be read slowly
  const possible = cells.filter(({ condition, content }) => !isSlow(condition) || content !== 'tty-lines');
  return only === undefined ? possible : possible.filter(({ name }) => only.test(name));
}

/**
 * The rows of one table: bulk text on an idle and on a busy machine, and a slow reader, directly, unrecorded and recorded; SPDY with each
 * kubectl, WebSocket with the newest.
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

/** A few of each kind, for a run of minutes: the troubles that were seen to cost bytes first. */
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

/** Whoever reads kubectl's output does it slowly. */
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
