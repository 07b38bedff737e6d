/**
 * Shortens long texts of a recording for a list of recordings. Uploaders choose these texts, and a list has up to 500
 * recordings. The response for a single recording and the search index have the complete texts. Pure.
 */
import type { Recording } from '../../wire/recorder-api/recording.ts';

/** Maximum length of a text in a list, in UTF-16 code units. */
const MAX_TEXT = 4096;
const MAX_TAGS = 100;

/** Returns the recording with shortened texts. A shortened text ends with an ellipsis. */
export function listedRecording(recording: Recording): Recording {
  const { command, source, destination, kubernetes, connectionId, auditId, problem } = recording;
  const { user, tags } = source;
  return {
    ...recording,
    ...(command === undefined ? {} : { command: cut(command) }),
    source: {
      ...nodeOf(source),
      ...(user === undefined ? {} : { user: cut(user) }),
      ...(tags === undefined ? {} : { tags: tags.slice(0, MAX_TAGS).map(cut) }),
    },
    destination: nodeOf(destination),
    ...(kubernetes === undefined
      ? {}
      : {
          kubernetes: {
            namespace: cut(kubernetes.namespace),
            pod: cut(kubernetes.pod),
            container: cut(kubernetes.container),
          },
        }),
    ...(connectionId === undefined ? {} : { connectionId: cut(connectionId) }),
    ...(auditId === undefined ? {} : { auditId: cut(auditId) }),
    ...(problem === undefined ? {} : { problem: cut(problem) }),
  };
}

function nodeOf({ node, nodeId }: Recording['destination']): Recording['destination'] {
  return { node: cut(node), nodeId: cut(nodeId) };
}

function cut(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT).toWellFormed()}…`;
}
