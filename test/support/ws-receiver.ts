/** The frame receiver of `ws`, for comparison with tailcast's parser. The types of `ws` omit this class. */
import * as ws from 'ws';

export interface WsReceiver {
  on(event: 'message', listener: (data: Buffer, isBinary: boolean) => void): this;
  on(event: 'conclude', listener: (code: number) => void): this;
  on(event: 'pong', listener: (data: Buffer) => void): this;
  on(event: 'error', listener: (error: Error) => void): this;
  write(chunk: Uint8Array): boolean;
}

/** Creates a receiver for frames of a server. */
export function createServerFrameReceiver(): WsReceiver {
  const { Receiver } = ws as unknown as { readonly Receiver: new (options: object) => WsReceiver };
  return new Receiver({ isServer: false, maxPayload: 0 });
}
