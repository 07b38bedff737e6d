/** A recorder with one viewer. The test can change the viewer between requests. */
import { onTestFinished } from 'vitest';
import { parseViewRule, type Viewer } from '../../src/tsrecorder/serving/viewing.ts';
import { createRig, request, type Answer } from './recorder-rig.ts';

export const CAROL: Viewer = { node: 'desk.tail1.ts.net', nodeId: 'nDESK', user: 'carol@example.com' };

/** Opens a recorder, which closes when the test has finished. */
export async function openViewedRecorder(rules: readonly string[]) {
  let viewer = CAROL;
  const rig = await createRig({
    // each request uses a new connection, because the recorder identifies the viewer per connection
    identifyViewer: async () => viewer,
    viewers: rules.map(parseViewRule),
    trustedGateways: ['tag:k8s-gateway'],
  });
  onTestFinished(() => rig[Symbol.asyncDispose]());
  return {
    rig,
    as: (other: Viewer): void => void (viewer = other),
    post: (path: string, body: unknown, headers: Record<string, string>): Promise<Answer> =>
      request(rig.recorder, {
        path,
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: JSON.stringify(body),
      }),
  };
}
