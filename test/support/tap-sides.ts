/** The two directions of a tap. */
import { NO_BYTES, type ClientInput, type OutputMark, type Tap } from '../../src/recording/tap.ts';
import { SeenSession } from './tapped-session.ts';

/**
 * Output side of a tap. `delivered` reports output as delivered: up to the given {@link OutputMark}, by default the
 * newest one.
 */
export class OutputSide {
  readonly #tap: Pick<Tap, 'output' | 'mark'>;
  betweenFrames: boolean | undefined;

  constructor(tap: Pick<Tap, 'output' | 'mark'>) {
    this.#tap = tap;
  }

  push(chunk: Uint8Array): void | Promise<void> {
    return this.#tap.output(chunk);
  }

  mark(): OutputMark {
    return this.#tap.mark();
  }

  get heldBytes(): number {
    return this.mark().heldBytes;
  }

  delivered(heldBytes = 0, mark = this.mark()): void {
    this.betweenFrames = mark.delivered(heldBytes);
  }
}

/** Input side of a tap. Like the relay, this class keeps bytes that the tap needs again with the next chunk. */
export class InputSide {
  readonly #tap: Pick<Tap, 'input'>;
  kept: Uint8Array = NO_BYTES;

  constructor(tap: Pick<Tap, 'input'>) {
    this.#tap = tap;
  }

  push(chunk: Uint8Array): ClientInput {
    const input = this.#tap.input(chunk, this.kept);
    this.kept = input.kept;
    return input;
  }

  /**
   * Pushes a chunk. @returns `kept <bytes>`, the responses to a heartbeat in hex, `goes` for urgent input, or `waits`
   * for other input
   */
  fateOf(chunk: Uint8Array): string {
    const { kind, kept, responses } = this.push(chunk);
    if (kept.length > 0) return `kept ${kept.length}`;
    if (kind === 'heartbeat') return Buffer.concat(responses).toString('hex');
    return kind === 'urgent' ? 'goes' : 'waits';
  }
}

export function sidesOf(tap: Tap): { readonly server: OutputSide; readonly client: InputSide } {
  return { server: new OutputSide(tap), client: new InputSide(tap) };
}

/** Opens a tap, and the session to which the tap reports. */
export function openTap(create: (session: SeenSession) => Tap) {
  const session = new SeenSession();
  const tap = create(session);
  const { server: serverToClient, client: clientToServer } = sidesOf(tap);
  const { farewell, incompleteReason } = tap;
  return {
    session,
    tap,
    serverToClient,
    farewell,
    incompleteReason,
    up: (...chunks: Uint8Array[]) => {
      for (const chunk of chunks) clientToServer.push(chunk);
    },
    down: (...chunks: Uint8Array[]) => {
      for (const chunk of chunks) {
        void serverToClient.push(chunk);
        serverToClient.delivered();
      }
    },
  };
}
