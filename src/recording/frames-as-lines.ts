/**
 * A session that is kept as frames goes on at a recorder that takes lines: one of an earlier version, or this gateway is not
 * to send frames any more. Its acknowledgements may be in the middle of what a frame stands for; the last whole one counts.
 */
import { isUtf8 } from 'node:buffer';
import { FrameLines, type FramePlace } from '../wire/recorder-api/frame-lines.ts';
import type { ConnectionEvents, RecorderConnection } from './recorder-connection.ts';

/** Lines are up to eight times as long as frames, and all that are made of a piece are in memory. */
const PIECE_BYTES = 64 * 1024;

/**
 * @param to takes lines
 * @param from where in the session the upload begins
 */
export function sendAsLines(to: RecorderConnection, from: FramePlace): RecorderConnection {
  const lines = new FrameLines(from, isUtf8);
  let events: ConnectionEvents | undefined;
  return {
    address: to.address,
    protocol: to.protocol,
    annotations: to.annotations,
    resumable: to.resumable,
    frames: true,
    attach(listener) {
      events = listener;
      to.attach({
        acknowledged(lineBytes) {
          const place = lines.reached(lineBytes);
          listener.acknowledged(place.frames, place.lines);
        },
        finished: () => listener.finished(),
        lost: (error) => listener.lost(error),
      });
    },
    send(bytes) {
      try {
        for (let start = 0; start < bytes.length; start += PIECE_BYTES) {
          to.send(Buffer.from(lines.push(bytes.subarray(start, start + PIECE_BYTES))));
        }
      } catch (error) {
        to.destroy();
        events?.lost(new Error('what is kept of the session cannot be read', { cause: error }));
      }
    },
    // what it was given is not looked at any more
    unwritten: 0,
    finish: () => to.finish(),
    destroy: () => to.destroy(),
  };
}
