/** Starts recorder, API server and gateway for one test. Recorder, API server and gateway are closed after the test. */
import { onTestFinished } from 'vitest';
import type { RecordingPolicy } from '../../src/recording/policy.ts';
import { encodeWebSocketFrame } from '../../src/wire/websocket/frame.ts';
import { startRecorderDouble, type RecorderBehaviour, type RecorderDouble } from './recorder-double.ts';
import { serverMessage, STATUS_SUCCESS } from './stream-peers.ts';
import { hex } from './tapped-session.ts';
import {
  startApiServerDouble,
  startRig,
  switching,
  type ApiServerDouble,
  type Rig,
  type UpgradeScript,
} from './upgrade-rig.ts';

export async function openRecorder(behaviour: RecorderBehaviour = {}, port = 0): Promise<RecorderDouble> {
  const double = await startRecorderDouble(behaviour, port);
  onTestFinished(() => double.close().catch(() => {}));
  return double;
}

/** Returns the address of a recorder that no longer listens. */
export async function deadAddress(): Promise<string> {
  const double = await startRecorderDouble();
  await double.close();
  return double.address;
}

export function recordingPolicy(
  mode: 'failOpen' | 'failClosed',
  recorders: readonly string[],
  events = false,
): RecordingPolicy {
  return { mode, recorders, recorderTags: [], events };
}

export async function openRig(
  script: UpgradeScript,
  recording: RecordingPolicy,
  more: Partial<Parameters<typeof startRig>[0]> = {},
): Promise<{ readonly apiServer: ApiServerDouble; readonly rig: Rig }> {
  const apiServer = await startApiServerDouble(script);
  onTestFinished(() => apiServer.close());
  const rig = await startRig({ apiServer, recording, ...more });
  onTestFinished(() => rig.close());
  return { apiServer, rig };
}

/** Starts a recorder, an API server, and a gateway that uses this recorder. Default mode: `failClosed`. */
export async function openRecorded(
  script: UpgradeScript,
  {
    mode = 'failClosed',
    behaviour,
    ...more
  }: Partial<Parameters<typeof startRig>[0]> & {
    readonly mode?: 'failOpen' | 'failClosed';
    readonly behaviour?: RecorderBehaviour;
  } = {},
): Promise<{ readonly recorder: RecorderDouble; readonly apiServer: ApiServerDouble; readonly rig: Rig }> {
  const recorder = await openRecorder(behaviour);
  return { recorder, ...(await openRig(script, recordingPolicy(mode, [recorder.address]), more)) };
}

/** Returns the parsed lines of a recorder's first upload. */
export function linesOf(recorder: RecorderDouble): unknown[] {
  return recorder.uploads[0]!.lines().map((line) => JSON.parse(line) as unknown);
}

/** Returns a WebSocket exec that sends `output` and the exit status, and closes. */
export function webSocketExec(output: readonly Uint8Array[], status = STATUS_SUCCESS): UpgradeScript {
  return (request, socket) => {
    socket.write(switching(request, 'v5.channel.k8s.io', 'Sec-WebSocket-Accept: x'));
    for (const frame of output) socket.write(frame);
    socket.write(serverMessage(3, status));
    socket.end(encodeWebSocketFrame({ opcode: 8, fin: true, payload: hex('03e8') }));
    socket.resume();
  };
}
