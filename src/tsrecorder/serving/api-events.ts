/**
 * Checks an API request event, adds facts about its uploader and its arrival, and wraps it in the format of the
 * reference.
 */
import { TailcastError } from '../../errors.ts';
import { readJsonObject, spliceMembers } from '../library/json-members.ts';
import { ACCESS_EVENT_TYPE } from '../../wire/recorder-api/access-event.ts';
import type { RecordingNode } from '../../wire/recorder-api/recording.ts';
import { eventKey, type RecordingKey } from '../store/key.ts';

/**
 * Prefix of the types of events that recorders write. Of these types, uploaders may write only events about access
 * requests.
 */
const RECORDER_PREFIX = 'tailcast-';

/**
 * Wraps an event for the store.
 * @param body request body
 * @param uploader value of the field `destination`
 * @param key value of the field `id`
 * @returns the object to store, with a line feed at its end. The bytes of the event stay unchanged, including 64-bit
 *   numbers
 * @throws TailcastError `UPLOAD_MALFORMED` if the body is not an event, or if only recorders may write events of its
 * type
 */
export function wrapEvent(body: Uint8Array, uploader: RecordingNode, key: RecordingKey): string {
  const event = readJsonObject(decode(body));
  const type = event?.value.get('type');
  if (event === undefined || typeof type !== 'string') {
    throw new TailcastError('UPLOAD_MALFORMED', 'the body is not an event');
  }
  // Without this check, an uploader could forge events about accesses of viewers, and the recorder would sign these
  // events.
  if (type.startsWith(RECORDER_PREFIX) && type !== ACCESS_EVENT_TYPE)
    throw new TailcastError('UPLOAD_MALFORMED', 'only recorders write events of this type');
  const completed = spliceMembers(
    event,
    new Map([
      ['id', JSON.stringify(eventKey(key))],
      ['destination', JSON.stringify({ node: uploader.node, nodeID: uploader.nodeId })],
    ]),
  );
  const timestamp = JSON.stringify(goTime(event.value.get('timestamp')));
  return `{"stableID":${JSON.stringify(uploader.nodeId)},"event":${completed},"timestamp":${timestamp}}\n`;
}

/** Formats Unix seconds like Go's default format: `2026-07-29 10:44:42 +0000 UTC`. */
function goTime(seconds: unknown): string {
  const milliseconds = typeof seconds === 'number' ? seconds * 1000 : 0;
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime()))
    throw new TailcastError('UPLOAD_MALFORMED', 'the event has no usable time');
  return `${date.toISOString().slice(0, 19).replace('T', ' ')} +0000 UTC`;
}

function decode(body: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch (error) {
    throw new TailcastError('UPLOAD_MALFORMED', 'the body is not UTF-8', { cause: error });
  }
}
