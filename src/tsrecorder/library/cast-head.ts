/**
 * The header line of a cast. During the upload, the recorder checks this line and adds the uploader. To list
 * recordings, the recorder reads the line again.
 */
import { TailcastError } from '../../errors.ts';
import {
  AUDIT_ID_KEY,
  CLUSTER_KEY,
  CLUSTER_NAME,
  hasReversedResize,
  parseCastHeader,
  type ParsedCastHeader,
} from '../../wire/asciicast/header.ts';
import { WireError } from '../../wire/wire-error.ts';
import { readJsonObject, spliceMembers } from './json-members.ts';
import type {
  Recording,
  RecordingKind,
  RecordingNode,
  ResizeOrder,
} from '../../wire/recorder-api/recording.ts';

/** Contents of the header line. */
export interface CastHead extends Pick<
  Recording,
  | 'width'
  | 'height'
  | 'command'
  | 'kind'
  | 'source'
  | 'destination'
  | 'kubernetes'
  | 'cluster'
  | 'connectionId'
  | 'auditId'
  | 'problem'
> {
  /** Order of the two numbers in resize events, derived from the header. */
  readonly resizeOrder: ResizeOrder;
}

/** Maximum number of tags of a source. */
const MAX_TAGS = 100;
/** Maximum length of the user, the tags and the namespace together. The recorder keeps them for each recording. */
const MAX_NAMES_LENGTH = 8192;

const utf8 = new TextDecoder('utf-8', { fatal: true });

/** Decodes the header line of an upload. @throws TailcastError `UPLOAD_MALFORMED` if it is not UTF-8 */
export function decodeHeader(line: Uint8Array): string {
  try {
    return utf8.decode(line);
  } catch (error) {
    throw new TailcastError('UPLOAD_MALFORMED', 'its header is not UTF-8', { cause: error });
  }
}

/**
 * Checks the header of an upload, and adds the name and the id of the uploading tailnet node (`dstNode`, `dstNodeID`).
 * If the header already has these keys, their values are replaced. All other bytes stay the same, which preserves
 * unknown keys and 64-bit integers.
 *
 * @returns the line to store, with a line feed at its end
 * @throws TailcastError `UPLOAD_MALFORMED` if the line is not an asciicast header
 */
export function stampHead(line: string, uploader: RecordingNode): string {
  const object = readJsonObject(line);
  if (object === undefined || parseHead(object.text) === undefined) {
    throw new TailcastError('UPLOAD_MALFORMED', 'it does not begin with an asciicast header');
  }
  const stamped = spliceMembers(
    object,
    new Map([
      ['dstNode', JSON.stringify(uploader.node)],
      ['dstNodeID', JSON.stringify(uploader.nodeId)],
    ]),
  );
  return `${stamped}\n`;
}

/** Returns the parsed header, or undefined if the line is not a header. */
export function parseHead(line: string): CastHead | undefined {
  try {
    return readHead(parseCastHeader(line));
  } catch (error) {
    if (error instanceof WireError) return undefined;
    throw error;
  }
}

function readHead(header: ParsedCastHeader): CastHead {
  const { width, height, command, connectionID, extra } = header;
  const auditId = extra.get(AUDIT_ID_KEY);
  return {
    width,
    height,
    ...(command === undefined ? {} : { command }),
    kind: kindOf(header),
    destination: { node: header.dstNode ?? '', nodeId: header.dstNodeID ?? '' },
    ...accessFacts(header),
    ...(connectionID === '' ? {} : { connectionId: connectionID }),
    ...(auditId === undefined ? {} : { auditId: typeof auditId === 'string' ? auditId : '' }),
    resizeOrder: hasReversedResize(header) ? 'rowsFirst' : 'columnsFirst',
  };
}

/**
 * Returns the facts that determine the access marks of a recording. If there are too many, no fact is used, because a
 * truncated fact could match another viewer rule.
 */
function accessFacts(
  header: ParsedCastHeader,
): Pick<CastHead, 'source' | 'kubernetes' | 'cluster' | 'problem'> {
  const { srcNode: node, srcNodeID: nodeId, srcNodeUser, srcNodeTags, kubernetes, extra } = header;
  const cluster = extra.get(CLUSTER_KEY);
  const names = [srcNodeUser, kubernetes?.Namespace, ...(srcNodeTags ?? [])];
  if ((srcNodeTags?.length ?? 0) > MAX_TAGS || names.join('').length > MAX_NAMES_LENGTH) {
    return {
      source: { node, nodeId },
      problem:
        'the header has too many tags or too long names, so only viewers of all recordings can see the recording',
    };
  }
  return {
    source: {
      node,
      nodeId,
      ...(srcNodeUser === undefined ? {} : { user: srcNodeUser }),
      ...(srcNodeTags === undefined ? {} : { tags: srcNodeTags }),
    },
    ...(kubernetes === undefined
      ? {}
      : {
          kubernetes: {
            namespace: kubernetes.Namespace,
            pod: kubernetes.PodName,
            container: kubernetes.Container,
          },
        }),
    // Uploaders choose the cluster name in the header, so accept only valid names. In an access mark, an invalid name
    // could look like a cluster and a namespace.
    ...(typeof cluster === 'string' && CLUSTER_NAME.test(cluster) ? { cluster } : {}),
  };
}

function kindOf({ kubernetes, sshUser, connectionID }: ParsedCastHeader): RecordingKind {
  const session = kubernetes?.SessionType;
  if (session === 'exec' || session === 'attach') return session;
  return sshUser !== '' || connectionID !== '' ? 'ssh' : 'unknown';
}
