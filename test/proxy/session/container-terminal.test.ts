import { expect, it } from 'vitest';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import { refuseHiddenTerminal } from '../../../src/proxy/session/container-terminal.ts';

it('does not wait for a connection to the API server after the client has left', async () => {
  const left = new AbortController();
  const exec = { stdin: true, stdout: true, stderr: false, tty: false, command: [], container: undefined };
  const reading = refuseHiddenTerminal(
    { target: parseTarget('/api/v1/namespaces/n/pods/p/attach?stdin=true'), headers: [], exec },
    { connect: () => Promise.withResolvers<never>().promise, basePath: '' },
    left.signal,
  );
  left.abort(new Error('the client left'));
  await expect(reading).rejects.toMatchObject({ code: 'UPSTREAM_UNAVAILABLE' });
}, 5000);
